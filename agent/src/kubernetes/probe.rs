//! Is a server there and well? One HTTPS request with the identity it asks for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::{Client, Config, client::Body, config::AuthInfo};

use crate::{ironic_files::IronicAccess, paths::Paths, pki};

/// A busy box answers late; that is no failure.
const TIME: Duration = Duration::from_secs(20);

/// Asks `client` for `path`; well means 2xx.
pub async fn healthy(client: &Client, path: &str) -> Result<()> {
    let request = Request::get(path)
        .body(Body::empty())
        .context("making a request")?;
    let asked = async {
        let answer = client.send(request).await.context("asking")?;
        let status = answer.status();
        let said = answer
            .into_body()
            .collect_bytes()
            .await
            .context("reading")?;
        ensure!(
            status.is_success(),
            "{status}: {}",
            failures(&String::from_utf8_lossy(&said))
        );
        Ok(())
    };
    tokio::time::timeout(TIME, asked)
        .await
        .with_context(|| format!("no answer within {} s", TIME.as_secs()))?
}

/// Of an answer with a line per check, those that failed; of another one its first line.
fn failures(said: &str) -> String {
    let failed: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .collect();
    if failed.is_empty() {
        said.lines().next().unwrap_or_default().to_owned()
    } else {
        failed.join("; ")
    }
}

pub const ETCD: &str = "https://127.0.0.1:2379";

/// etcd, with the API server's identity.
pub fn etcd_client(paths: &Paths) -> Result<Client> {
    let file = |name: &str| paths.kube_pki().join(name);
    let identity = AuthInfo {
        client_certificate: Some(file("apiserver-etcd-client.crt").display().to_string()),
        client_key: Some(file("apiserver-etcd-client.key").display().to_string()),
        ..AuthInfo::default()
    };
    let ca = std::fs::read_to_string(file("etcd-ca.crt")).context("reading etcd's CA")?;
    client(ETCD, &ca, identity)
}

/// Ironic's root document, which it shows to everybody.
pub fn ironic_client(access: &IronicAccess) -> Result<Client> {
    client(
        &format!("https://{}:6385", access.address),
        &access.ca,
        AuthInfo::default(),
    )
}

/// The registry's root, by the box's address.
pub fn registry_client(access: &IronicAccess) -> Result<Client> {
    client(
        &format!("https://{}:5000", access.address),
        &access.ca,
        AuthInfo::default(),
    )
}

fn client(url: &str, ca: &str, identity: AuthInfo) -> Result<Client> {
    let mut config = Config::new(url.parse().context("a URL")?);
    config.root_cert = Some(vec![pki::der(ca)?]);
    config.auth_info = identity;
    config.connect_timeout = Some(TIME);
    config.proxy_url = None;
    Client::try_from(config).context("making an HTTPS client")
}

#[cfg(test)]
mod tests {
    use super::failures;

    #[test]
    fn only_what_failed_is_told() {
        let readyz =
            "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\nreadyz check failed\n";
        assert_eq!(failures(readyz), "etcd failed: reason withheld");
        assert_eq!(failures("busy\nmore"), "busy");
        assert_eq!(failures(""), "");
    }
}
