//! Kernel and initramfs of the ramdisk, as a running system is told to fetch and start them.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use firstlight_api::ramdisk_order::{RamdiskOrder, RemoteFile};
use firstlight_netboot::{
    BootSite, MacAddr,
    boot_files::{INITRD, KERNEL},
    kernel_command_line,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, watch};

const PIECE: usize = 256 * 1024;

/// Where they are, and what they are once somebody has looked: they do not change while the box runs.
#[derive(Clone, Debug)]
pub struct RamdiskFiles {
    boot: watch::Receiver<Option<BootSite>>,
    dir: PathBuf,
    known: Arc<OnceCell<[Known; 2]>>,
}

#[derive(Clone, Debug)]
struct Known {
    sha256: String,
    bytes: u64,
}

impl RamdiskFiles {
    /// `dir`: with the files of network boot.
    pub fn new(boot: watch::Receiver<Option<BootSite>>, dir: PathBuf) -> Self {
        Self {
            boot,
            dir,
            known: Arc::default(),
        }
    }

    /// As the network boot of this server would start it; an error is a sentence.
    pub async fn order(&self, mac: MacAddr) -> Result<RamdiskOrder, String> {
        let site = self.boot.borrow().clone();
        let site = site.ok_or("the box does not know its own address yet")?;
        let dir = self.dir.clone();
        let look = async || {
            let look = move || Ok([read(&dir.join(KERNEL))?, read(&dir.join(INITRD))?]);
            let looked = tokio::task::spawn_blocking(look).await;
            looked.unwrap_or_else(|error| Err(io::Error::other(error)))
        };
        let known = self.known.get_or_try_init(look).await;
        let [kernel, initrd] = known
            .map_err(|error| format!("the ramdisk on the stick cannot be read: {error}"))?
            .clone();
        let file = |path: &str, Known { sha256, bytes }| RemoteFile {
            url: format!("{}{path}", site.http),
            sha256,
            bytes,
        };
        Ok(RamdiskOrder {
            kernel: file("/boot/kernel", kernel),
            initrd: file("/boot/initrd", initrd),
            options: kernel_command_line(&site, mac),
        })
    }
}

fn read(path: &Path) -> io::Result<Known> {
    let mut file = File::open(path)?;
    let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            let sha256 = firstlight_artifacts::hex(&digest.finalize());
            return Ok(Known { sha256, bytes });
        }
        digest.update(&piece[..read]);
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_netboot::{BoxHttp, CaFingerprint};

    use super::*;

    #[tokio::test]
    async fn a_system_is_told_what_network_boot_would_start() {
        let dir = tempfile::tempdir().unwrap();
        let (boot, site) = watch::channel(None);
        let files = RamdiskFiles::new(site, dir.path().to_owned());
        let mac = "52:54:00:00:00:01".parse().unwrap();
        let error = files.order(mac).await.unwrap_err();
        assert!(error.contains("address"), "{error}");
        let site = BootSite {
            http: BoxHttp::new([172, 22, 0, 1].into(), 80),
            ironic_port: 6385,
            ca: CaFingerprint::new([7; 32]),
            extra_args: vec![],
        };
        boot.send_replace(Some(site.clone()));
        std::fs::write(dir.path().join(KERNEL), "linux").unwrap();
        let error = files.order(mac).await.unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
        std::fs::write(dir.path().join(INITRD), "").unwrap();
        std::fs::write(dir.path().join(INITRD), "initramfs").unwrap();
        let order = files.order(mac).await.unwrap();
        assert_eq!(order.options, kernel_command_line(&site, mac));
        assert_eq!(order.kernel.url, "http://172.22.0.1/boot/kernel");
        assert_eq!(
            (order.kernel.bytes, order.initrd.bytes, order.bytes()),
            (5, 9, 14)
        );
        // The side that runs as root takes it.
        let sent = serde_json::to_vec(&order).unwrap();
        assert_eq!(RamdiskOrder::parse(&sent).unwrap(), order);
        // `echo -n linux | sha256sum`
        let digest = firstlight_artifacts::hex(&Sha256::digest(b"linux"));
        assert_eq!(order.kernel.sha256, digest);
    }
}
