//! A small blocking HTTP/1.1 client: one connection a request, time limits on every read and write.
//!
//! Its own, because downloads must notice a silent server within seconds, resume at a byte, and check certificates
//! against the box's clock rather than a server's dead CMOS battery. Must not: retry (callers know when it makes sense).

mod body;
mod head;
mod url;

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

pub use body::Body;
pub use head::Head;
pub use url::Url;

const REDIRECTS: u32 = 5;

/// Why there is no reply. A host is as in [`Url::authority`].
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum HttpError {
    #[error("{0} is not an http or https URL with a host")]
    Url(String),
    #[error("connecting to {host}")]
    Connect { host: String, source: io::Error },
    #[error(
        "{0} is an https URL, and there is no CA to trust; give a ramdisk firstlight.ca= or ipa-insecure=1"
    )]
    NoTls(String),
    #[error("talking to {host}")]
    Exchange { host: String, source: io::Error },
    #[error("{0} redirects in a circle")]
    Redirects(String),
}

/// What to send.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Only a GET follows redirects; every other method sends `content-length`.
    pub method: &'static str,
    /// Absolute, `http` or `https`.
    pub url: &'a str,
    /// Beside `host`, `connection`, `user-agent`, `accept` and `content-length`, which are the client's. Control characters of a value
    /// are left out.
    pub headers: Vec<(&'static str, String)>,
    /// Sent as it is; empty: none.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// `GET` without a body or headers of the caller's.
    pub fn get(url: &'a str) -> Self {
        Self {
            method: "GET",
            url,
            headers: Vec::new(),
            body: &[],
        }
    }

    /// `POST` of `application/json`; `body` is JSON already.
    pub fn post_json(url: &'a str, body: &'a [u8]) -> Self {
        Self {
            method: "POST",
            url,
            headers: vec![("content-type", "application/json".to_owned())],
            body,
        }
    }

    /// Adds one header, also when there is one of this name already.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A reply whose body is still on the wire.
#[derive(Debug)]
pub struct Reply {
    /// Of the last reply, after all redirects.
    pub head: Head,
    /// Who answered, if a redirect led to somebody else than was asked.
    pub moved: Option<String>,
    /// Read from the connection as the caller asks for it.
    pub body: Body,
}

impl Reply {
    /// As in [`Head::status`].
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// As [`Head::header`].
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// When it was made by the other end's clock, in seconds since 1970.
    pub fn date(&self) -> Option<u64> {
        let date = httpdate::parse_http_date(self.header("date")?).ok()?;
        Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
    }

    /// The whole body, refused above `limit` bytes.
    pub fn read_body(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.body).take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::other(format!(
                "the body is larger than {limit} bytes"
            )));
        }
        Ok(bytes)
    }
}

/// A plain TCP or TLS connection.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Its limits of time and whom it trusts; it holds no connection. Without TLS configuration `https` fails with [`HttpError::NoTls`].
#[derive(Clone, Debug)]
pub struct Client {
    tls: Option<Arc<ClientConfig>>,
    connect: Duration,
    silence: Duration,
}

impl Client {
    /// `silence`: how long the other end may say nothing, at connecting and at each read.
    pub fn new(tls: Option<Arc<ClientConfig>>, silence: Duration) -> Self {
        Self {
            tls,
            connect: silence.min(Duration::from_secs(10)),
            silence,
        }
    }

    /// The same client with another limit.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self::new(self.tls, silence)
    }

    /// Sends a request; follows redirects of a GET. Any status is a success.
    pub fn send(&self, request: &Request) -> Result<Reply, HttpError> {
        let mut url = Url::parse(request.url)?;
        let asked = url.authority();
        let mut request = request.clone();
        for _ in 0..REDIRECTS {
            let mut reply = self.exchange(&request, &url)?;
            let moves =
                matches!(reply.status(), 301 | 302 | 303 | 307 | 308) && request.method == "GET";
            let Some(location) = reply.header("location").filter(|_| moves) else {
                reply.moved = Some(url.authority()).filter(|host| *host != asked);
                return Ok(reply);
            };
            url = url.join(location)?;
            if url.authority() != asked {
                // It was meant for the one that was asked.
                request.headers.retain(|(name, _)| *name != "authorization");
            }
        }
        Err(HttpError::Redirects(request.url.to_owned()))
    }

    fn exchange(&self, request: &Request, url: &Url) -> Result<Reply, HttpError> {
        let failed = |source| HttpError::Exchange {
            host: url.authority(),
            source,
        };
        let mut wire = self.open(url)?;
        wire.write_all(&head_of(request, url)).map_err(failed)?;
        wire.write_all(request.body).map_err(failed)?;
        wire.flush().map_err(failed)?;
        let mut reader = BufReader::with_capacity(256 << 10, wire);
        let head = Head::read(&mut reader).map_err(failed)?;
        let body = Body::new(reader, request.method, &head).map_err(failed)?;
        Ok(Reply {
            head,
            moved: None,
            body,
        })
    }

    fn open(&self, url: &Url) -> Result<Box<dyn Wire>, HttpError> {
        let failed = |source| HttpError::Connect {
            host: url.authority(),
            source,
        };
        let tcp = self.connect(url).map_err(failed)?;
        tcp.set_read_timeout(Some(self.silence)).map_err(failed)?;
        tcp.set_write_timeout(Some(self.silence)).map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        if !url.tls {
            return Ok(Box::new(tcp));
        }
        let tls = self
            .tls
            .clone()
            .ok_or_else(|| HttpError::NoTls(url.to_string()))?;
        let name =
            ServerName::try_from(url.host.clone()).map_err(|_| HttpError::Url(url.to_string()))?;
        let session = ClientConnection::new(tls, name).map_err(|e| failed(io::Error::other(e)))?;
        Ok(Box::new(StreamOwned::new(session, tcp)))
    }

    fn connect(&self, url: &Url) -> io::Result<TcpStream> {
        let start = Instant::now();
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (url.host.as_str(), url.port).to_socket_addrs()? {
            let left = self.connect.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn head_of(request: &Request, url: &Url) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nuser-agent: firstlight/{}\r\naccept: */*\r\n",
        request.method,
        url.target,
        url.authority(),
        env!("CARGO_PKG_VERSION"),
    );
    for (name, value) in &request.headers {
        // A line break in a value would begin a header of its own.
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if request.method != "GET" {
        let _ = write!(head, "content-length: {}\r\n", request.body.len());
    }
    head.push_str("\r\n");
    head.into_bytes()
}
