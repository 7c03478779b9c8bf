//! What Ironic's pod needs to start: configuration, password file, TLS pair, and the pod itself.
//!
//! All of it lives in `/run` for one boot. The pod runs as the agent's own user, so directories closed to everybody
//! else are open to it. A restarted agent keeps the password, a changed address makes a new certificate.

use std::{fs, net::Ipv4Addr};

use anyhow::{Context, Result};
use firstlight_artifacts::hex;

use crate::{
    files::{self, Access},
    paths::Paths,
    pki::{CertSpec, Pki},
};

const CONFIG: &str = include_str!("hosts/ironic/ironic.conf");
const POD: &str = include_str!("hosts/ironic/pod.yaml");

/// The one user of Ironic's API.
pub const USER: &str = "firstlight";
/// bcrypt's work factor slows down guessing, which is hopeless for 256 random bits; on an emulated CPU it only costs time.
const COST: u32 = 5;

/// How the agent reaches Ironic.
#[derive(Clone, PartialEq, Eq)]
pub struct IronicAccess {
    pub address: Ipv4Addr,
    pub password: String,
    /// PEM
    pub ca: String,
}

impl std::fmt::Debug for IronicAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IronicAccess")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Writes everything for `address`. The pod comes last: kubelet starts it as soon as it is there.
pub fn write(paths: &Paths, pki: &Pki, address: Ipv4Addr, now: i64) -> Result<IronicAccess> {
    let dir = paths.run_ironic();
    files::make_dir(&dir, 0o750)?;
    files::make_dir(&paths.state().join("ironic"), 0o750)?;
    files::make_dir(&paths.run_manifests(), 0o755)?;
    let password = load_or_make_password(paths)?;
    let hash = bcrypt::hash(&password, COST).context("hashing Ironic's password")?;
    let pair = pki.site.issue(&CertSpec::for_ironic(address), now)?;
    files::write(
        &dir.join("htpasswd"),
        format!("{USER}:{hash}\n").as_bytes(),
        Access::Group,
    )?;
    files::write(&dir.join("tls.key"), pair.key.as_bytes(), Access::Group)?;
    files::write(
        &dir.join("tls.crt"),
        pair.certificate.as_bytes(),
        Access::Group,
    )?;
    files::write(
        &dir.join("ironic.conf"),
        fill(CONFIG, address).as_bytes(),
        Access::Group,
    )?;
    files::write(
        &paths.run_manifests().join("ironic.yaml"),
        fill(POD, address).as_bytes(),
        Access::Group,
    )?;
    Ok(IronicAccess {
        address,
        password,
        ca: pki.site.certificate.clone(),
    })
}

fn load_or_make_password(paths: &Paths) -> Result<String> {
    let path = paths.run_ironic().join("password");
    match fs::read_to_string(&path) {
        Ok(password) if password.len() == 64 => Ok(password),
        _ => {
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).context("drawing random bytes")?;
            let password = hex(&secret);
            files::write(&path, password.as_bytes(), Access::Owner)?;
            Ok(password)
        }
    }
}

fn fill(template: &str, address: Ipv4Addr) -> String {
    template
        .replace("@ADDRESS@", &address.to_string())
        .replace("@UID@", &nix::unistd::getuid().to_string())
        .replace("@GID@", &nix::unistd::getgid().to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn everything_is_written_and_a_restarted_agent_keeps_the_password() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let pki = crate::pki::load_or_make(&paths, 1_795_219_200).unwrap();
        let first = write(&paths, &pki, "172.22.0.1".parse().unwrap(), 1_795_219_200).unwrap();
        let second = write(&paths, &pki, "10.0.0.1".parse().unwrap(), 1_795_219_200).unwrap();
        assert_eq!(first.password, second.password);
        let read = |name: &str| fs::read_to_string(paths.run_ironic().join(name)).unwrap();
        let (user, hash) = read("htpasswd")
            .trim()
            .split_once(':')
            .map(|(user, hash)| (user.to_owned(), hash.to_owned()))
            .unwrap();
        assert_eq!(user, USER);
        assert!(bcrypt::verify(&second.password, &hash).unwrap());
        for text in [
            read("ironic.conf"),
            fs::read_to_string(paths.run_manifests().join("ironic.yaml")).unwrap(),
        ] {
            assert!(text.contains("10.0.0.1") && !text.contains('@'), "{text}");
            assert!(
                !text.contains(&second.password),
                "the password is in no file but its own"
            );
        }
    }
}
