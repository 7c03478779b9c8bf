//! Files of the stick and of the store as answers, whole or in parts.

use std::{fs::File, io, os::unix::fs::MetadataExt, path::Path};

use bytes::Bytes;
use firstlight_requests::{RangeReply, plan_range};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;

use super::{Body, bandwidth::Share, direct::Direct, full, refusal};
use crate::pieces::pieces;

/// A file as it is now: two of one size, time and inode are the same.
pub struct Opened {
    pub file: File,
    pub length: u64,
    pub etag: String,
}

/// Answers with `path`, or with the part of it that the headers ask for.
pub async fn serve(path: &Path, headers: &HeaderMap, only_head: bool) -> Response<Body> {
    match opened(path).await {
        Ok(Opened { file, length, etag }) => {
            let part = |first, count| stream(file, first, count);
            part_of(headers, only_head, length, etag, part)
        }
        Err(refused) => refused,
    }
}

/// The same for a `GET`, to be sent by the kernel; `None` where there is nothing to send.
pub async fn direct(path: &Path, headers: &HeaderMap, share: Option<Share>) -> Option<Direct> {
    let Opened { file, length, etag } = opened(path).await.ok()?;
    let mut asked = None;
    let note = |first, count| {
        asked = Some((first, count));
        full(Bytes::new())
    };
    let head = part_of(headers, false, length, etag, note).map(drop);
    let (first, count) = asked?;
    let part = Some((file, first, count));
    Some(Direct { head, part, share })
}

/// `path`, or why it cannot be had.
pub async fn opened(path: &Path) -> Result<Opened, Response<Body>> {
    let owned = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || open(&owned)).await;
    match opened {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            Err(refusal(StatusCode::NOT_FOUND, "no such file on this box"))
        }
        Ok(Err(error)) => {
            tracing::warn!(path = %path.display(), %error, "a file of the stick cannot be read");
            Err(refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                format_args!("cannot be read: {error}; write the stick again"),
            ))
        }
        Err(_) => Err(refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the box is stopping",
        )),
    }
}

/// The part of something of `length` bytes that the headers ask for; `body` makes it of the first byte and their number.
pub fn part_of(
    headers: &HeaderMap,
    only_head: bool,
    length: u64,
    etag: String,
    body: impl FnOnce(u64, u64) -> Body,
) -> Response<Body> {
    let (status, first, count) = match plan_range(headers, length, &etag) {
        RangeReply::Whole => (StatusCode::OK, 0, length),
        RangeReply::Part { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        RangeReply::NotModified => (StatusCode::NOT_MODIFIED, 0, 0),
        RangeReply::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    let mut response = Response::new(if only_head || count == 0 {
        full(Bytes::new())
    } else {
        body(first, count)
    });
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name, value: String| {
        // Numbers and hex digits only.
        headers.insert(name, HeaderValue::from_str(&value).expect("plain ASCII"));
    };
    set(header::CONTENT_LENGTH, count.to_string());
    set(header::ETAG, etag);
    match status {
        StatusCode::PARTIAL_CONTENT => set(
            header::CONTENT_RANGE,
            format!("bytes {first}-{}/{length}", first + count - 1),
        ),
        StatusCode::RANGE_NOT_SATISFIABLE => {
            set(header::CONTENT_RANGE, format!("bytes */{length}"));
        }
        _ => {}
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    response
}

fn open(path: &Path) -> io::Result<Opened> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let etag = format!(
        "\"{:x}-{:x}-{:x}\"",
        metadata.len(),
        metadata.mtime(),
        metadata.ino()
    );
    Ok(Opened {
        file,
        length: metadata.len(),
        etag,
    })
}

fn stream(file: File, first: u64, count: u64) -> Body {
    BodyExt::boxed_unsync(StreamBody::new(pieces(file, first, count)))
}
