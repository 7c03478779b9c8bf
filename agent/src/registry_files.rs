//! The registry's TLS pair, and where the box's own containerd finds the registry. They live in `/run` for one boot; a changed address
//! makes new ones.

use std::net::Ipv4Addr;

use anyhow::Result;
use firstlight_api::names::{REGISTRY, REGISTRY_PORT};

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
    )?;
    // As a node has it (agent/bootstrap/src/trust.rs): pods of people on the box name the same images.
    let ca = paths.site_ca();
    let hosts = format!(
        "server = \"https://{address}:{REGISTRY_PORT}\"\ncapabilities = [\"pull\", \"resolve\"]\nca = \"{}\"\n",
        ca.display()
    );
    let folder = dir.join("certs.d").join(REGISTRY);
    files::make_dir(&dir.join("certs.d"), 0o750)?;
    files::make_dir(&folder, 0o750)?;
    files::write(&folder.join("hosts.toml"), hosts.as_bytes(), Access::Group)
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
        let hosts = paths
            .run_registry()
            .join("certs.d/registry.firstlight.internal/hosts.toml");
        let hosts = std::fs::read_to_string(hosts).unwrap();
        assert!(
            hosts.starts_with("server = \"https://10.0.0.1:5000\"\n")
                && hosts.contains("pki/ca.crt"),
            "{hosts}"
        );
    }
}
