//! A cluster's authorities as the box's Kubernetes has them: Cluster API's own Secrets, and the one with those that come.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use firstlight_api::{
    authorities::{Authority, PrivateKey, certificates, with_data},
    capi::{CLUSTER_LABEL, Cluster, GROUP, VERSION},
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    clock,
    pki::{self, AuthorityName, CertSpec, Pair},
};

/// On the Secret: the `ClusterUpgrade` that it is for, by UID; and once that is done, that it is.
const FOR: &str = "firstlight.internal/for-upgrade";
const DONE: &str = "firstlight.internal/done";
const DAY: i64 = 24 * 3600;
/// As long as Cluster API gives its own.
const CLIENT_DAYS: i64 = 365;

/// Names of Cluster API's Secrets behind the cluster's, and which of ours comes in its place.
pub const ALL: [(&str, AuthorityName); 3] = [
    ("ca", AuthorityName::Kube),
    ("etcd", AuthorityName::Etcd),
    ("proxy", AuthorityName::FrontProxy),
];

/// Those that come.
pub struct Next {
    /// By the names of [`ALL`].
    pub pairs: BTreeMap<&'static str, Pair>,
    pub is_done: bool,
}

impl Next {
    /// Which rotation it is.
    pub fn rotation(&self) -> Result<String> {
        let pair = self.pairs.get("ca").context("no authority comes")?;
        let mut fingerprint = pki::fingerprint(&pair.certificate)?;
        fingerprint.truncate(16);
        Ok(fingerprint)
    }
}

/// Of one cluster.
pub struct Secrets<'a> {
    pub client: &'a Client,
    pub namespace: &'a str,
    pub cluster: &'a str,
}

