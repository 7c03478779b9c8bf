//! The way to a workload cluster's API: the Secret that Cluster API keeps for people and programs.

pub mod authorities;
pub mod kubeadm;
pub mod load_balancer;

use std::time::Duration;

use anyhow::{Context, Result};
use http::Response;
use http_body_util::Limited;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config,
    api::ListParams,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use tower::util::MapResponseLayer;

/// A cluster is its users': an API server of theirs may answer without end.
const LARGEST_ANSWER: usize = 4 << 20;
/// Objects in one answer: a large cluster fills no memory.
pub const AT_ONCE: u32 = 50;
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
    let bounded = MapResponseLayer::new(|answer: Response<_>| {
        answer.map(|body| Limited::new(body, LARGEST_ANSWER))
    });
    let builder = ClientBuilder::try_from(config).context("making a client")?;
    Ok(builder.with_layer(&bounded).build())
}

/// Page by page, for an answer has an end.
pub async fn each<R>(api: &Api<R>, params: ListParams, mut take: impl FnMut(R)) -> Result<()>
where
    R: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut page = params.limit(AT_ONCE);
    loop {
        let listed = api
            .list(&page)
            .await
            .context("listing a cluster's objects")?;
        listed.items.into_iter().for_each(&mut take);
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::core::v1::Pod;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn an_answer_without_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            drop(stream.read(&mut [0; 4096]).await);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[";
            drop(stream.write_all(head.as_bytes()).await);
            let mut sent = 0;
            while stream.write_all(&[b' '; 8192]).await.is_ok() {
                sent += 8192;
            }
            sent
        });
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
        );
        let pods: Api<Pod> = Api::all(client(&kubeconfig).await.unwrap());
        let error = pods.list(&ListParams::default()).await.unwrap_err();
        assert!(format!("{error:?}").contains("LengthLimit"), "{error:?}");
        // What is under way in the kernel's buffers, and until the connection is closed, comes on top.
        assert!(sent.await.unwrap() < LARGEST_ANSWER + (64 << 20));
    }
}
