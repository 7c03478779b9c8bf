//! What an invited server keeps about its box: the CA, where container images come from, the site's clock, and whom to ask
//! for names where nobody else is known. The box answers for no name; but without any server in resolv.conf, `CoreDNS` of
//! the cluster would not start.

use firstlight_api::names::{REGISTRY, REGISTRY_PORT};

use crate::files::NewFile;
use crate::invitation::Invitation;

const CA: &str = "etc/firstlight/box-ca.crt";

/// Files below `/`. Container images are found by the registry's name and by its address, without a name server.
pub fn plan_trust(invitation: &Invitation) -> Vec<NewFile> {
    let host = if invitation.host.contains(':') {
        format!("[{}]", invitation.host)
    } else {
        invitation.host.clone()
    };
    let registry = format!("{host}:{REGISTRY_PORT}");
    let hosts = format!(
        "server = \"https://{registry}\"\ncapabilities = [\"pull\", \"resolve\"]\nca = \"/{CA}\"\n"
    );
    let hosts_of = |name: &str| {
        NewFile::new(
            format!("etc/containerd/certs.d/{name}/hosts.toml"),
            0o644,
            hosts.clone(),
        )
    };
    vec![
        NewFile::new(CA, 0o644, invitation.ca.clone()),
        hosts_of(REGISTRY),
        hosts_of(&registry),
        NewFile::new(
            "etc/chrony/sources.d/firstlight.sources",
            0o644,
            format!("server {} iburst prefer\n", invitation.host),
        ),
        NewFile::new(
            "etc/systemd/resolved.conf.d/firstlight.conf",
            0o644,
            format!("[Resolve]\nFallbackDNS={}\n", invitation.host),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_time_come_from_the_box() {
        let invitation = Invitation {
            url: "https://172.22.0.1:8443/bootstrap/v1/a".to_owned(),
            host: "172.22.0.1".to_owned(),
            token: "t".to_owned(),
            ca: "PEM".to_owned(),
            key: None,
        };
        let hosts = "server = \"https://172.22.0.1:5000\"\ncapabilities = [\"pull\", \"resolve\"]\nca = \"/etc/firstlight/box-ca.crt\"\n";
        assert_eq!(
            plan_trust(&invitation),
            [
                NewFile::new("etc/firstlight/box-ca.crt", 0o644, "PEM"),
                NewFile::new(
                    "etc/containerd/certs.d/registry.firstlight.internal/hosts.toml",
                    0o644,
                    hosts
                ),
                NewFile::new(
                    "etc/containerd/certs.d/172.22.0.1:5000/hosts.toml",
                    0o644,
                    hosts
                ),
                NewFile::new(
                    "etc/chrony/sources.d/firstlight.sources",
                    0o644,
                    "server 172.22.0.1 iburst prefer\n"
                ),
                NewFile::new(
                    "etc/systemd/resolved.conf.d/firstlight.conf",
                    0o644,
                    "[Resolve]\nFallbackDNS=172.22.0.1\n"
                ),
            ]
        );
    }
}