impl Secrets<'_> {
    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    async fn read(&self, name: &str) -> Result<Option<Secret>> {
        let found = self.api().get_opt(name).await;
        found.with_context(|| format!("reading the Secret {name}"))
    }

    async fn patch(&self, name: &str, patch: &Value) -> Result<()> {
        let patched = self
            .api()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched
            .map(drop)
            .with_context(|| format!("writing the Secret {name}"))
    }

    fn next_name(&self) -> String {
        format!("{}-next-authorities", self.cluster)
    }

    /// Those that nodes have now, by the names of [`ALL`].
    pub async fn current(&self) -> Result<BTreeMap<&'static str, String>> {
        let mut current = BTreeMap::new();
        for (name, _) in ALL {
            let secret = format!("{}-{name}", self.cluster);
            let found = self.read(&secret).await?;
            let text = found.and_then(|found| field(&found, "tls.crt"));
            let text = text.with_context(|| format!("the Secret {secret} has no certificate"))?;
            current.insert(name, text);
        }
        Ok(current)
    }

    /// Those of this upgrade, or what one left half done that has been deleted; `None`: nothing has begun.
    pub async fn begun(&self, upgrade: &str) -> Result<Option<Next>> {
        let name = self.next_name();
        let Some(secret) = self.read(&name).await? else {
            return Ok(None);
        };
        let annotations = secret.metadata.annotations.clone().unwrap_or_default();
        if annotations.get(FOR).is_none_or(|uid| uid != upgrade) {
            if annotations.contains_key(DONE) {
                return Ok(None);
            }
            let ours = json!({"metadata": {"annotations": {FOR: upgrade}}});
            self.patch(&name, &ours).await?;
        }
        let next = read_next(&secret).with_context(|| format!("the Secret {name} is not whole"))?;
        Ok(Some(next))
    }

    pub async fn make(&self, cluster: &Cluster, upgrade: &str) -> Result<Next> {
        let secret = self.next_name();
        let mut data = serde_json::Map::new();
        for (name, authority) in ALL {
            let made = pki::Authority::make(authority, clock::wall_seconds())?;
            data.insert(format!("{name}.crt"), json!(made.certificate));
            data.insert(format!("{name}.key"), json!(made.key_pem()));
        }
        let mut object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": secret, "namespace": self.namespace,
                "labels": {CLUSTER_LABEL: self.cluster},
                "annotations": {FOR: upgrade},
                "ownerReferences": [{
                    "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Cluster",
                    "name": cluster.metadata.name, "uid": cluster.metadata.uid,
                }],
            },
            "stringData": data,
        });
        let made = if self.read(&secret).await?.is_some() {
            // The one before is over.
            object["metadata"]["annotations"][DONE] = Value::Null;
            let (params, patch) = (PatchParams::default(), Patch::Merge(&object));
            self.api().patch(&secret, &params, &patch).await
        } else {
            let object = serde_json::from_value(object).context("the Secret")?;
            self.api().create(&PostParams::default(), &object).await
        };
        let made = made.with_context(|| format!("making the Secret {secret}"))?;
        read_next(&made).with_context(|| format!("the Secret {secret} is not whole"))
    }

    /// Whoever goes by the cluster's kubeconfig here believes these. Whether that is news.
    pub async fn believe(&self, certificates: &str) -> Result<bool> {
        let change = |text: &str| with_data(text, "certificate-authority-data", certificates);
        self.change_kubeconfig(change).await
    }

    /// Machines that come, and whoever goes by the kubeconfig here, have the new ones from now on. Whether that is news.
    pub async fn switch(&self, next: &Next) -> Result<bool> {
        for (name, _) in ALL {
            let pair = next.pairs.get(name).context("an authority is missing")?;
            let secret = format!("{}-{name}", self.cluster);
            let found = self.read(&secret).await?;
            if found.and_then(|found| field(&found, "tls.crt")).as_ref() != Some(&pair.certificate)
            {
                let data =
                    json!({"stringData": {"tls.crt": pair.certificate, "tls.key": pair.key}});
                self.patch(&secret, &data).await?;
            }
        }
        let pair = next.pairs.get("ca").context("an authority is missing")?;
        let authority = pki::Authority::load(AuthorityName::Kube, &pair.certificate, &pair.key)?;
        let now = clock::wall_seconds();
        let client = authority.issue_for(
            &CertSpec::for_administrator(),
            [now - DAY, now + CLIENT_DAYS * DAY],
        )?;
        self.change_kubeconfig(|text| {
            // With the new one alone, the client's certificate is of it already.
            let believes = with_data(text, "certificate-authority-data", &pair.certificate)?;
            if believes == text {
                return Some(believes);
            }
            let with = with_data(&believes, "client-certificate-data", &client.certificate)?;
            with_data(&with, "client-key-data", &client.key)
        })
        .await
    }

    async fn change_kubeconfig(&self, change: impl FnOnce(&str) -> Option<String>) -> Result<bool> {
        let name = format!("{}-kubeconfig", self.cluster);
        let secret = self.read(&name).await?;
        let text = secret.and_then(|secret| field(&secret, "value"));
        let text = text.with_context(|| format!("the Secret {name} has no kubeconfig"))?;
        let changed = change(&text).with_context(|| {
            format!("the Secret {name} has no kubeconfig as Cluster API makes it")
        })?;
        if changed == text {
            return Ok(false);
        }
        let patch = json!({"stringData": {"value": changed}});
        self.patch(&name, &patch).await.map(|()| true)
    }

    /// Keys are where they belong by now.
    pub async fn finish(&self) -> Result<()> {
        let keys: BTreeMap<String, Value> = ALL
            .iter()
            .map(|(name, _)| (format!("{name}.key"), Value::Null))
            .collect();
        let done = json!({"metadata": {"annotations": {DONE: "true"}}, "data": keys});
        self.patch(&self.next_name(), &done).await
    }
}

fn field(secret: &Secret, name: &str) -> Option<String> {
    let ByteString(bytes) = secret.data.as_ref()?.get(name)?;
    String::from_utf8(bytes.clone()).ok()
}

fn read_next(secret: &Secret) -> Option<Next> {
    let is_done = secret
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(DONE));
    let mut pairs = BTreeMap::new();
    for (name, _) in ALL {
        let certificate = field(secret, &format!("{name}.crt"))?;
        let key = field(secret, &format!("{name}.key"));
        let key = if is_done {
            key.unwrap_or_default()
        } else {
            key?
        };
        pairs.insert(name, Pair { certificate, key });
    }
    Some(Next { pairs, is_done })
}

/// What a node gets: the first of them signs.
pub fn authority(first: &str, then: Option<&str>, key: Option<&str>) -> Result<Authority> {
    let mut all = certificates(first).context("this is no certificate")?;
    for one in certificates(then.unwrap_or_default()).context("this is no certificate")? {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Ok(Authority {
        certificates: all.concat(),
        key: key.map(|key| PrivateKey::new(key.to_owned())),
    })
}
