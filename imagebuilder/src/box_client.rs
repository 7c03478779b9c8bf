//! The way to the box: HTTP/1.1 over one connection, which SSH carries to the box's loopback.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use firstlight_api::bounded;
use firstlight_api::status::SiteStatus;
use firstlight_client::http::Head;

use crate::ssh::BoxArgs;

const HTTP_PORT: u16 = 80;
const UNAVAILABLE: u16 = 503;
const PIECE: usize = 256 * 1024;
const LARGEST_BODY: u64 = 16 << 20;
/// A disk may have to be read again on the box before an upload goes on.
const SILENCE: Duration = Duration::from_mins(15);

/// Not now: the connection ended, and what was sent may have arrived; or the box says that it is not ready.
#[derive(Debug, thiserror::Error)]
#[error("the box cannot go on with it now: {0}")]
pub struct Broken(pub String);

pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn check(&self) -> Result<()> {
        match self.status {
            200..300 => Ok(()),
            UNAVAILABLE => Err(Broken(self.sentence()).into()),
            _ => bail!("the box says: {}", self.sentence()),
        }
    }

    pub fn sentence(&self) -> String {
        bounded::sentence(String::from_utf8_lossy(&self.body).trim())
    }
}

#[derive(Debug)]
enum Route {
    Ssh(BoxArgs),
    Tcp(SocketAddr),
}

pub struct BoxClient {
    route: Route,
    /// What SSH says is shown.
    loud: bool,
    connection: Option<BufReader<Connection>>,
}

enum Connection {
    Ssh {
        child: Child,
        input: ChildStdin,
        output: ChildStdout,
    },
    Tcp(TcpStream),
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Self::Ssh { child, .. } = self {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Ssh { output, .. } => output.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Ssh { input, .. } => input.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Ssh { input, .. } => input.flush(),
            Self::Tcp(stream) => stream.flush(),
        }
    }
}

impl BoxClient {
    pub fn new(the_box: &BoxArgs) -> Result<Self> {
        let host = &the_box.host;
        let route = match host.strip_prefix("http://") {
            Some(address) => Route::Tcp(address.trim_end_matches('/').parse().map_err(|_| {
                crate::UsageError(format!(
                    "--box {host}: an address and a port are wanted, like http://127.0.0.1:8080"
                ))
            })?),
            None => Route::Ssh(the_box.clone()),
        };
        Ok(Self {
            route,
            loud: true,
            connection: None,
        })
    }

    /// For who asks again and again whether the box is there: an error says it all.
    pub fn quiet(self) -> Self {
        Self {
            loud: false,
            ..self
        }
    }

    fn connection(&mut self) -> Result<&mut BufReader<Connection>> {
        if self.connection.is_none() {
            self.connection = Some(BufReader::new(self.route.open(self.loud)?));
        }
        Ok(self.connection.as_mut().expect("just opened"))
    }

    /// What it says of the site.
    pub fn status(&mut self) -> Result<SiteStatus> {
        let answer = self.ask("GET", "/api/v1/status", &[], &[])?;
        answer.check()?;
        serde_json::from_slice(&answer.body)
            .context("the box's answer is no status; is it of another version?")
    }

    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Reply> {
        self.send(method, path, headers, body.len() as u64, body)
    }

    /// After an error the next call opens a new connection.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        length: u64,
        body: impl Read,
    ) -> Result<Reply> {
        let result = self
            .connection()
            .and_then(|connection| exchange(connection, method, path, headers, length, body));
        if !matches!(&result, Ok((_, true))) {
            self.connection = None;
        }
        result.map(|(answer, _)| answer)
    }
}

impl Route {
    fn open(&self, loud: bool) -> Result<Connection> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)
                    .map_err(|error| Broken(format!("{address}: {error}")))?;
                stream.set_read_timeout(Some(SILENCE))?;
                Ok(Connection::Tcp(stream))
            }
            Self::Ssh(the_box) => {
                let mut ssh = the_box.ssh();
                ssh.args(["-o", "ServerAliveInterval=15"]);
                // What SSH has to say goes to the person as it is.
                if !loud {
                    ssh.stderr(Stdio::null());
                }
                let mut child = ssh
                    .args(["-W", &format!("127.0.0.1:{HTTP_PORT}"), "--", &the_box.host])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("running ssh; install openssh-client")?;
                let (input, output) = (child.stdin.take(), child.stdout.take());
                Ok(Connection::Ssh {
                    child,
                    input: input.context("ssh has no input")?,
                    output: output.context("ssh has no output")?,
                })
            }
        }
    }
}

