#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, net::SocketAddr};

use firstlight_client::{
    http::Client,
    key::Key,
    tls::{BoxClock, trust_only},
};
use firstlight_ramdisk::ipa::account::BoxClient;
use http_body_util::Full;
use hyper::{body::Bytes, client::conn::http1};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    fleet::{self, BootstrapData, Controller, Input},
    paths::Paths,
    pki,
    web::tls::connector,
};

struct Fixture {
    address: SocketAddr,
    connector: TlsConnector,
    controller: Controller,
    door: Door,
    leased: watch::Sender<Arc<BTreeSet<Ipv4Addr>>>,
    /// PEM
    ca: String,
    _dir: tempfile::TempDir,
}

const HOST: &str = "/bootstrap/v1/5f1a57e0-0000-8000-8000-525400c0ffee";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

proptest::proptest! {
    #[test]
    fn a_token_is_what_follows_bearer(value: Vec<u8>, token in "[!-~]{0,300}") {
        let ask = |value: &[u8]| {
            let value = http::HeaderValue::from_bytes(value).ok()?;
            bearer(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        let _ = ask(&value);
        let plausible = (16..=256).contains(&token.len());
        proptest::prop_assert_eq!(ask(format!("Bearer {token}").as_bytes()), plausible.then_some(token));
    }

    #[test]
    fn a_host_is_a_plain_word_below_its_path(path in "(/bootstrap/v1/)?[-./%a-g0-9é]{0,70}", host in "[-0-9a-f]{1,64}") {
        if let Some(host) = host_of(&path) {
            proptest::prop_assert!(!host.is_empty() && host.len() <= 64);
            proptest::prop_assert!(!host.contains(['/', '.', '%']));
        }
        let path = format!("/bootstrap/v1/{host}");
        proptest::prop_assert_eq!(host_of(&path), Some(host.as_str()));
    }

    #[test]
    fn a_receipt_is_small_json_or_refused(body: Vec<u8>, received in "[0-9a-f]{0,80}") {
        let _ = parse_receipt(&body);
        let said = json!({ "received": &received }).to_string();
        let fits = received.len() <= 64;
        proptest::prop_assert_eq!(parse_receipt(said.as_bytes()), fits.then_some(received));
    }
}

async fn serve() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let pki = pki::load_or_make(&Paths::new(dir.path()), 1_795_219_200).unwrap();
    let (fleet, controller) = fleet::channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = acceptor(&pki, &CertSpec::for_bootstrap(Ipv4Addr::LOCALHOST)).unwrap();
    let (leased, held) = watch::channel(Arc::default());
    let door = Door::new(PLACES, Known::new(held));
    let endpoint = Endpoint {
        servers: Servers::new(fleet.clone(), Engines::default()),
        fleet,
        door: door.clone(),
    };
    tokio::spawn(async move { accept(&endpoint, acceptor, listener).await });
    Fixture {
        address,
        connector: connector(&pki),
        controller,
        door,
        leased,
        ca: pki.site.certificate.clone(),
        _dir: dir,
    }
}

impl Fixture {
    /// The answer to one request, with what the controller says if it is asked.
    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: &str,
        says: Answer,
    ) -> (StatusCode, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let stream = self.connector.connect(name, stream).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "box");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let answered = sender.send_request(request);
        tokio::pin!(answered);
        let response = tokio::select! {
            response = &mut answered => response.unwrap(),
            Some(Input::Bootstrap(question)) = self.controller.inputs.recv() => {
                question.refuse(says);
                answered.await.unwrap()
            }
        };
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn get(&mut self, says: Answer) -> (StatusCode, String) {
        self.ask(Method::GET, HOST, Some(TOKEN), "", says).await
    }
}

#[tokio::test]
async fn each_answer_has_its_status_and_its_words() {
    let mut end = serve().await;
    let data = BootstrapData {
        user_data: "#cloud-config".into(),
        meta_data: json!({"name": "n1"}),
        network_data: json!({}),
        host_key: Some(crate::ssh::HostKey {
            private: "half".into(),
            public: "other".into(),
        }),
    };
    let cases = [
        (Answer::Wait { seconds: 5 }, 202, "\"seconds\":5"),
        (Answer::Reboot, 200, "\"action\":\"reboot\""),
        (
            Answer::Bootstrap(Box::new(data)),
            200,
            "{\"action\":\"bootstrap\",\"hostKey\":{\"private\":\"half\",\"public\":\"other\"},\"metaData\":{\"name\":\"n1\"},\"networkData\":{},\"userData\":\"#cloud-config\"}",
        ),
        (Answer::Used, 410, "used"),
        (Answer::Unknown, 404, "no such host"),
        (Answer::WrongToken, 401, "token"),
    ];
    for (says, status, words) in cases {
        let (got, text) = end.get(says).await;
        assert_eq!(got.as_u16(), status, "{text}");
        assert!(text.contains(words), "{text}");
    }
    let receipt = r#"{"received": "ab"}"#;
    let cases = [
        (receipt.to_owned(), Answer::Confirmed, 200),
        (receipt.to_owned(), Answer::Differs, 409),
        ("{".to_owned(), Answer::Confirmed, 400),
        (" ".repeat(LARGEST + 1), Answer::Confirmed, 413),
    ];
    for (body, says, status) in cases {
        let (got, _) = end.ask(Method::POST, HOST, Some(TOKEN), &body, says).await;
        assert_eq!(got.as_u16(), status);
    }
}

