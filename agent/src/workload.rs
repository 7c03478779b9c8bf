//! The way to a workload cluster's API: the Secret that Cluster API keeps for people and programs.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// For a connection and for an answer; a cluster may be gone.
const TIME: Duration = Duration::from_secs(5);

/// The kubeconfig of `cluster`, once there is one.
pub async fn kubeconfig(client: &Client, namespace: &str, cluster: &str) -> Result<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let name = format!("{cluster}-kubeconfig");
    let found = secrets.get_opt(&name).await;
    let found = found.with_context(|| format!("reading the Secret {name}"))?;
    let value = found.and_then(|secret| secret.data?.remove("value"));
    value
        .map(|value| String::from_utf8(value.0).context("the kubeconfig is not text"))
        .transpose()
}

pub async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("parsing the kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("the kubeconfig")?;
    config.connect_timeout = Some(TIME);
    config.read_timeout = Some(TIME);
    config.proxy_url = None;
    // "Not now" is an answer, for example of a budget that holds a pod, and its sentence is to be shown at once.
    config.default_retry = false;
    Client::try_from(config).context("making a client")
}
