//! Large files in clear: the kernel sends them (`sendfile`), and no byte passes through the program. Each answer has a thread of its
//! own, which waits for the disk and for the other end, as a transfer of TFTP has.
//!
//! Only a plain `GET` of a file is answered here; its request is looked at before it is taken from the socket, so that everything
//! else, and everything odd, is hyper's. Must not: know which files there are ([`Files::file`] does).

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Write as _},
    net::{IpAddr, Shutdown, TcpStream as Blocking},
    os::fd::{AsFd as _, AsRawFd as _},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Response};
use nix::{
    ioctl_read_bad, libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        sendfile::sendfile64,
        socket::{setsockopt, sockopt},
    },
};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use firstlight_requests::{MOST_HEAD, read_head};

use super::bandwidth::Share;
use crate::doors::Place;

/// So much is taken of what the socket was given in so long; as `doors::Paced` has it.
const TAKEN: Duration = Duration::from_secs(30);
const LEAST: usize = 64 * 1024;
/// What the kernel keeps of an answer that is on its way (it takes twice that, with what it needs itself): enough for
/// 1 Gb/s at a millisecond.
pub const UNSENT: usize = 128 * 1024;
/// The same of one file, and of all: with little the thread wakes up for every few packets. What is kept are the file's own pages.
const KEPT: usize = 4 * 1024 * 1024;
const KEPT_IN_ALL: usize = 32 * 1024 * 1024;
/// In one call.
const PIECE: u64 = 8 * 1024 * 1024;
/// Answers at a time; one more is hyper's, which takes longer over it.
const AT_ONCE: usize = 128;
static THREADS: std::sync::LazyLock<Arc<Semaphore>> =
    std::sync::LazyLock::new(|| Arc::new(Semaphore::new(AT_ONCE)));

/// Who knows of files.
pub trait Files {
    /// A `GET` that the kernel may answer; `None`: hyper asks for it.
    fn file(
        &self,
        _peer: IpAddr,
        _path: &str,
        _headers: &HeaderMap,
    ) -> impl Future<Output = Option<Direct>> + Send {
        async { None }
    }
}

/// What a request is answered with.
pub struct Direct {
    /// Status and headers.
    pub head: Response<()>,
    /// The file, and of it so many bytes from the first; `None` has no content.
    pub part: Option<(File, u64, u64)>,
    /// Of the link, where the site has a limit.
    pub share: Option<Share>,
}

/// Answers what can be answered so, one request after the other; the rest of the connection, if there is one, is for hyper.
pub async fn serve(
    site: &impl Files,
    mut stream: TcpStream,
    peer: IpAddr,
    place: &Place,
    patience: Duration,
) -> io::Result<Option<TcpStream>> {
    let mut buffer = vec![0; MOST_HEAD];
    loop {
        let Ok(seen) = tokio::time::timeout(patience, stream.peek(&mut buffer)).await else {
            return Ok(None);
        };
        let Some(asked) = read_head(&buffer[..seen?]) else {
            return Ok(Some(stream));
        };
        let work = place.work();
        let Some(direct) = site.file(peer, &asked.path, &asked.headers).await else {
            return Ok(Some(stream));
        };
        let Ok(thread) = Arc::clone(&THREADS).try_acquire_owned() else {
            return Ok(Some(stream));
        };
        stream.read_exact(&mut buffer[..asked.length]).await?;
        stream = send(stream, direct, thread).await?;
        drop(work);
        if !asked.stays {
            return Ok(None);
        }
    }
}

/// Ends what the thread waits for when nobody waits for the thread.
struct Cut(Option<Arc<Blocking>>);

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            // Gone already, then.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

