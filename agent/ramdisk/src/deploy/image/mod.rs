//! Writing an OS image: download, digest, decompression and disk each in a thread of its own.
//!
//! The first and last MiB of the disk are wiped before and held back until the digest of the bytes as served has
//! matched: a half-written or corrupt image never boots. What is held back comes out as [`Held`], for `finish`.

mod decode;
mod digest;
mod download;
pub mod share;
mod writer;

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use hyper::body::Bytes;

use super::cancel::Cancel;
use super::device::BlockDevice;
use super::mark::Maker;
use share::Share;

use download::Relays;

pub use digest::{Algorithm, Digest};
pub use download::{Described, Fetch, HttpFetch, Offer, Opened, Patience};
pub use writer::{Held, is_zero};

/// What Ironic wants written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    pub urls: Vec<String>,
    /// `disk_format`, e.g. `raw`.
    pub format: Option<String>,
    /// Of the bytes as served.
    pub digest: Digest,
    /// Value of the `Authorization` header.
    pub authorization: Option<String>,
}

/// Chunks of the download that may wait for a slower stage.
const CHUNKS: usize = 16;
/// Restarts from the first byte, when the server's file changes under the download.
const RESTARTS: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(
        "the image is in format {0}; this ramdisk writes raw images, plain or zstd-compressed: convert it first"
    )]
    Format(String),
    #[error("{url} answered with status {status}")]
    Refused { url: String, status: u16 },
    #[error("no byte of {url} came for {} minutes; the last reason was: {reason}", waited.as_secs() / 60)]
    GaveUp {
        url: String,
        waited: Duration,
        reason: String,
    },
    #[error("{0} changes while it is downloaded")]
    Changes(String),
    #[error("decompressing the image")]
    Decode(#[source] std::io::Error),
    #[error("writing to {disk} at byte {offset}")]
    Write {
        disk: String,
        offset: u64,
        source: std::io::Error,
    },
    #[error(
        "the image needs more than the {size} bytes of {disk}; choose a larger disk with a root_device hint"
    )]
    TooLarge { disk: String, size: u64 },
    #[error(
        "the image has the {algorithm} digest {found} and must have {wanted}; nothing of it can boot"
    )]
    Digest {
        algorithm: Algorithm,
        found: String,
        wanted: String,
    },
    #[error("the work was called off")]
    Cancelled,
}

/// What happens while an image is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// `total` is 0 when the server does not say.
    Bytes {
        done: u64,
        total: u64,
    },
    Retry {
        reason: String,
    },
}

/// Everything around one write.
pub struct Context<'a> {
    pub device: &'a dyn BlockDevice,
    pub fetch: &'a dyn Fetch,
    pub patience: Patience,
    pub cancel: &'a Cancel,
    /// Whose image this is, for the disk to say so until it is complete.
    pub maker: Option<&'a Maker>,
    /// Where the image is kept for other servers.
    pub share: Option<&'a Share>,
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// Writes the image except for what is held back.
pub fn write_image(context: &Context, request: &ImageRequest) -> Result<Held, ImageError> {
    if let Some(format) = request
        .format
        .as_deref()
        .filter(|f| !matches!(*f, "raw" | "gpt"))
    {
        return Err(ImageError::Format(format.to_owned()));
    }
    writer::begin(context.device, context.maker)?;
    let mut relays = true;
    for _ in 0..=RESTARTS {
        match stream(context, request, relays) {
            Err(Ended::Changed) => (context.progress)(Progress::Retry {
                reason: "the image changed on the server; starting from its first byte".to_owned(),
            }),
            Err(Ended::Misled(error)) => {
                relays = false;
                (context.progress)(Progress::Retry {
                    reason: format!(
                        "{error}; another server passed it on, so it comes from the box now"
                    ),
                });
            }
            Err(Ended::Failed(error)) => {
                // The stages may have filled what the wipe left empty only in memory; on disk it is still empty.
                return Err(error);
            }
            Ok(held) => return Ok(held),
        }
    }
    Err(ImageError::Changes(request.urls.join(", ")))
}

/// Why one pass over the image ended early.
enum Ended {
    Changed,
    /// What another server passed on was no good.
    Misled(ImageError),
    Failed(ImageError),
}

fn stream(context: &Context, request: &ImageRequest, relays: bool) -> Result<Held, Ended> {
    let (to_hash, hash_in) = sync_channel::<Bytes>(CHUNKS);
    let (to_decode, decode_in) = sync_channel::<Bytes>(CHUNKS);
    let (to_write, write_in) = sync_channel(writer::BLOCKS);
    // Fresh memory costs as much as what is written into it.
    let (written, free) = sync_channel(writer::BLOCKS);
    let size = context.device.size();
    let compressed = request.urls.iter().any(|url| {
        let path = url.split(['?', '#']).next().unwrap_or(url);
        path.to_ascii_lowercase().ends_with(".zst")
    });
    thread::scope(|scope| {
        let hash = scope.spawn(|| request.digest.compute(hash_in));
        let decode =
            scope.spawn(move || decode::run(decode_in, &to_write, &free, compressed, size));
        let write = scope.spawn(|| writer::run(context.device, write_in, &written));
        let mut relays = Relays {
            allowed: relays,
            used: false,
        };
        let downloaded = download::run(context, request, &mut relays, &mut |chunk| {
            to_hash.send(chunk.clone()).is_ok() && to_decode.send(chunk).is_ok()
        });
        let bad = |error: ImageError| match error {
            ImageError::Digest { .. }
            | ImageError::Decode(_)
            | ImageError::Format(_)
            | ImageError::TooLarge { .. }
                if relays.used =>
            {
                Ended::Misled(error)
            }
            error => Ended::Failed(error),
        };
        drop((to_hash, to_decode));
        let written = join(write);
        let decoded = join(decode);
        let found = join(hash);
        // The first stage that failed by itself names the cause; the others only saw a closed channel.
        let held = written.map_err(Ended::Failed)?;
        match downloaded {
            Ok(()) => decoded.map_err(|e| bad(e.at(context.device)))?,
            Err(download::Stop::Closed) => {
                return Err(bad(match decoded {
                    Err(error) => error.at(context.device),
                    Ok(()) => ImageError::Cancelled,
                }));
            }
            // Two servers that say different things are no change at the box.
            Err(download::Stop::Changed) if relays.used => {
                return Err(Ended::Misled(ImageError::Changes(request.urls.join(", "))));
            }
            Err(download::Stop::Changed) => return Err(Ended::Changed),
            Err(download::Stop::Failed(error)) => return Err(Ended::Failed(error)),
        }
        request.digest.check(&found).map_err(bad)?;
        Ok(held)
    })
}

/// A stage that panicked is a bug of this program: the panic goes on.
fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests;
