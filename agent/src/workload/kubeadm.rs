//! What kubeadm keeps in a cluster that it has made.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Deserialize;

const CONFIG: &str = "kubeadm-config";

/// Of Kubernetes; while an upgrade is half done, still that of before. `None`: kubeadm has not made it.
pub async fn version(client: &Client) -> Result<Option<String>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = maps.get_opt(CONFIG).await;
    let map = map.context("reading what kubeadm keeps in the cluster")?;
    let text = map.and_then(|map| map.data?.remove("ClusterConfiguration"));
    text.map(|text| parse_version(&text)).transpose()
}

fn parse_version(text: &str) -> Result<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ClusterConfiguration {
        kubernetes_version: String,
    }
    let read: ClusterConfiguration =
        serde_saphyr::from_str(text).context("reading kubeadm's ClusterConfiguration")?;
    Ok(read.kubernetes_version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_kubeadm_keeps_has_a_version() {
        let text = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\nnetworking: {}\n";
        assert_eq!(parse_version(text).unwrap(), "v1.36.3");
        assert!(parse_version("kind: ClusterConfiguration\n").is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_cluster_keeps_is_read_or_refused(text in "(kubernetesVersion: )?[-a-zA-Z0-9:{}\\[\\], .\n]{0,60}") {
            drop(parse_version(&text));
        }
    }
}
