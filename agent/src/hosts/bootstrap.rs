//! What the bootstrap endpoint answers: bootstrap data for exactly one host, once, to whoever has its token.
//!
//! The data is put together from the Secrets that the object names at the moment it is asked for, and kept nowhere. Only
//! the confirmation ends it: a power cut between the answer and the confirmation loses nothing. Pure, except for reading.

use std::{collections::BTreeMap, sync::Arc};

use firstlight_api::{
    bmh::{BareMetalHost, SecretReference},
    signed::PublicKey,
    site::{SiteConfig, SshKey},
    status::{HardwareSummary, Problem},
};
use firstlight_netboot::MacAddr;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    drive::{DriveSpec, config_drive},
    ledger::Deployment,
    made::NAMESPACE,
    plan::{Plan, Restart},
    store::{HostStore, Secret},
    token::Token,
};
use crate::{fleet::BootstrapData, host_networks, ssh::HostKey};

/// Between two questions of a system that waits.
pub const PAUSE: u32 = 5;

/// The next thing to tell a system that asked with the right token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Wait {
        seconds: u32,
    },
    Reboot,
    Deliver,
    /// It has had its data.
    Used,
}

pub fn next(deployment: &Deployment, plan: Option<&Plan>) -> Next {
    match plan {
        Some(plan) if plan.restart == Some(Restart::Endpoint) => Next::Reboot,
        _ if deployment.delivered => Next::Used,
        Some(plan) if plan.deliver => Next::Deliver,
        _ => Next::Wait { seconds: PAUSE },
    }
}

pub fn fits(deployment: &Deployment, token: &Token, key: Option<PublicKey>) -> bool {
    let signed = key.map(|key| key.to_string());
    deployment.token == Some(token.hash()) && (deployment.key.is_none() || deployment.key == signed)
}

/// The Secrets that an object names, as far as they exist.
#[derive(Clone, Default)]
pub struct Secrets {
    pub user: Option<Secret>,
    pub meta: Option<Secret>,
    pub network: Option<Secret>,
}

/// A request to read what an object names.
pub enum Reading {
    Bootstrap {
        host: Arc<BareMetalHost>,
        answer: oneshot::Sender<Result<Secrets, Problem>>,
    },
    /// Of its BMC.
    Credentials {
        host: Arc<BareMetalHost>,
        answer: oneshot::Sender<Result<Secret, Problem>>,
    },
}

/// Reads Secrets for the controller, which itself waits for nobody.
pub async fn read_secrets<S: HostStore>(
    site: Arc<SiteConfig>,
    store: watch::Receiver<Option<S>>,
    mut readings: mpsc::Receiver<Reading>,
) -> anyhow::Result<()> {
    while let Some(reading) = readings.recv().await {
        let api = store.borrow().clone().ok_or_else(|| {
            unreadable(
                "Kubernetes has not come up yet".to_owned(),
                "nothing: the box tries again",
            )
        });
        // Whoever asked may be gone.
        match reading {
            Reading::Bootstrap { host, answer } => {
                let secrets = async { secrets_of(&api?, &site, &host).await };
                drop(answer.send(secrets.await));
            }
            Reading::Credentials { host, answer } => {
                let credentials = async { credentials_of(&api?, &host).await };
                drop(answer.send(credentials.await));
            }
        }
    }
    Ok(())
}

fn unreadable(what: String, next: &str) -> Problem {
    Problem {
        what,
        next: next.to_owned(),
    }
}

async fn secrets_of<S: HostStore>(
    api: &S,
    site: &SiteConfig,
    host: &BareMetalHost,
) -> Result<Secrets, Problem> {
    let spec = &host.spec;
    let own = &host.metadata.namespace;
    let named = secret(api, own, spec.network_data.as_ref()).await?;
    let network = match named {
        None => site_network(api, site, host).await?,
        named => named,
    };
    Ok(Secrets {
        user: secret(api, own, spec.user_data.as_ref()).await?,
        meta: secret(api, own, spec.meta_data.as_ref()).await?,
        network,
    })
}

/// What site.yaml says of its NICs, with its addresses.
async fn site_network<S: HostStore>(
    api: &S,
    site: &SiteConfig,
    host: &BareMetalHost,
) -> Result<Option<Secret>, Problem> {
    let meta = &host.metadata;
    let status = host.status.as_ref();
    let Some(hardware) = status.and_then(|status| status.hardware.as_ref()) else {
        return Ok(None);
    };
    let Ok(boot) = host.spec.boot_mac_address.parse() else {
        return Ok(None);
    };
    let Some(layout) = site.layout(boot, &HardwareSummary::from(&**hardware)) else {
        return Ok(None);
    };
    host_networks::nics(&layout, boot, hardware)
        .map_err(|what| unreadable(what, "correct `links` in site.yaml, and restart the box"))?;
    let name = host_networks::secret_name(&meta.name);
    let found = api.secret(&meta.namespace, &name).await;
    let found =
        found.map_err(|error| unreadable(format!("{error:#}"), "nothing: the box tries again"))?;
    let is_current = |secret: &Secret| {
        let made = parsed(Some(secret), "networkData").ok().flatten();
        made.is_some_and(|made| host_networks::is_current(site, &layout, boot, hardware, &made))
    };
    let found = found.filter(is_current);
    found.map(Some).ok_or_else(|| {
        unreadable(
            "it has no addresses on its networks yet".to_owned(),
            "nothing, for a minute; then look at what `kubectl get ippools,ipclaims` says of them",
        )
    })
}