fn broken(error: &io::Error) -> anyhow::Error {
    Broken(error.to_string()).into()
}

/// One request; tells whether the connection is good for another one.
fn exchange(
    connection: &mut BufReader<Connection>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    length: u64,
    mut body: impl Read,
) -> Result<(Reply, bool)> {
    use std::fmt::Write as _;
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    // A refusal comes before a gigabyte is on its way.
    let asks_first = length > PIECE as u64;
    if asks_first {
        head.push_str("Expect: 100-continue\r\n");
    }
    head.push_str("\r\n");
    let output = connection.get_mut();
    output
        .write_all(head.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|error| broken(&error))?;
    if asks_first {
        let first = read_head(connection)?;
        if first.status != 100 {
            return read_body(connection, &first).map(|answer| (answer, false));
        }
    }
    let mut piece = vec![0; PIECE];
    let mut left = length;
    while left > 0 {
        let wanted = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        body.read_exact(&mut piece[..wanted])
            .context("reading the file: did it change?")?;
        if let Err(error) = connection.get_mut().write_all(&piece[..wanted]) {
            // The box may have said why before it stopped listening.
            let head = read_head(connection).map_err(|_| broken(&error))?;
            return read_body(connection, &head).map(|answer| (answer, false));
        }
        left -= wanted as u64;
    }
    connection
        .get_mut()
        .flush()
        .map_err(|error| broken(&error))?;
    let mut head = read_head(connection)?;
    while head.status == 100 {
        head = read_head(connection)?;
    }
    let answer = read_body(connection, &head)?;
    let closes = |word: &str| word.eq_ignore_ascii_case("close");
    Ok((answer, !head.header("connection").is_some_and(closes)))
}

fn read_head(connection: &mut BufReader<Connection>) -> Result<Head> {
    Head::read(connection).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => error.into(),
        _ => broken(&error),
    })
}

/// Our box always says how long its answers are.
fn read_body(connection: &mut BufReader<Connection>, head: &Head) -> Result<Reply> {
    let length = head.header("content-length");
    let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
    let length = LARGEST_BODY.min(length);
    let mut body = Vec::new();
    connection
        .take(length)
        .read_to_end(&mut body)
        .map_err(|error| broken(&error))?;
    if (body.len() as u64) < length {
        return Err(Broken("it was closed in the middle of an answer".to_owned()).into());
    }
    Ok(Reply {
        status: head.status,
        body,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    /// What is made of these bytes on the wire.
    fn asked(bytes: Vec<u8>) -> Result<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut piece).unwrap();
                request.extend(&piece[..length]);
            }
            // The other end may have refused the answer already.
            let _ = stream.write_all(&bytes);
        });
        let the_box = BoxArgs::at(&format!("http://{address}"));
        let answer = BoxClient::new(&the_box).unwrap().ask("GET", "/", &[], &[]);
        server.join().unwrap();
        answer
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The port may be forwarded to anything.
        #[test]
        fn whatever_answers_is_an_answer_of_bounded_length_or_an_error(
            noise in proptest::collection::vec(any::<u8>(), 0..300),
            head in "HTTP/1.1 [0-9]{1,3} [a-z]{0,4}\r\n(content-length: -?[0-9]{0,20}\r\n|connection: close\r\n|[a-zA-Z]{0,4}: .{0,10}\r\n){0,4}(\r\n)?",
            body in proptest::collection::vec(any::<u8>(), 0..40),
            times in 0..1000_usize,
        ) {
            let body = body.repeat(times);
            drop(asked(noise));
            let bytes = [head.as_bytes(), &body].concat();
            if let Ok(answer) = asked(bytes) {
                prop_assert!(answer.status < 1000 && answer.body.len() <= body.len());
                let shown = answer.sentence();
                prop_assert!(shown.chars().count() <= 1000 && !shown.contains(char::is_control), "{shown}");
            }
        }
    }
}
