//! Is a server there and well? One HTTPS request with the identity it asks for.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Request;
use kube::{Client, Config, config::AuthInfo};

use crate::{ironic_files::IronicAccess, paths::Paths, pki};

/// A busy box answers late; that is no failure.
const TIME: Duration = Duration::from_secs(20);

/// Asks `client` for `path`; well means 2xx.
pub async fn healthy(client: &Client, path: &str) -> Result<()> {
    let request = Request::get(path)
        .body(Vec::new())
        .context("making a request")?;
    let answer = tokio::time::timeout(TIME, client.request_text(request)).await;
    answer
        .with_context(|| format!("no answer within {} s", TIME.as_secs()))?
        .map(drop)
        .context("asking")
}

/// etcd, with the API server's identity.
pub fn etcd_client(paths: &Paths) -> Result<Client> {
    let file = |name: &str| paths.kube_pki().join(name);
    let identity = AuthInfo {
        client_certificate: Some(file("apiserver-etcd-client.crt").display().to_string()),
        client_key: Some(file("apiserver-etcd-client.key").display().to_string()),
        ..AuthInfo::default()
    };
    let ca = std::fs::read_to_string(file("etcd-ca.crt")).context("reading etcd's CA")?;
    client("https://127.0.0.1:2379", &ca, identity)
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
