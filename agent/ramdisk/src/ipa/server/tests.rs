use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::time::Instant;

use firstlight_client::tls::trust_anyone;
use proptest::prelude::*;
use rustls::{ClientConnection, StreamOwned};

use super::*;
use crate::ipa::identity::Identity;

const TOKEN: &str = "5ecret";
const BOX: Ipv4Addr = Ipv4Addr::LOCALHOST;
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The server, with somebody who answers all that reaches the agent.
struct Command {
    server: Arc<Mutex<Server>>,
    at: SocketAddr,
    /// Bytes of the bodies that reached the agent.
    bodies: std::sync::mpsc::Receiver<usize>,
}

fn command_api() -> Command {
    let identity = Identity::new(BOX.into()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let at = SocketAddr::from((BOX, listener.local_addr().unwrap().port()));
    let (events, inbox) = std::sync::mpsc::channel();
    let server = Server::start(listener, identity.config, Some(BOX.into()), events).unwrap();
    server.expect(Some(TOKEN));
    let server = Arc::new(Mutex::new(server));
    let (sizes, bodies) = std::sync::mpsc::channel();
    let answering = Arc::downgrade(&server);
    thread::spawn(move || {
        while let Ok(Event::Asked { ask, request }) = inbox.recv() {
            if let Request::Run { body, .. } = &request {
                let _ = sizes.send(body.len());
            }
            if let Some(server) = answering.upgrade() {
                server.lock().unwrap().answer(ask, 200, json!({}));
            }
        }
    });
    Command { server, at, bodies }
}

/// A TCP connection from an address of loopback.
fn connect(from: Ipv4Addr, to: SocketAddr) -> std::net::TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let stream = socket.connect(to).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    })
}

fn is_open(stream: &std::net::TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let heard = stream.peek(&mut [0]);
    heard.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

type Tls = StreamOwned<ClientConnection, std::net::TcpStream>;

fn tls(from: Ipv4Addr, to: SocketAddr) -> Tls {
    let name = rustls::pki_types::ServerName::from(to.ip());
    let session = ClientConnection::new(trust_anyone().unwrap(), name).unwrap();
    let tcp = connect(from, to);
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(session, tcp)
}

/// The status of the answer to a request of this head.
fn ask(stream: &mut Tls, head: &str) -> std::io::Result<u16> {
    stream.write_all(format!("{head}\r\nHost: x\r\n\r\n").as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[9..]).parse().unwrap())
}

#[test]
fn without_the_token_nothing_is_read_of_a_body_and_with_it_all() {
    let api = command_api();
    let head = |token, size| {
        format!(
            "POST /v1/commands/?wait=true&agent_token={token} HTTP/1.1\r\nContent-Length: {size}"
        )
    };
    // The answer comes although not one byte of the body was sent.
    let mut liar = tls(STRANGER, api.at);
    assert_eq!(ask(&mut liar, &head("wrong", 128 << 20)).unwrap(), 401);
    let mut ironic = tls(BOX, api.at);
    let size = 64 << 20;
    ironic
        .write_all(format!("{}\r\nHost: x\r\n\r\n", head(TOKEN, size)).as_bytes())
        .unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        ironic.write_all(&piece).unwrap();
    }
    assert_eq!(api.bodies.recv_timeout(PATIENCE).unwrap(), size);
    // Before the registration, and after Ironic has wiped it, nobody has the token.
    api.server.lock().unwrap().expect(None);
    let mut ironic = tls(BOX, api.at);
    assert_eq!(ask(&mut ironic, &head(TOKEN, size)).unwrap(), 401);
}

#[test]
fn ironic_is_answered_however_many_old_connections_it_keeps() {
    let api = command_api();
    let list = format!("GET /v1/commands/?agent_token={TOKEN} HTTP/1.1");
    let mut kept = Vec::new();
    for number in 0..3 * SHARES.of_peer {
        let mut next = tls(BOX, api.at);
        assert_eq!(ask(&mut next, &list).unwrap(), 200, "connection {number}");
        kept.push(next);
    }
}

#[test]
fn a_flood_of_strangers_takes_two_places_and_ironic_is_answered_meanwhile() {
    let api = command_api();
    let list = format!("GET /v1/commands/?agent_token={TOKEN} HTTP/1.1");
    let mut before = tls(BOX, api.at);
    assert_eq!(ask(&mut before, &list).unwrap(), 200);
    // Connections that never begin a handshake, from some addresses.
    let idle: Vec<_> = (0..64)
        .map(|number| connect(Ipv4Addr::new(127, 0, 1, number % 8 + 1), api.at))
        .collect();
    let began = Instant::now();
    while idle.iter().filter(|stream| is_open(stream)).count() > 2 {
        assert!(began.elapsed() < PATIENCE / 2, "strangers take more places");
    }
    // Bodies that never come, with a token that does not fit.
    let post = "POST /v1/commands/?agent_token=no HTTP/1.1\r\nContent-Length: 134217728";
    for _ in 0..16 {
        // A place that was given to somebody else ends the connection.
        drop(ask(&mut tls(STRANGER, api.at), post));
    }
    let began = Instant::now();
    let mut ironic = tls(BOX, api.at);
    assert_eq!(ask(&mut ironic, &list).unwrap(), 200);
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    drop(idle);
    drop(ironic);
    let began = Instant::now();
    while ask(&mut tls(STRANGER, api.at), "GET /v1/status HTTP/1.1").ok() != Some(200) {
        assert!(began.elapsed() < PATIENCE, "no place is free again");
    }
}

proptest! {
    #[test]
    fn whatever_a_line_asks_it_is_one_of_the_requests(path in ".{0,200}", query in ".{0,300}") {
        let request = read_request(&Method::POST, &path, &query);
        if let Request::Run { token: Some(token), .. } = request {
            prop_assert!(token.len() <= 3 * query.len());
        }
        prop_assert!(unescape(&query).len() <= 3 * query.len());
    }

    #[test]
    fn what_is_escaped_is_read_back(text in "\\PC{0,60}") {
        let escaped = text.bytes().fold(String::new(), |escaped, byte| format!("{escaped}%{byte:02x}"));
        prop_assert_eq!(unescape(&escaped), text);
    }
}

#[test]
fn the_requests_of_ironic_are_read_with_and_without_the_last_slash() {
    let token = Some("a-b_c=".to_owned());
    let list = Request::List {
        token: token.clone(),
    };
    for path in ["/v1/commands/", "/v1/commands"] {
        assert_eq!(
            read_request(&Method::GET, path, "agent_token=a-b_c%3D"),
            list
        );
    }
    assert_eq!(
        read_request(
            &Method::POST,
            "/v1/commands/",
            "wait=true&agent_token=a-b_c%3d"
        ),
        Request::Run {
            token,
            wait: true,
            body: Vec::new()
        }
    );
    assert_eq!(
        read_request(&Method::GET, "/v1/commands/77", ""),
        Request::One {
            token: None,
            id: "77".into()
        }
    );
    assert_eq!(
        read_request(&Method::GET, "/v1/status", ""),
        Request::Status
    );
    assert_eq!(
        read_request(&Method::PUT, "/v1/status", ""),
        Request::Unknown("PUT /v1/status".into())
    );
}

#[test]
fn broken_escapes_stay_as_they_are() {
    assert_eq!(unescape("a%2Fb%zz%4+%"), "a/b%zz%4 %");
}
