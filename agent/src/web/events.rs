//! `/api/v1/events`: the status value as server-sent events (WHATWG HTML, section 9.2), one an update.

use std::{convert::Infallible, io, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Response, body::Frame};

use super::{Body, Web, refusal};

/// Updates come in bursts; a person sees no more than this.
const AT_MOST_EVERY: Duration = Duration::from_millis(500);
/// Something is sent in every such span, so that both ends notice when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub fn answer(web: &Web) -> Response<Body> {
    let Ok(permit) = web.streams.clone().try_acquire_owned() else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many open pages; close some, or read /api/v1/status",
        );
    };
    let events = stream::unfold(
        (web.clone(), permit, false),
        |(mut web, permit, started)| async move {
            if started {
                tokio::time::sleep(AT_MOST_EVERY).await;
                match tokio::time::timeout(KEEP_ALIVE, web.status.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return None,
                    Err(_) => return Some((frame(":\n\n".to_owned()), (web, permit, true))),
                }
            }
            web.status.mark_unchanged();
            let json = serde_json::to_string(&web.status_now()).expect("a status is plain JSON");
            Some((frame(format!("data: {json}\n\n")), (web, permit, true)))
        },
    );
    let mut response = Response::new(
        StreamBody::new(events)
            .map_err(|never: Infallible| -> io::Error { match never {} })
            .boxed_unsync(),
    );
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[allow(clippy::unnecessary_wraps, reason = "the stream's items are results")]
fn frame(text: String) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(text.into()))
}
