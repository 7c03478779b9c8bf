//! The registry's door for those who push, on the box's loopback. What they say goes on to the registry as it is, as long as there is room: the
//! registry itself writes until the disk is full, and etcd lives on the same one.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};

use anyhow::Result;
use bytes::Bytes;
use firstlight_api::names::REGISTRY_PUSH_PORT;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Frame, Incoming, SizeHint},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{
    Body, refusal,
    server::{Answers, serve_address},
    text,
};
use crate::{
    doors::Known,
    status::{StatusSender, counters::REFUSED},
    store::{self, Room},
};

/// Between two looks at what is left: so much more may be written than there is room for, by each push.
const STEP: usize = 1 << 20;
/// Of one connection, not of what goes over it (RFC 9110, 7.6.1).
const OF_CONNECTION: [HeaderName; 5] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Serves the door until `stop`; `dir` is on the disk of which the reserve stays free.
pub async fn serve(
    dir: PathBuf,
    known: Known,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let pushes = Pushes {
        registry: store::REGISTRY,
        room: Room::on_disk(&dir),
    };
    let address = (Ipv4Addr::LOCALHOST, REGISTRY_PUSH_PORT).into();
    serve_address(pushes, known, address, status, stop).await
}

#[derive(Clone, Debug)]
struct Pushes {
    registry: SocketAddr,
    room: Room,
}

impl super::direct::Files for Pushes {}

impl Answers for Pushes {
    const WHAT: &'static str = "the registry's door for pushes";

    fn source(&self, _: SocketAddr) -> &'static str {
        "pushes"
    }

    async fn answer(&self, _: IpAddr, request: Request<Incoming>) -> Response<Body> {
        let writes = [Method::POST, Method::PUT, Method::PATCH];
        if writes.contains(request.method())
            && let Err(error) = look(&self.room)
        {
            return no_room(&error);
        }
        let (mut head, body) = request.into_parts();
        remove(&mut head.headers);
        let body = Metered {
            body,
            room: self.room.clone(),
            unseen: 0,
        };
        match self.forward(Request::from_parts(head, body)).await {
            Ok(response) => response,
            Err(error) => match look(&self.room) {
                Err(full) => no_room(&full),
                Ok(()) => refusal(
                    StatusCode::BAD_GATEWAY,
                    format!(
                        "the registry does not answer ({error}); it comes up with the box's Kubernetes, see the box's page"
                    ),
                ),
            },
        }
    }
}

impl Pushes {
    async fn forward(&self, request: Request<Metered>) -> Result<Response<Body>, Error> {
        let stream = TcpStream::connect(self.registry).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the answer's body, or with the request that is dropped.
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        if answer.is_err() {
            connection.abort();
        }
        let (mut head, body) = answer?.into_parts();
        remove(&mut head.headers);
        let body = body.map_err(io::Error::other).boxed_unsync();
        Ok(Response::from_parts(head, body))
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

fn remove(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

fn look(room: &Room) -> io::Result<()> {
    match room.left()? {
        0 => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}

/// As the distribution protocol tells errors, so that clients show the sentence.
fn no_room(error: &io::Error) -> Response<Body> {
    REFUSED.count("push-no-room");
    let what = if error.kind() == io::ErrorKind::StorageFull {
        "the box has no room for this; delete images that are not used, or use a larger stick"
            .to_owned()
    } else {
        format!("the box cannot tell how much room it has: {error}")
    };
    let told = serde_json::json!({"errors": [{"code": "DENIED", "message": what}]});
    text(
        StatusCode::INSUFFICIENT_STORAGE,
        "application/json",
        told.to_string(),
    )
}

/// What is pushed, up to the reserve.
struct Metered {
    body: Incoming,
    room: Room,
    /// Bytes since the last look.
    unseen: usize,
}

impl hyper::body::Body for Metered {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let Poll::Ready(Some(Ok(frame))) = frame else {
            return frame.map(|frame| frame.map(|frame| frame.map_err(Error::from)));
        };
        self.unseen += frame.data_ref().map_or(0, Bytes::len);
        if self.unseen >= STEP {
            self.unseen = 0;
            look(&self.room)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
