//! What Ironic's pod needs to start: configuration, password file, TLS pair, and the pod itself.
//!
//! All of it lives in `/run` for one boot. The pod runs as a user of its own, so that whoever gets hold of Ironic has neither the
//! agent's files nor its word; the agent is in that user's group. A restarted agent keeps the password, a changed address makes a
//! new certificate.

use std::{fs, net::Ipv4Addr, os::unix::fs::chown};

use anyhow::{Context, Result};
use firstlight_artifacts::hex;

use crate::{
    files::{self, Access, Account},
    paths::Paths,
    pki::{CertSpec, Pki},
};

const CONFIG: &str = include_str!("hosts/ironic/ironic.conf");
const POD: &str = include_str!("hosts/ironic/pod.yaml");

/// As whom Ironic runs (overlays/box/usr/lib/sysusers.d).
const ACCOUNT: &str = "firstlight-ironic";
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

/// Writes everything for `address`.
pub fn write(paths: &Paths, pki: &Pki, address: Ipv4Addr, now: i64) -> Result<IronicAccess> {
    write_for(Account::find(ACCOUNT)?, paths, pki, address, now)
}

/// The pod comes last: kubelet starts it as soon as it is there.
fn write_for(
    account: Account,
    paths: &Paths,
    pki: &Pki,
    address: Ipv4Addr,
    now: i64,
) -> Result<IronicAccess> {
    let dir = paths.run_ironic();
    files::make_dir(&dir, 0o750)?;
    chown(&dir, None, Some(account.gid))
        .with_context(|| format!("giving {} to the group of Ironic", dir.display()))?;
    files::make_dir(&paths.state().join("ironic"), 0o750)?;
    files::make_dir(&paths.run_manifests(), 0o755)?;
    let password = load_or_make_password(paths)?;
    let hash = bcrypt::hash(&password, COST).context("hashing Ironic's password")?;
    let pair = pki.site.issue(&CertSpec::for_ironic(address), now)?;
    let write = |name: &str, content: &str| {
        files::write(
            &dir.join(name),
            content.as_bytes(),
            Access::GroupOf(account.gid),
        )
    };
    write("htpasswd", &format!("{USER}:{hash}\n"))?;
    write("tls.key", &pair.key)?;
    write("tls.crt", &pair.certificate)?;
    write("ironic.conf", &fill(CONFIG, address, account))?;
    files::write(
        &paths.run_manifests().join("ironic.yaml"),
        fill(POD, address, account).as_bytes(),
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

fn fill(template: &str, address: Ipv4Addr, account: Account) -> String {
    template
        .replace("@ADDRESS@", &address.to_string())
        .replace("@UID@", &account.uid.to_string())
        .replace("@GID@", &account.gid.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use nix::unistd::{getgid, getuid};

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

    #[test]
    fn ironic_reads_what_it_needs_as_somebody_else_and_never_the_password() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let pki = crate::pki::load_or_make(&paths, 1_795_219_200).unwrap();
        // Only root may give files to a group that it is not in.
        let is_root = getuid().is_root();
        let gid = if is_root { 902 } else { getgid().as_raw() };
        let account = Account { uid: 902, gid };
        // Twice: the first time everything is made, the second time it is replaced.
        for _ in 0..2 {
            let address = "172.22.0.1".parse().unwrap();
            write_for(account, &paths, &pki, address, 1_795_219_200).unwrap();
        }
        let found = |name: &str| fs::metadata(paths.run_ironic().join(name)).unwrap();
        for name in ["ironic.conf", "htpasswd", "tls.key", "tls.crt"] {
            assert_eq!(found(name).mode() & 0o777, 0o640, "{name}");
            assert_eq!(found(name).gid(), gid, "{name}");
        }
        assert_eq!((found("").mode() & 0o777, found("").gid()), (0o750, gid));
        assert_eq!(found("password").mode() & 0o777, 0o600);
        assert_eq!(found("password").uid(), getuid().as_raw());
        let pod = fs::read_to_string(paths.run_manifests().join("ironic.yaml")).unwrap();
        assert!(pod.contains("runAsUser: 902\n"), "{pod}");
        assert!(pod.contains(&format!("runAsGroup: {gid}\n")), "{pod}");
    }
}
