//! The body of a request as it comes: some bytes of it are read here, some are passed over, and most are passed on.

use std::time::Duration;

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::mpsc;

/// Without a byte for so long, who sends is gone; a stick may hold it up for long.
const PAUSE: Duration = Duration::from_mins(2);

pub struct Source<B = Incoming> {
    body: B,
    left: Bytes,
}

impl<B: Body<Data = Bytes> + Unpin> Source<B> {
    pub fn new(body: B) -> Self {
        Self {
            body,
            left: Bytes::new(),
        }
    }

    /// What comes next; `None` at the end, and where nobody sends any more.
    pub async fn piece(&mut self) -> Option<Bytes> {
        if !self.left.is_empty() {
            return Some(std::mem::take(&mut self.left));
        }
        loop {
            match tokio::time::timeout(PAUSE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        return Some(bytes);
                    }
                }
                Ok(Some(Err(_)) | None) | Err(_) => return None,
            }
        }
    }

    /// At most so many bytes of what comes next.
    async fn some(&mut self, most: u64) -> Result<Bytes> {
        let Some(mut piece) = self.piece().await else {
            bail!("it ended before its end");
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if piece.len() > most {
            self.left = piece.split_off(most);
        }
        Ok(piece)
    }

    /// Up to and with the first `end`.
    pub async fn until(&mut self, end: &[u8], most: usize) -> Result<BytesMut> {
        let mut read = BytesMut::new();
        loop {
            let found = read.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                let rest = read.split_off(at + end.len()).freeze();
                // Nothing was left, or it would not have been read.
                self.left = rest;
                return Ok(read);
            }
            if read.len() > most {
                bail!("its beginning is longer than {most} bytes");
            }
            let piece = self.some(u64::MAX).await?;
            read.extend_from_slice(&piece);
        }
    }

    pub async fn exactly(&mut self, length: usize) -> Result<BytesMut> {
        let mut read = BytesMut::with_capacity(length);
        while read.len() < length {
            let piece = self.some((length - read.len()) as u64).await?;
            read.extend_from_slice(&piece);
        }
        Ok(read)
    }

    pub async fn skip(&mut self, mut length: u64) -> Result<()> {
        while length > 0 {
            length -= self.some(length).await?.len() as u64;
        }
        Ok(())
    }

    /// Reads what is left, if it is not more than that.
    pub async fn drain(&mut self, most: u64) {
        let mut read = 0;
        while let Some(piece) = self.piece().await {
            read += piece.len() as u64;
            if read > most {
                break;
            }
        }
    }

    /// False: nobody takes it any more.
    pub async fn forward(&mut self, mut length: u64, to: &mpsc::Sender<Bytes>) -> Result<bool> {
        while length > 0 {
            let piece = self.some(length).await?;
            length -= piece.len() as u64;
            if to.send(piece).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
