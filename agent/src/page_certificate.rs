//! A certificate of somebody else's authority for the page, which people put on the box. It is shown to who asks for one of its names;
//! who asks for an address, or for anything once it has ended, is shown the site's own.

use std::{fmt, fs, io::Read, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use firstlight_api::{bounded, people::CertificateView, status::Problem};
use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::ParsedCertificate,
    sign::CertifiedKey,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::{
    clock,
    files::{self, Access},
    paths::Paths,
    state,
    status::StatusSender,
};

/// Of certificates and key together.
pub const LARGEST: usize = 64 * 1024;
const MOST: usize = 10;
const LOOK: Duration = Duration::from_hours(1);
const DAY: i64 = 24 * 3600;
/// Told so long before its end.
const WARNING: i64 = 30 * DAY;

/// One that was checked.
pub struct OwnCertificate {
    names: Vec<String>,
    /// Seconds since 1970.
    end: i64,
    certified: Arc<CertifiedKey>,
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a certificate of {}", self.names.join(", "))
    }
}

impl OwnCertificate {
    /// PEM: the key, and certificates in the order in which they are shown, the page's first.
    pub fn parse(pem: &[u8]) -> Result<Self> {
        ensure!(
            pem.len() <= LARGEST,
            "this is more than {} KiB",
            LARGEST / 1024
        );
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .context("a certificate cannot be read; wanted is PEM")?;
        ensure!(
            (1..=MOST).contains(&chain.len()),
            "there are {} certificates; wanted are the page's and those between it and its root",
            chain.len()
        );
        let key = PrivateKeyDer::from_pem_slice(pem).ok().context(
            "there is no private key that can be read; wanted is PEM without a passphrase",
        )?;
        let (names, end) = read(&chain[0])?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider)
            .context("the first certificate and the key do not belong together")?;
        Ok(Self {
            names,
            end,
            certified: Arc::new(certified),
        })
    }

    /// If it is for this name and has not ended.
    pub fn for_name(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let name = ServerName::try_from(name).ok()?;
        let leaf = ParsedCertificate::try_from(self.certified.cert.first()?).ok()?;
        let fits = verify_server_name(&leaf, &name).is_ok() && self.end > clock::wall_seconds();
        fits.then(|| self.certified.clone())
    }

    fn view(&self) -> CertificateView {
        CertificateView {
            names: self.names.clone(),
            end: self.end,
        }
    }
}

fn read(certificate: &CertificateDer<'_>) -> Result<(Vec<String>, i64)> {
    let (_, leaf) = X509Certificate::from_der(certificate)
        .ok()
        .context("the first certificate cannot be read")?;
    let names = leaf.subject_alternative_name().ok().flatten();
    let names = names
        .map(|found| found.value.general_names.as_slice())
        .unwrap_or_default();
    let names: Vec<String> = names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(bounded::text(name)),
            _ => None,
        })
        .take(100)
        .collect();
    ensure!(
        !names.is_empty(),
        "the first certificate has no name (subjectAltName), so that no browser takes it; the page's own comes first"
    );
    let end = leaf.validity().not_after.timestamp();
    ensure!(
        end > clock::wall_seconds(),
        "the certificate has ended, or the box's clock is wrong"
    );
    Ok((names, end))
}

/// The one that the page has, if somebody put one there.
#[derive(Clone, Debug)]
pub struct PageCertificate {
    file: PathBuf,
    own: Arc<watch::Sender<Option<Arc<OwnCertificate>>>>,
}

impl PageCertificate {
    pub fn new(paths: &Paths) -> Self {
        Self {
            file: paths.page_certificate(),
            own: Arc::default(),
        }
    }

    pub fn current(&self) -> watch::Receiver<Option<Arc<OwnCertificate>>> {
        self.own.subscribe()
    }

    pub fn view(&self) -> Option<CertificateView> {
        self.own.borrow().as_ref().map(|own| own.view())
    }

    /// From now on it is shown, and after a restart.
    pub fn put(&self, pem: &[u8]) -> Result<CertificateView> {
        let own = OwnCertificate::parse(pem)?;
        files::write(&self.file, pem, Access::Owner)?;
        let view = own.view();
        self.own.send_replace(Some(Arc::new(own)));
        Ok(view)
    }

    /// The site's own is shown again.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context("removing the certificate");
            }
            _ => {}
        }
        self.own.send_replace(None);
        Ok(())
    }

    fn load(&self) -> Result<()> {
        let Ok(file) = fs::File::open(&self.file) else {
            return Ok(());
        };
        let mut pem = Vec::new();
        file.take(LARGEST as u64 + 1).read_to_end(&mut pem)?;
        let own = OwnCertificate::parse(&pem)?;
        self.own.send_replace(Some(Arc::new(own)));
        Ok(())
    }

    fn problem(&self, now: i64) -> Option<Problem> {
        let own = self.own.borrow();
        let left = own.as_ref()?.end - now;
        let next = "put the next one on the box: `firstlight certificate set FILE…`".to_owned();
        let names = own.as_ref()?.names.join(", ");
        let what = match left {
            ..=0 => {
                format!("the page's certificate for {names} has ended: the site's own is shown")
            }
            1..=WARNING => format!(
                "the page's certificate for {names} ends in {} days",
                left / DAY
            ),
            _ => return None,
        };
        Some(Problem { what, next })
    }
}

/// Loads what was put there, and tells of its end.
pub async fn run(
    certificate: PageCertificate,
    paths: Paths,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    if !state::wait_until(|| state::is_usable(&paths), Duration::MAX, &stop).await {
        return Ok(());
    }
    let unusable = certificate.load().err().map(|error| Problem {
        what: format!("the page's certificate is not used: {error:#}"),
        next: "put another one on the box: `firstlight certificate set FILE…`, or `firstlight certificate remove`".to_owned(),
    });
    let mut current = certificate.current();
    loop {
        let problem = certificate.problem(clock::wall_seconds());
        let unusable = unusable
            .clone()
            .filter(|_| certificate.view().is_none() && certificate.file.exists());
        status.problems(
            "page-certificate",
            unusable.into_iter().chain(problem).collect(),
        );
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            changed = current.changed() => if changed.is_err() { return Ok(()) },
            () = stop.cancelled() => return Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "page_certificate/tests.rs"]
mod tests;
