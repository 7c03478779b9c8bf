//! The box's ramdisk, started by this server's own kernel (kexec), on the box's order over SSH: no power-on self-test on the way back.
//!
//! The order has the digests of what is loaded ([`RamdiskOrder`]), so that it does not matter by which way the bytes come. Where Secure Boot
//! is on, the kernel checks the signature by itself. Nothing is on a disk.
//! Must not: start anything of which one byte is not as it was said.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use firstlight_api::ramdisk_order::{RamdiskOrder, RemoteFile};
use firstlight_client::chain;
use firstlight_client::http::{Client, Request};
use firstlight_kexec::{Files, KexecError, fits};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sha2::{Digest as _, Sha256};

use crate::seed::hex;

/// Of an administrator who wants no other kernel.
const DISABLED: &str = "/proc/sys/kernel/kexec_load_disabled";
/// A box that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);
const PIECE: usize = 64 * 1024;

/// What it does to this server; tests put another one in its place.
pub trait Kernel {
    /// The next start is this one's.
    fn load(&mut self, files: &Files) -> Result<(), KexecError>;
}

/// The kernel of the server that this program runs on.
#[derive(Debug)]
pub struct ThisKernel;

impl Kernel for ThisKernel {
    fn load(&mut self, files: &Files) -> Result<(), KexecError> {
        firstlight_kexec::load(files)
    }
}

/// Everything is in memory afterwards, and nothing is started yet.
pub fn prepare(kernel: &mut impl Kernel, order: &RamdiskOrder) -> Result<()> {
    let disabled = fs::read_to_string(DISABLED).unwrap_or_default();
    ensure!(
        disabled.trim() != "1",
        "its system takes no other kernel: kernel.kexec_load_disabled is 1"
    );
    // Before half of it is here.
    fits(order.bytes())?;
    let client = Client::new(None, SILENCE);
    let files = Files {
        kernel: fetch(&client, &order.kernel)?,
        initrds: vec![fetch(&client, &order.initrd)?],
        options: order.options.clone(),
    };
    Ok(kernel.load(&files)?)
}

fn fetch(client: &Client, file: &RemoteFile) -> Result<File> {
    let RemoteFile { url, sha256, bytes } = file;
    let reply = client.send(&Request::get(url));
    let mut reply = reply.map_err(|error| anyhow::anyhow!("{url}: {}", chain(&error)))?;
    ensure!(
        reply.status() == 200,
        "{url}: the box answers with status {}",
        reply.status()
    );
    let mut out = File::from(memfd_create(c"ramdisk", MFdFlags::MFD_CLOEXEC)?);
    let mut digest = Sha256::new();
    let mut body = (&mut reply.body).take(bytes + 1);
    let (mut piece, mut length) = (vec![0; PIECE], 0);
    loop {
        let read = match body.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.with_context(|| format!("{url} was cut"))?,
        };
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        out.write_all(&piece[..read])
            .context("keeping it in memory")?;
        length += read as u64;
    }
    ensure!(
        length == *bytes,
        "{url} has another length than the box said ({bytes} bytes)"
    );
    ensure!(
        hex(&digest.finalize()) == *sha256,
        "{url} is not what the box said: its SHA-256 is another one"
    );
    out.rewind()?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::BufRead as _;
    use std::net::TcpListener;

    use nix::errno::Errno;

    use super::*;

    /// Serves every request with `answer`, and gives back where.
    fn serve(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut lines = io::BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                // Who has read enough goes.
                drop(stream.write_all(answer));
            }
        });
        format!("http://{address}/boot/initrd")
    }

    fn file(url: &str, content: &[u8]) -> RemoteFile {
        RemoteFile {
            url: url.to_owned(),
            sha256: hex(&Sha256::digest(content)),
            bytes: content.len() as u64,
        }
    }

    struct Takes(Vec<(Vec<u8>, Vec<u8>, String)>, Option<Errno>);

    impl Kernel for Takes {
        fn load(&mut self, files: &Files) -> Result<(), KexecError> {
            let read = |mut file: &File| {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                bytes
            };
            let one = (
                read(&files.kernel),
                read(&files.initrds[0]),
                files.options.clone(),
            );
            self.0.push(one);
            self.1
                .map_or(Ok(()), |error| Err(KexecError::Refused(error)))
        }
    }

    #[test]
    fn what_is_as_the_order_says_is_loaded_and_nothing_else() {
        let whole = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlinux");
        let order = |kernel: RemoteFile| RamdiskOrder {
            kernel,
            initrd: file(&whole, b"linux"),
            options: "quiet".to_owned(),
        };
        let mut kernel = Takes(Vec::new(), None);
        prepare(&mut kernel, &order(file(&whole, b"linux"))).unwrap();
        let loaded = (b"linux".to_vec(), b"linux".to_vec(), "quiet".to_owned());
        assert_eq!(kernel.0, [loaded]);

        let mut kernel = Takes(Vec::new(), None);
        let cut = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlin");
        let endless = serve(b"HTTP/1.1 200 OK\r\n\r\nlinux and more");
        let absent = serve(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        for (from, said, sentence) in [
            (&whole, &b"Linux"[..], "its SHA-256 is another one"),
            (&whole, b"linux and more", "another length"),
            (&whole, b"lin", "another length"),
            (&endless, b"linux", "another length"),
            (&cut, b"linux", "was cut"),
            (&absent, b"linux", "status 404"),
            (&"http://127.0.0.1:9/".to_owned(), b"linux", "connecting"),
        ] {
            let error = prepare(&mut kernel, &order(file(from, said))).unwrap_err();
            assert!(format!("{error:#}").contains(sentence), "{error:#}");
        }
        assert_eq!(kernel.0, []);
        let huge = RemoteFile {
            bytes: 1 << 30,
            ..file(&whole, b"linux")
        };
        let both = RamdiskOrder {
            initrd: RemoteFile {
                bytes: (1 << 30) + 1,
                ..huge.clone()
            },
            ..order(huge)
        };
        let error = prepare(&mut kernel, &both).unwrap_err();
        assert!(
            format!("{error:#}").contains("larger than any"),
            "{error:#}"
        );
    }

    #[test]
    fn a_kernel_that_takes_no_other_says_so() {
        let whole = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlinux");
        let order = RamdiskOrder {
            kernel: file(&whole, b"linux"),
            initrd: file(&whole, b"linux"),
            options: String::new(),
        };
        let error = prepare(&mut Takes(Vec::new(), Some(Errno::ENOSYS)), &order).unwrap_err();
        assert!(
            format!("{error:#}").contains("does not take it"),
            "{error:#}"
        );
    }
}
