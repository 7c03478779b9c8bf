//! A connection whose other end must read: what is given to the socket at a time (some tens of kilobytes) is to be taken within
//! [`TAKEN`], which asks for about 2 kB/s. Who reads a byte a minute does not hold a place, and memory, for as long as it likes.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

const TAKEN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Paced<S> {
    stream: S,
    /// Runs while the socket does not take what it was given.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            patience: None,
        }
    }

    fn judge(
        &mut self,
        context: &mut Context<'_>,
        wanted: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => {
                let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(TAKEN)));
                match patience.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                }
            }
            Poll::Ready(Ok(some)) if some < wanted => Poll::Ready(Ok(some)),
            all @ Poll::Ready(_) => {
                self.patience = None;
                all
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.judge(context, buffer.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.judge(context, wanted, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Sends 1 MB, which the other end reads at `bytes` in `pause`.
    async fn read_at(bytes: usize, pause: Duration) -> io::Result<()> {
        let (near, mut far) = duplex(16 * 1024);
        tokio::spawn(async move {
            let mut buffer = vec![0; bytes];
            while far.read_exact(&mut buffer).await.is_ok() {
                sleep(pause).await;
            }
        });
        let mut paced = Paced::new(near);
        for _ in 0..16 {
            paced.write_all(&vec![0; 64 * 1024]).await?;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_served_and_one_of_a_byte_a_minute_is_not() {
        let second = Duration::from_secs(1);
        read_at(125_000, second).await.unwrap();
        read_at(4096, second).await.unwrap();
        let refused = read_at(1, second * 60).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        // Now and then a byte is no progress either.
        let refused = read_at(512, second).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_begins_anew_when_all_was_taken() {
        let (near, mut far) = duplex(1024);
        let mut paced = Paced::new(near);
        let mut buffer = vec![0; 2048];
        for _ in 0..3 {
            let reading = async {
                sleep(TAKEN * 2 / 3).await;
                far.read_exact(&mut buffer).await
            };
            let (written, read) = tokio::join!(paced.write_all(&[0; 2048]), reading);
            written.unwrap();
            read.unwrap();
        }
    }
}
