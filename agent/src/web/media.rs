//! The virtual CD of a server, for its BMC: put together while it is sent, of what the stick has and a configuration of 4 KiB. Nothing secret
//! is on it, and whoever asks gets it, as by network boot.
//!
//! BMCs ask for it in small parts, again and again: what is not read from the stick is made once and kept.

use std::{
    fs::File,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use firstlight_netboot::{
    MacAddr, Medium, MediumPart,
    boot_files::{GRUB, INITRD, KERNEL, SHIM},
    medium_config,
};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Response, body::Frame};
use sha2::{Digest, Sha256};

use super::{
    Body, Web,
    files::{Opened, opened, part_of},
    refusal,
};
use crate::pieces::pieces;

/// More than any shim or GRUB has.
const LARGEST_LOADER: u64 = 16 << 20;

/// What all servers' CDs have in common, of the stick as it was last.
#[derive(Clone, Debug, Default)]
pub struct Media(Arc<Mutex<Option<Common>>>);

#[derive(Clone, Debug)]
struct Common {
    /// Of the files that it was made of.
    made_of: [String; 4],
    medium: Arc<Medium>,
    head: Bytes,
}

pub async fn answer(
    web: &Web,
    mac: MacAddr,
    headers: &HeaderMap,
    only_head: bool,
) -> Response<Body> {
    match prepared(web, mac).await {
        Ok((disc, etag)) => {
            let length = disc.length();
            let part = |first, count| disc.stream(first, count);
            part_of(headers, only_head, length, etag, part)
        }
        Err(refused) => refused,
    }
}

async fn prepared(web: &Web, mac: MacAddr) -> Result<(Disc, String), Response<Body>> {
    let Some(site) = web.boot_files.site.borrow().clone() else {
        return Err(refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the box is still starting; try again in a few seconds",
        ));
    };
    let folder = web.paths.netboot();
    let file = async |name| opened(&folder.join(name)).await;
    let files = [
        file(SHIM).await?,
        file(GRUB).await?,
        file(KERNEL).await?,
        file(INITRD).await?,
    ];
    let made_of = [0, 1, 2, 3].map(|at: usize| files[at].etag.clone());
    let [shim, grub, kernel, initrd] = files;
    let common = if let Some(common) = web.media.known(&made_of) {
        common
    } else {
        let lengths = (kernel.length, initrd.length);
        web.media.make(made_of, shim, grub, lengths).await?
    };
    let config = medium_config(&site, mac).map_err(impossible)?;
    let mut digest = Sha256::new();
    common.made_of.iter().for_each(|part| digest.update(part));
    digest.update(&config);
    let etag = format!(
        "\"{}\"",
        firstlight_artifacts::hex(&digest.finalize()[..16])
    );
    let disc = Disc {
        common,
        config: config.into(),
        kernel: Arc::new(kernel.file),
        initrd: Arc::new(initrd.file),
    };
    Ok((disc, etag))
}

fn impossible(error: impl std::fmt::Display) -> Response<Body> {
    tracing::warn!(%error, "there is no virtual CD");
    refusal(
        StatusCode::INTERNAL_SERVER_ERROR,
        format_args!("there is no virtual CD: {error}; start the server from the network"),
    )
}

impl Media {
    fn known(&self, made_of: &[String; 4]) -> Option<Common> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .as_ref()
            .filter(|common| common.made_of == *made_of)
            .cloned()
    }

    async fn make(
        &self,
        made_of: [String; 4],
        shim: Opened,
        grub: Opened,
        (kernel, initrd): (u64, u64),
    ) -> Result<Common, Response<Body>> {
        let made = tokio::task::spawn_blocking(move || {
            let medium = Medium::new(&read(&shim)?, &read(&grub)?, kernel, initrd)?;
            let head = Bytes::copy_from_slice(medium.head());
            anyhow::Ok(Common {
                made_of,
                medium: Arc::new(medium),
                head,
            })
        });
        let common = match made.await {
            Ok(made) => made.map_err(impossible)?,
            Err(error) => return Err(impossible(error)),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.insert(common).clone())
    }
}

fn read(of: &Opened) -> anyhow::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    anyhow::ensure!(
        of.length <= LARGEST_LOADER,
        "a boot loader of {} bytes is none of ours",
        of.length
    );
    let mut bytes = vec![0; usize::try_from(of.length)?];
    of.file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// One server's CD.
struct Disc {
    common: Common,
    config: Bytes,
    kernel: Arc<File>,
    initrd: Arc<File>,
}

impl Disc {
    fn length(&self) -> u64 {
        let parts = self.common.medium.parts();
        parts.iter().map(|(_, size)| size).sum()
    }

    fn stream(self, first: u64, count: u64) -> Body {
        let end = first + count;
        let mut at = 0;
        let mut wanted = Vec::new();
        for (part, size) in self.common.medium.parts() {
            let (from, to) = (first.max(at), end.min(at + size));
            if from < to {
                wanted.push((part, from - at, to - from));
            }
            at += size;
        }
        let parts = stream::iter(wanted).flat_map(move |(part, from, count)| {
            let held = match part {
                MediumPart::Kernel => return pieces(Arc::clone(&self.kernel), from, count).boxed(),
                MediumPart::Initrd => return pieces(Arc::clone(&self.initrd), from, count).boxed(),
                MediumPart::Head(range) => self.common.head.slice(range),
                MediumPart::Config => self.config.clone(),
                MediumPart::Zeros(zeros) => vec![0; zeros].into(),
            };
            // Some MiB at most, so these are numbers of bytes in memory.
            let from = usize::try_from(from).expect("held in memory");
            let count = usize::try_from(count).expect("held in memory");
            let piece = Frame::data(held.slice(from..from + count));
            stream::once(async { Ok(piece) }).boxed()
        });
        BodyExt::boxed_unsync(StreamBody::new(parts))
    }
}
