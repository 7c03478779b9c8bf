//! The registry's TLS pair. It lives in `/run` for one boot; a changed address makes a new one.

use std::net::Ipv4Addr;

use anyhow::Result;

use crate::{
    files::{self, Access},
    paths::Paths,
    pki::{CertSpec, Pki},
};

/// Before the pod, which waits for the files.
pub fn write(paths: &Paths, pki: &Pki, address: Ipv4Addr, now: i64) -> Result<()> {
    let dir = paths.run_registry();
    files::make_dir(&dir, 0o750)?;
    let pair = pki.site.issue(&CertSpec::for_registry(address), now)?;
    files::write(&dir.join("tls.key"), pair.key.as_bytes(), Access::Group)?;
    files::write(
        &dir.join("tls.crt"),
        pair.certificate.as_bytes(),
        Access::Group,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_pair_is_written_again_for_another_address() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let pki = crate::pki::load_or_make(&paths, 1_795_219_200).unwrap();
        let read = || std::fs::read_to_string(paths.run_registry().join("tls.crt")).unwrap();
        write(&paths, &pki, "172.22.0.1".parse().unwrap(), 1_795_219_200).unwrap();
        let first = read();
        write(&paths, &pki, "10.0.0.1".parse().unwrap(), 1_795_219_200).unwrap();
        assert_ne!(read(), first);
    }
}