#[tokio::test]
async fn without_a_token_nothing_is_asked_and_who_guesses_is_not_listened_to() {
    let mut end = serve().await;
    let (status, _) = end.ask(Method::GET, HOST, None, "", Answer::Reboot).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    for path in ["/", "/bootstrap/v1/", "/bootstrap/v1/../x", "/images/node"] {
        let (status, _) = end
            .ask(Method::GET, path, Some(TOKEN), "", Answer::Reboot)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    for _ in 1..MOST_WRONG {
        assert_eq!(
            end.get(Answer::WrongToken).await.0,
            StatusCode::UNAUTHORIZED
        );
    }
    assert_eq!(
        end.get(Answer::Reboot).await.0,
        StatusCode::TOO_MANY_REQUESTS,
        "not even the right one"
    );
}

#[tokio::test]
async fn handshakes_that_stall_keep_no_server_out_and_leave_nothing() {
    let mut end = serve().await;
    // The fixture asks from here.
    let leased = Arc::new(BTreeSet::from([Ipv4Addr::LOCALHOST]));
    end.leased.send_replace(leased);
    let mut stalled = vec![];
    for number in 11..51 {
        for _ in 0..20 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, number], 0).into()).unwrap();
            stalled.push(socket.connect(end.address).await.unwrap());
        }
    }
    let answered = tokio::time::timeout(TIME / 2, end.get(Answer::Reboot)).await;
    assert_eq!(answered.expect("a place").0, StatusCode::OK);
    assert!(end.door.open() <= PLACES.all - PLACES.kept);
    drop(stalled);
    while end.door.open() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(end.door.known().has(Ipv4Addr::LOCALHOST.into()));
}

#[test]
fn addresses_that_guess_are_counted_up_to_a_bound() {
    let guesses = Guesses::default();
    for number in 0..20_000_u32 {
        guesses.wrong(Ipv4Addr::from(number).into());
    }
    assert_eq!(guesses.0.lock().unwrap().len(), MOST_GUESSERS);
}

/// The ramdisk's own end of it.
fn ramdisk(end: &Fixture) -> BoxClient {
    let ca = CertificateDer::from_pem_slice(end.ca.as_bytes()).unwrap();
    let clock = Arc::new(BoxClock::default());
    clock.set(1_795_219_200);
    BoxClient {
        client: Client::new(Some(trust_only(ca, clock).unwrap()), TIME),
        base: format!("https://{}", end.address),
        key: Key::new().unwrap(),
        boot_mac: "52:54:00:00:00:01".into(),
        boot_id: "b-1".into(),
        session: String::new(),
        sequence: 0,
    }
}

#[tokio::test]
async fn what_a_ramdisk_says_of_its_bmc_comes_whole_and_signed_or_not_at_all() {
    let mut end = serve().await;
    for order in [Some(account::Order::Rest { seconds: 9 }), None] {
        let mut door = ramdisk(&end);
        let key = door.key.public();
        let asked = tokio::task::spawn_blocking(move || {
            let password = account::Password::try_from("s3cret".to_owned()).unwrap();
            let bmc = account::Bmc {
                address: Some(Ipv4Addr::new(10, 0, 0, 9)),
                account: true,
            };
            door.ask(bmc, &account::Outcome::Made { password })
        });
        let Some(Input::Bmc { from, post, answer }) = end.controller.inputs.recv().await else {
            panic!("a post")
        };
        assert_eq!((from.key, from.peer), (key, Ipv4Addr::LOCALHOST.into()));
        let account::Outcome::Made { password } = &post.outcome else {
            panic!("{post:?}")
        };
        assert_eq!(password.reveal(), "s3cret");
        answer.send(order).unwrap();
        match (order, asked.await.unwrap()) {
            (Some(order), told) => assert_eq!(told, Ok(order)),
            (None, told) => assert!(told.unwrap_err().contains("409")),
        }
    }
    for (method, status) in [
        (Method::POST, StatusCode::UNAUTHORIZED),
        (Method::GET, StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let told = end
            .ask(method, account::PATH, None, "{}", Answer::Reboot)
            .await;
        assert_eq!(told.0, status);
    }
    // Whoever answers in the box's place has not its certificate.
    let other = serve().await;
    let mut misled = ramdisk(&other);
    misled.base = format!("https://{}", end.address);
    let asked = move || misled.ask(account::Bmc::default(), &account::Outcome::Ready);
    let refused = tokio::task::spawn_blocking(asked).await.unwrap();
    assert!(refused.unwrap_err().contains("certificate"));
}
