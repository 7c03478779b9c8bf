//! A part of a file as the body of an answer or of a request, read in pieces by threads that may wait for the disk. No thread waits
//! for the other end, and little is held for it: many may read slowly at the same time.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use hyper::body::Frame;
use tokio::sync::Semaphore;

/// One read. The next one is under way while it is sent, so that disk and network work at the same time.
const PIECE: usize = 64 * 1024;
const AT_A_TIME: usize = 2;
/// Threads that may wait for the disk here; all other work of the agent needs some too. Who comes and goes quickly leaves no
/// more than these behind.
static THREADS: Semaphore = Semaphore::const_new(64);

pub fn pieces(
    file: impl Into<Arc<File>>,
    first: u64,
    count: u64,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    let file = file.into();
    let end = first + count;
    stream::iter((first..end).step_by(PIECE))
        .map(move |at| read(Arc::clone(&file), at, end))
        .buffered(AT_A_TIME)
        .inspect_err(|error| tracing::warn!(%error, "a file cannot be read to its end"))
        .map_ok(Frame::data)
}

async fn read(file: Arc<File>, at: u64, end: u64) -> io::Result<Bytes> {
    let thread = THREADS.acquire().await.map_err(io::Error::other)?;
    let size = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
    let read = tokio::task::spawn_blocking(move || {
        let mut piece = BytesMut::zeroed(size);
        file.read_exact_at(&mut piece, at)?;
        drop(thread);
        Ok(piece.freeze())
    });
    read.await.map_err(io::Error::other)?
}
