//! File bytes a chunk at a time, the next chunk being read on a blocking thread while this one is sent.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::{OpenFile, Source};

/// Larger than a window, and small, as there are three of it for each transfer.
const CHUNK: u64 = 128 * 1024;

/// A chunk and the offset of its first byte.
struct Chunk {
    start: u64,
    bytes: Vec<u8>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Reads a [`Source`] from any offset, fast if mostly forwards.
pub(super) enum Reader {
    Bytes(Arc<[u8]>),
    File(FileReader),
}

pub(super) struct FileReader {
    file: Arc<std::fs::File>,
    size: u64,
    /// The chunk in use, and the one before it: a window that is sent again may begin there.
    chunks: [Chunk; 2],
    ahead: Option<JoinHandle<io::Result<Chunk>>>,
    threads: Arc<Semaphore>,
}

impl Reader {
    pub(super) fn new(source: Source, threads: &Arc<Semaphore>) -> Self {
        match source {
            Source::Bytes(bytes) => Self::Bytes(bytes),
            Source::File(OpenFile { file, size }) => {
                let empty = || Chunk {
                    start: 0,
                    bytes: Vec::new(),
                };
                Self::File(FileReader {
                    file: Arc::new(file),
                    size,
                    chunks: [empty(), empty()],
                    ahead: None,
                    threads: Arc::clone(threads),
                })
            }
        }
    }

    /// Appends `length` bytes from `offset` to `out`, fewer at the end of the file.
    pub(super) async fn read(
        &mut self,
        offset: u64,
        length: u64,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => {
                let end = (offset + length).min(bytes.len() as u64);
                out.extend_from_slice(slice(bytes, 0, offset, end));
                Ok(())
            }
            Self::File(file) => file.read(offset, length, out).await,
        }
    }
}

/// The bytes from `offset` to `end` of a file of which `bytes` begins at `start`.
fn slice(bytes: &[u8], start: u64, offset: u64, end: u64) -> &[u8] {
    let index =
        |at: u64| usize::try_from(at - start).expect("what is in memory has indices of its size");
    if offset < end {
        &bytes[index(offset)..index(end)]
    } else {
        &[]
    }
}

impl FileReader {
    async fn read(&mut self, mut offset: u64, length: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let end = (offset + length).min(self.size);
        while offset < end {
            let holds = |chunk: &&Chunk| chunk.start <= offset && offset < chunk.end();
            if let Some(chunk) = self.chunks.iter().find(holds) {
                let until = end.min(chunk.end());
                out.extend_from_slice(slice(&chunk.bytes, chunk.start, offset, until));
                offset = until;
            } else {
                let chunk = self.load(offset).await?;
                self.chunks.rotate_left(1);
                self.chunks[1] = chunk;
            }
        }
        Ok(())
    }

    /// The chunk that holds `offset`, and starts to read the one behind it.
    async fn load(&mut self, offset: u64) -> io::Result<Chunk> {
        let start = offset / CHUNK * CHUNK;
        let mut loaded = None;
        if let Some(ahead) = self.ahead.take() {
            let chunk = ahead.await.map_err(io::Error::other)??;
            if chunk.start == start {
                loaded = Some(chunk);
            }
        }
        let chunk = if let Some(chunk) = loaded {
            chunk
        } else {
            let thread = Arc::clone(&self.threads).acquire_owned().await;
            let read = self.read_chunk(start, thread.map_err(io::Error::other)?);
            read.await.map_err(io::Error::other)??
        };
        // Not with the first: whoever asked may not be there.
        if chunk.start > 0
            && chunk.end() < self.size
            && let Ok(thread) = Arc::clone(&self.threads).try_acquire_owned()
        {
            self.ahead = Some(self.read_chunk(chunk.end(), thread));
        }
        Ok(chunk)
    }

    fn read_chunk(
        &self,
        start: u64,
        thread: OwnedSemaphorePermit,
    ) -> JoinHandle<io::Result<Chunk>> {
        let file = Arc::clone(&self.file);
        let length = CHUNK.min(self.size - start);
        tokio::task::spawn_blocking(move || {
            let length = usize::try_from(length).map_err(io::Error::other)?;
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, start)?;
            drop(thread);
            Ok(Chunk { start, bytes })
        })
    }
}