async fn send(
    stream: TcpStream,
    direct: Direct,
    thread: OwnedSemaphorePermit,
) -> io::Result<TcpStream> {
    let stream = Arc::new(stream.into_std()?);
    let mut cut = Cut(Some(Arc::clone(&stream)));
    let runtime = Handle::current();
    let sending = tokio::task::spawn_blocking(move || {
        let turn = |share: &Share, bytes| runtime.block_on(share.turn(bytes));
        let sent = send_blocking(&stream, direct, turn);
        drop(thread);
        sent.map(|()| stream)
    });
    let stream = sending.await.map_err(io::Error::other)??;
    cut.0 = None;
    let stream = Arc::into_inner(stream).expect("the thread and the guard have given it back");
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

fn send_blocking(
    mut stream: &Blocking,
    direct: Direct,
    turn: impl Fn(&Share, u64),
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TAKEN))?;
    stream.write_all(text(&direct.head).as_bytes())?;
    let Some((file, first, count)) = direct.part else {
        return Ok(());
    };
    // What waits in the kernel is beyond the reach of shares.
    if direct.share.is_none() {
        let answers = AT_ONCE - THREADS.available_permits();
        keep(stream, KEPT.min(KEPT_IN_ALL / answers.max(1)))?;
    }
    let mut at = first;
    let most = direct.share.as_ref().map_or(PIECE, Share::piece);
    while at < first + count {
        let piece = most.min(first + count - at);
        if let Some(share) = &direct.share {
            turn(share, piece);
        }
        let sent = while_taken(stream, || kernel_sends(&file, stream, at, piece))?;
        if sent == 0 {
            tracing::warn!("a file cannot be read to its end");
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += sent;
    }
    keep(stream, UNSENT)?;
    while_taken(stream, || has_room(stream))
}

/// As much as the kernel allows who may not have more.
fn keep(stream: &Blocking, bytes: usize) -> io::Result<()> {
    let forced = setsockopt(stream, sockopt::SndBufForce, &bytes);
    Ok(forced.or_else(|_| setsockopt(stream, sockopt::SndBuf, &bytes))?)
}

/// `send`, and again while it runs out of time and the other end takes what it was given.
fn while_taken<T>(stream: &Blocking, mut send: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut before = waiting(stream)?;
    loop {
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let now = waiting(stream)?;
                if now + LEAST > before {
                    return Err(error);
                }
                before = now;
            }
            done => return done,
        }
    }
}

/// Little enough waits to be sent for the next answer to begin.
fn has_room(stream: &Blocking) -> io::Result<()> {
    let timeout = PollTimeout::try_from(TAKEN).map_err(io::Error::other)?;
    match poll(
        &mut [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)],
        timeout,
    )? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

ioctl_read_bad!(
    /// Bytes that the other end has not confirmed.
    unconfirmed,
    libc::TIOCOUTQ,
    libc::c_int
);

fn waiting(stream: &Blocking) -> io::Result<usize> {
    let mut bytes = 0;
    #[allow(
        unsafe_code,
        reason = "the descriptor is open, and the kernel writes one number"
    )]
    unsafe { unconfirmed(stream.as_raw_fd(), &raw mut bytes) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// How many bytes went. The standard library's copy may use the kernel, too, and may stop doing so without a word.
fn kernel_sends(file: &File, stream: &Blocking, at: u64, count: u64) -> io::Result<u64> {
    let mut offset = i64::try_from(at).map_err(io::Error::other)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(sendfile64(stream, file, Some(&mut offset), count)? as u64)
}

/// Names in the capitals that GRUB looks for, as hyper writes them.
fn text(head: &Response<()>) -> String {
    let mut text = format!("HTTP/1.1 {}\r\n", head.status());
    for (name, value) in head.headers() {
        let mut begins = true;
        for letter in name.as_str().chars() {
            text.push(if begins {
                letter.to_ascii_uppercase()
            } else {
                letter
            });
            begins = letter == '-';
        }
        // All are ours, in ASCII.
        let _ = write!(text, ": {}\r\n", value.to_str().unwrap_or_default());
    }
    text.push_str("\r\n");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn who_takes_what_it_was_given_is_waited_for_and_nobody_else() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        keep(&stream, KEPT).unwrap();
        stream.set_nonblocking(true).unwrap();
        let block = vec![0; LEAST];
        while (&stream).write(&block).is_ok() {}

        let mut calls = 0;
        let ended = while_taken(&stream, || {
            calls += 1;
            if calls == 1 {
                let before = waiting(&stream).unwrap();
                let mut taken = vec![0; LEAST];
                while waiting(&stream).unwrap() + LEAST > before {
                    io::Read::read(&mut reader, &mut taken).unwrap();
                }
            }
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
        assert!(ended.is_err());
        // What was read makes room for more to arrive.
        assert!((2..10).contains(&calls), "{calls}");
    }

    #[test]
    fn names_are_written_as_boot_loaders_look_for_them() {
        let mut head = Response::new(());
        let length = HeaderValue::from_static("7");
        head.headers_mut().insert(header::CONTENT_LENGTH, length);
        assert_eq!(text(&head), "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
    }
}
