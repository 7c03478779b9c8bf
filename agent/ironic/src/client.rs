//! The connection: TLS by a given CA only, basic authentication, one microversion, one time limit.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

use crate::{ClientError, MICROVERSION, SetupError, error::message_of};

/// Bytes of an answer; the longest is a page of 100 nodes.
const LARGEST_ANSWER: usize = 64 << 20;

/// Requests under way at a time: Ironic answers them one after the other in any case, and each has a connection with its buffers.
const AT_ONCE: usize = 32;
/// Connections that stay open.
const IDLE: usize = 4;

/// Where Ironic is and how to be let in.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Scheme, host and port: `https://172.22.0.1:6385`.
    pub url: String,
    /// The only CAs that are trusted; empty for plain HTTP.
    pub ca_pem: String,
    /// `None`: Ironic asks for none, as the fake does.
    pub credentials: Option<Credentials>,
    /// For one request with its answer. A box under emulation takes seconds for one.
    pub timeout: Duration,
}

/// HTTP basic authentication. `Debug` shows the user only.
#[derive(Clone)]
pub struct Credentials {
    /// Without a colon.
    pub user: String,
    /// As it is, not hashed.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Cheap to clone; clones share their connections, and wait for each other if they ask for much at once.
#[derive(Clone, Debug)]
pub struct Client {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Arc<str>,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    turns: Arc<Semaphore>,
}

impl Client {
    /// Does not connect.
    pub fn new(config: &ClientConfig) -> Result<Self, SetupError> {
        let bad_url = || SetupError::Url {
            url: config.url.clone(),
        };
        let uri: Uri = config.url.parse().map_err(|_| bad_url())?;
        if uri.authority().is_none()
            || uri.path() != "/"
            || !matches!(uri.scheme_str(), Some("http" | "https"))
        {
            return Err(bad_url());
        }
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(config)?)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            http: HttpClient::builder(TokioExecutor::new())
                .pool_max_idle_per_host(IDLE)
                .build(connector),
            base: config.url.trim_end_matches('/').into(),
            authorization: config.credentials.as_ref().map(basic).transpose()?,
            timeout: config.timeout,
            turns: turns(),
        })
    }

    /// Waits for none of the others.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self {
            turns: turns(),
            ..self.clone()
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// For calls whose answer says nothing.
    pub(crate) async fn order<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<(), ClientError> {
        self.send(method, path, body).await.map(drop)
    }

    pub(crate) async fn call<T: DeserializeOwned, B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<T, ClientError> {
        let answer = self.send(method.clone(), path, body).await?;
        serde_json::from_slice(&answer).map_err(|source| ClientError::Malformed {
            method,
            path: path.to_owned(),
            source,
        })
    }

    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<Bytes, ClientError> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|source| ClientError::Malformed {
                method: method.clone(),
                path: path.to_owned(),
                source,
            })?,
            None => Vec::new(),
        };
        let late = |_| ClientError::TimedOut {
            method: method.clone(),
            path: path.to_owned(),
            seconds: self.timeout.as_secs(),
        };
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let exchange = self.exchange(&method, path, body.into());
        tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(late)?
    }

    async fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        let unreachable =
            |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Unreachable {
                method: method.clone(),
                path: path.to_owned(),
                source,
            };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("X-OpenStack-Ironic-API-Version", MICROVERSION)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| unreachable(error.into()))?;
        let answer = self
            .http
            .request(request)
            .await
            .map_err(|error| unreachable(error.into()))?;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), LARGEST_ANSWER)
            .collect()
            .await
            .map_err(unreachable)?
            .to_bytes();
        if status.is_success() {
            return Ok(bytes);
        }
        Err(ClientError::Refused {
            method: method.clone(),
            path: path.to_owned(),
            status,
            message: message_of(&bytes),
        })
    }
}

fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

fn basic(credentials: &Credentials) -> Result<HeaderValue, SetupError> {
    let encoded = BASE64_STANDARD.encode(format!("{}:{}", credentials.user, credentials.password));
    let mut value =
        HeaderValue::from_str(&format!("Basic {encoded}")).map_err(|_| SetupError::Credentials)?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls(config: &ClientConfig) -> Result<rustls::ClientConfig, SetupError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(config.ca_pem.as_bytes()) {
        roots
            .add(certificate.map_err(|_| SetupError::Ca)?)
            .map_err(|_| SetupError::Ca)?;
    }
    if roots.is_empty() && config.url.starts_with("https:") {
        return Err(SetupError::Ca);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    use proptest::prelude::*;

    use super::*;

    fn config(url: &str) -> ClientConfig {
        ClientConfig {
            url: url.into(),
            ca_pem: String::new(),
            credentials: None,
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_client_over_tls_is_refused_without_a_ca_and_an_address_without_a_scheme_always() {
        assert!(matches!(
            Client::new(&config("https://172.22.0.1:6385")),
            Err(SetupError::Ca)
        ));
        for url in [
            "172.22.0.1:6385",
            "ftp://172.22.0.1",
            "http://172.22.0.1/v1",
            "",
        ] {
            assert!(
                matches!(Client::new(&config(url)), Err(SetupError::Url { .. })),
                "{url}"
            );
        }
        assert!(Client::new(&config("http://127.0.0.1:6385/")).is_ok());
    }

    #[test]
    fn a_password_is_not_printed() {
        let credentials = Credentials {
            user: "firstlight".into(),
            password: "hunter2".into(),
        };
        assert!(!format!("{credentials:?} {:?}", basic(&credentials).unwrap()).contains("hunter2"));
    }

    #[tokio::test]
    async fn nobody_listening_is_transient_and_names_the_call() {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let client = Client::new(&config(&format!("http://127.0.0.1:{port}"))).unwrap();
        let error = client.version().await.unwrap_err();
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "Ironic cannot be reached (GET /v1)");
    }

    /// What the client makes of these bytes on the wire.
    fn asked(answer: Vec<u8>) -> Result<crate::Node, ClientError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut piece).unwrap();
                request.extend(&piece[..length]);
            }
            // The client may have refused it already.
            let _ = stream.write_all(&answer);
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let node = runtime.block_on(async {
            let client = Client::new(&config(&url)).unwrap();
            client.node("n1").await
        });
        server.join().unwrap();
        node
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn whatever_ironic_answers_is_a_node_or_an_error_that_names_the_call(
            noise in proptest::collection::vec(any::<u8>(), 0..300),
            status in 200..600_u16,
            body in prop_oneof![
                Just(r#"{"uuid": "u", "provision_state": "active"}"#.to_owned()),
                (".{0,8}", 0..5000_usize).prop_map(|(word, times)| serde_json::json!({"error_message": word.repeat(times)}).to_string()),
                (".{0,8}", 0..5000_usize).prop_map(|(word, times)| word.repeat(times)),
            ],
            is_http in any::<bool>(),
        ) {
            let length = body.len();
            let http = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}");
            let answer = asked(if is_http { http.into_bytes() } else { noise });
            match answer {
                Ok(node) => prop_assert!(is_http && status < 300 && node.uuid == "u"),
                Err(error) => {
                    let sentence = error.to_string();
                    prop_assert!(sentence.contains("GET /v1/nodes/n1"), "{sentence}");
                    prop_assert!(sentence.chars().count() < 2000, "{sentence}");
                }
            }
        }
    }
}
