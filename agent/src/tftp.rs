//! The TFTP edge: which names there are, and on which address.

use std::{
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, Result};
use tftp_server::{FilePath, Limits, OpenFile, Provider, Server, Source};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    boot_files::{BootFile, BootFiles},
    doors::Known,
    network::{self, Segment},
    status::StatusSender,
};

const PORT: u16 = 69;
struct Names {
    files: BootFiles,
    known: Known,
}

impl Provider for Names {
    fn knows(&self, client: IpAddr) -> bool {
        self.known.has(client)
    }

    fn open(&self, path: &FilePath, client: SocketAddr) -> io::Result<Option<Source>> {
        let (loaders, now) = (&self.files.loaders, Instant::now());
        loaders.asked(client.ip(), path.as_str(), now);
        let path = match self.files.find(path.as_str()) {
            Some(BootFile::Stick(path)) => path,
            Some(BootFile::Script(text)) => {
                return Ok(Some(Source::Bytes(Arc::from(text.into_bytes()))));
            }
            Some(BootFile::NotYet) | None => return Ok(None),
        };
        match File::open(path) {
            Ok(file) => Ok(Some(Source::File(OpenFile::new(file)?))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Serves the box's address on the provisioning network, whichever it is, until `stop`.
pub async fn run(
    files: BootFiles,
    known: Known,
    mut segment: watch::Receiver<Option<Segment>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let names = Arc::new(Names { files, known });
    loop {
        let address = segment
            .borrow_and_update()
            .as_ref()
            .map(|segment| segment.address.address());
        let this = stop.child_token();
        let serving = async {
            let Some(address) = address else {
                return std::future::pending().await;
            };
            let server =
                Server::bind((address, PORT).into(), names.clone(), Limits::default()).await;
            server
                .context("opening UDP port 69")?
                .run(this.clone())
                .await
                .context("serving TFTP")
        };
        let moved = network::moved_from(address, &mut segment);
        tokio::select! {
            result = serving => match result {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let problem = firstlight_api::status::Problem {
                        what: format!("TFTP does not work: {error:#}"),
                        next: "if another TFTP server runs on this machine, stop it; the box tries again".to_owned(),
                    };
                    status.problems("tftp", vec![problem]);
                    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                    status.problems("tftp", vec![]);
                }
            },
            () = stop.cancelled() => return Ok(()),
            alive = moved => if !alive { return Ok(()) },
        }
        this.cancel();
    }
}