async fn credentials_of<S: HostStore>(api: &S, host: &BareMetalHost) -> Result<Secret, Problem> {
    let name = host
        .spec
        .bmc
        .as_ref()
        .map(|bmc| bmc.credentials_name.clone());
    let reference = SecretReference {
        name: name.unwrap_or_default(),
        namespace: String::new(),
    };
    let secret = secret(api, &host.metadata.namespace, Some(&reference)).await?;
    Ok(secret.unwrap_or_default())
}

/// Of the host's `own` namespace: whoever may write a host would read the Secrets of all others.
async fn secret<S: HostStore>(
    api: &S,
    own: &str,
    reference: Option<&SecretReference>,
) -> Result<Option<Secret>, Problem> {
    let Some(reference) = reference.filter(|reference| !reference.name.is_empty()) else {
        return Ok(None);
    };
    let (namespace, name) = (&reference.namespace, &reference.name);
    if !namespace.is_empty() && namespace != own {
        return Err(unreadable(
            format!(
                "the host is in the namespace {own} and its spec names the Secret {namespace}/{name} of another one"
            ),
            &format!("copy the Secret into the namespace {own}, and name that one"),
        ));
    }
    match api.secret(own, name).await {
        Ok(Some(secret)) => Ok(Some(secret)),
        Ok(None) => Err(unreadable(
            format!("there is no Secret {own}/{name}, which the host's spec names"),
            "create it, or correct what the spec names: `userData`, `metaData`, `networkData`, `bmc.credentialsName`",
        )),
        Err(error) => Err(unreadable(
            format!("{error:#}"),
            "nothing: the box tries again",
        )),
    }
}

/// What the host is told of itself.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    pub name: &'a str,
    pub mac: MacAddr,
    pub object: Option<&'a BareMetalHost>,
    /// Of the operator; of the box too, where it has no user of its own.
    pub ssh_keys: &'a [SshKey],
    /// Of the box, for this host.
    pub box_key: Option<&'a SshKey>,
    pub host_key: Option<HostKey>,
}

/// Without user data of its own it gets what every host of the site gets: the operator's login.
pub fn data(subject: &Subject, secrets: &Secrets) -> Result<BootstrapData, Problem> {
    let site = config_drive(&DriveSpec {
        name: subject.name,
        mac: subject.mac,
        ssh_keys: subject.ssh_keys,
        box_key: subject.box_key,
    });
    let mut meta_data = site.meta_data;
    let meta = subject.object.map(|object| &object.metadata);
    meta_data["uuid"] = json!(meta.map_or("", |meta| &meta.uid));
    meta_data["metal3-namespace"] = json!(meta.map_or(NAMESPACE, |meta| &meta.namespace));
    meta_data["metal3-name"] = json!(subject.name);
    meta_data["local_hostname"] = json!(subject.name);
    // For user data that was written when the box had no user of its own.
    meta_data["box_ssh_key"] = json!(subject.box_key.map_or("", SshKey::as_str));
    // NoCloud spells it with a dash, OpenStack with an underscore.
    meta_data["public-keys"] = meta_data["public_keys"].clone();
    if let Some(own) = parsed(secrets.meta.as_ref(), "metaData")? {
        for (key, value) in own.as_object().into_iter().flatten() {
            meta_data[key] = value.clone();
        }
    }
    Ok(BootstrapData {
        user_data: text(secrets.user.as_ref(), "userData")?.unwrap_or(site.user_data),
        meta_data,
        network_data: network_data(secrets)?.unwrap_or(site.network_data),
        host_key: subject.host_key.clone(),
    })
}

/// Network data, where there is any that is not every server's.
pub fn network_data(secrets: &Secrets) -> Result<Option<Value>, Problem> {
    parsed(secrets.network.as_ref(), "networkData")
}

/// The value under the published key, or under `value`.
fn text(secret: Option<&Secret>, key: &str) -> Result<Option<String>, Problem> {
    let Some(secret) = secret else {
        return Ok(None);
    };
    let Some(value) = secret.get(key).or_else(|| secret.get("value")) else {
        return Err(unreadable(
            format!("the Secret for {key} has neither a key `{key}` nor a key `value`"),
            "put the data under one of the two",
        ));
    };
    String::from_utf8(value.clone()).map(Some).map_err(|_| {
        unreadable(
            format!("the Secret for {key} is no text"),
            "put text into it",
        )
    })
}

fn parsed(secret: Option<&Secret>, key: &str) -> Result<Option<Value>, Problem> {
    let Some(text) = text(secret, key)? else {
        return Ok(None);
    };
    let parsed: Result<BTreeMap<String, Value>, _> = serde_saphyr::from_str(&text);
    parsed.map(|map| Some(json!(map))).map_err(|_| {
        unreadable(
            format!("the Secret for {key} holds no YAML mapping"),
            "correct it",
        )
    })
}

#[cfg(test)]
mod tests;
