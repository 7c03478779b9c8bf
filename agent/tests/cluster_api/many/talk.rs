//! A request from one server's address: one connection each, as the ramdisk's own client makes them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpSocket,
};
use tokio_rustls::TlsConnector;

const LARGEST: usize = 64 << 20;
/// As long as the ramdisk waits for Ironic, which gives a token once.
const SILENCE: Duration = Duration::from_mins(2);

pub type Tls = Option<Arc<ClientConfig>>;
pub type Connection = SendRequest<Full<Bytes>>;

/// Status and body. `request` names the whole URL.
pub async fn send(
    from: Ipv4Addr,
    tls: &Tls,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), String> {
    let exchange = async {
        let mut connection = connect(from, tls, &request).await?;
        ask(&mut connection, request).await
    };
    tokio::time::timeout(SILENCE, exchange)
        .await
        .unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

pub async fn get(from: Ipv4Addr, tls: &Tls, url: &str) -> Result<Bytes, String> {
    let (status, body) = send(from, tls, Request::get(url).body(Full::default()).unwrap()).await?;
    if status == 200 {
        Ok(body)
    } else {
        Err(format!("{url} answers {status}"))
    }
}

/// To where `request` goes.
pub async fn connect(
    from: Ipv4Addr,
    tls: &Tls,
    request: &Request<Full<Bytes>>,
) -> Result<Connection, String> {
    let uri = request.uri();
    let is_tls = uri.scheme_str() == Some("https");
    let host: Ipv4Addr = uri.host().unwrap_or_default().parse().unwrap();
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let socket = TcpSocket::new_v4().map_err(text)?;
    socket
        .bind(SocketAddr::from((from, 0)))
        .map_err(|error| format!("binding to {from}: {error}"))?;
    let stream = socket
        .connect(SocketAddr::from((host, port)))
        .await
        .map_err(|error| format!("connecting to {host}:{port}: {error}"))?;
    match tls.as_ref().filter(|_| is_tls) {
        None => open(stream).await,
        Some(tls) => {
            let connector = TlsConnector::from(tls.clone());
            let name = ServerName::from(std::net::IpAddr::V4(host));
            open(connector.connect(name, stream).await.map_err(text)?).await
        }
    }
}

async fn open<S>(stream: S) -> Result<Connection, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(connection);
    Ok(sender)
}

pub async fn ask(
    connection: &mut Connection,
    mut request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), String> {
    let authority = request.uri().authority().unwrap().to_string();
    let path = request.uri().path_and_query().unwrap().to_string();
    *request.uri_mut() = path.parse().unwrap();
    let headers = request.headers_mut();
    headers.insert("host", authority.parse().unwrap());
    headers.insert("accept", "application/json".parse().unwrap());
    let answer = connection.send_request(request).await.map_err(text)?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    Ok((status, body.map_err(text)?.to_bytes()))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
