//! A part of a file as the body of an answer or of a request, read in large pieces by a thread that may wait for the disk. It stops
//! as soon as nobody takes them any more.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use hyper::body::Frame;
use tokio::sync::mpsc;

/// One read: large enough that the cost of a read and of a switch between threads vanishes.
const PIECE: usize = 512 * 1024;
/// Pieces that may be ahead of the other end, so that disk and network work at the same time.
const AHEAD: usize = 2;

pub fn pieces(
    mut file: File,
    first: u64,
    count: u64,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    let (sender, mut receiver) = mpsc::channel::<io::Result<Frame<Bytes>>>(AHEAD);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = send(&mut file, first, count, &sender) {
            tracing::warn!(%error, "a file cannot be read to its end");
            drop(sender.blocking_send(Err(error)));
        }
    });
    futures_util::stream::poll_fn(move |context| receiver.poll_recv(context))
}

fn send(
    file: &mut File,
    first: u64,
    count: u64,
    sender: &mpsc::Sender<io::Result<Frame<Bytes>>>,
) -> io::Result<()> {
    file.seek(SeekFrom::Start(first))?;
    let mut left = count;
    while left > 0 {
        let size = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        let mut piece = BytesMut::zeroed(size);
        file.read_exact(&mut piece)?;
        left -= size as u64;
        if sender
            .blocking_send(Ok(Frame::data(piece.freeze())))
            .is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}
