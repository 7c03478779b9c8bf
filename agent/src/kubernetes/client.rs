//! The client for the box's API server: every request ends, also when the server takes it and says nothing.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{BoxError, Service, layer::layer_fn};

use crate::paths::Paths;

/// For a whole answer, or the head of a watch's: the API server itself gives up a request after a minute.
const ANSWER: Duration = Duration::from_mins(1);

pub async fn load_client(paths: &Paths) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(paths.agent_kubeconfig())
        .context("reading the agent's kubeconfig")?;
    client(kubeconfig, ANSWER).await
}

async fn client(kubeconfig: Kubeconfig, answer: Duration) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("the agent's kubeconfig")?;
    config.connect_timeout = Some(Duration::from_secs(20));
    config.proxy_url = None;
    let builder = ClientBuilder::try_from(config).context("making a Kubernetes client")?;
    let limit = layer_fn(|inner| Patient { inner, answer });
    Ok(builder.with_layer(&limit).build())
}

/// Gives up what takes longer than `answer`.
struct Patient<S> {
    inner: S,
    answer: Duration,
}

impl<S, B> Service<Request<Body>> for Patient<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: BodyExt<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Either<B, Full<Bytes>>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
        let answer = self.inner.call(request);
        let whole = async move {
            let (head, body) = answer.await.map_err(Into::into)?.into_parts();
            // A watch has no end; kube gives it up when nothing came for some time.
            let body = if is_watch {
                Either::Left(body)
            } else {
                let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
                Either::Right(Full::new(bytes))
            };
            Ok(Response::from_parts(head, body))
        };
        let limited = tokio::time::timeout(self.answer, whole);
        Box::pin(async { limited.await? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::StreamExt;
    use k8s_openapi::api::core::v1::Pod;
    use kube::{
        Api,
        api::{ListParams, WatchParams},
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinHandle,
    };

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    /// Takes one request after the other, says `head`, and keeps the connection open.
    async fn silent_after(head: &'static str) -> (Api<Pod>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serves = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                drop(stream.read(&mut [0; 4096]).await);
                drop(stream.write_all(head.as_bytes()).await);
                open.push(stream);
            }
        });
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
        );
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        (Api::all(client(kubeconfig, SHORT).await.unwrap()), serves)
    }

    async fn is_given_up<T>(request: impl Future<Output = kube::Result<T>>) {
        let long = Duration::from_secs(20);
        let ended = tokio::time::timeout(long, request).await.unwrap();
        let error = format!("{:?}", ended.err().unwrap());
        assert!(error.contains("Elapsed"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_takes_requests_and_says_nothing_is_given_up() {
        let (pods, serves) = silent_after("").await;
        is_given_up(pods.list(&ListParams::default())).await;
        is_given_up(pods.get("a")).await;
        let watch = pods.watch(&WatchParams::default(), "0").await;
        is_given_up(async { watch.map(drop) }).await;
        serves.abort();
    }

    #[tokio::test]
    async fn an_answer_that_stops_in_the_middle_is_given_up() {
        let half =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
        let (pods, serves) = silent_after(half).await;
        is_given_up(pods.list(&ListParams::default())).await;
        serves.abort();
    }

    #[tokio::test]
    async fn a_watch_may_be_silent_for_longer() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        let (pods, serves) = silent_after(head).await;
        let events = pods.watch(&WatchParams::default(), "0").await.unwrap();
        let mut events = std::pin::pin!(events);
        let waited = tokio::time::timeout(SHORT * 5, events.next()).await;
        assert!(waited.is_err(), "{waited:?}");
        serves.abort();
    }
}
