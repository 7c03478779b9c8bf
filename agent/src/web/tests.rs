#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use firstlight_api::{
    report::{Directive, PROGRESS_PATH, RELAY_HEADER, REPORT_PATH, Reply},
    signed::{KEY_HEADER, SIGNATURE_HEADER},
    status::SiteStatus,
};
use firstlight_client::key::Key;
use firstlight_netboot::{BootSite, BootTarget, BoxHttp, CaFingerprint, MacAddr};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    boot_files::Loaders,
    doors::Door,
    fleet::{self, Controller, Fleet, Input, View},
    status::{self, StatusOwner, StepName, Update},
};

mod browser;
mod figures;
mod flood;
mod media;
mod monitoring;
mod tpm;
mod update;

/// A server on loopback with a stick of a few files.
struct Fixture {
    address: SocketAddr,
    controller: Controller,
    fleet: Fleet,
    key: Key,
    status: status::StatusSender,
    boot: watch::Sender<Option<BootSite>>,
    image: Vec<u8>,
    stop: CancellationToken,
    door: Door,
    web: Web,
    leased: watch::Sender<Arc<BTreeSet<Ipv4Addr>>>,
    _owner: tokio::task::JoinHandle<anyhow::Result<()>>,
    dir: tempfile::TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn boot_site() -> BootSite {
    BootSite {
        http: BoxHttp::new([172, 22, 0, 1].into(), 80),
        ironic_port: 6385,
        ca: CaFingerprint::new([7; 32]),
        extra_args: vec![],
    }
}

async fn serve() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    for path in [paths.netboot(), paths.images(), paths.site_pki()] {
        fs::create_dir_all(path).unwrap();
    }
    // Not a multiple of the size of one read, and no byte like its neighbour.
    let image: Vec<u8> = (0..1_500_001_u32)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect();
    fs::write(paths.images().join("node.raw.zst"), &image).unwrap();
    fs::write(paths.netboot().join("vmlinuz"), "kernel").unwrap();
    fs::write(paths.netboot().join("shimx64.efi"), "shim").unwrap();
    fs::write(paths.site_ca(), "pem").unwrap();
    fs::write(paths.images().parent().unwrap().join("secret"), "secret").unwrap();
    let (status, reader, owner): (_, _, StatusOwner) = status::channel("0.1.0");
    let (fleet, controller) = fleet::channel();
    let (boot, boot_reader) = watch::channel(None);
    let stop = CancellationToken::new();
    let store = Store::load(&paths.store()).unwrap();
    let (_, store) = watch::channel(Some(store));
    let boot_files = BootFiles {
        site: boot_reader,
        fleet: fleet.clone(),
        paths,
        loaders: Loaders::default(),
    };
    let (leased, held) = watch::channel(Arc::default());
    let known = Known::new(held);
    let web = Web::new(
        reader,
        boot_files,
        known.clone(),
        People::new(dir.path().join("people")),
        Facts {
            store,
            ..Facts::default()
        },
    );
    let door = Door::new(server::SEGMENT, known);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let owner = tokio::spawn(status::own(owner, stop.clone()));
    tokio::spawn(server::accept(
        web.clone(),
        door.clone(),
        listener,
        stop.clone(),
    ));
    Fixture {
        address,
        controller,
        fleet,
        key: Key::new().unwrap(),
        status,
        boot,
        image,
        stop,
        door,
        web,
        leased,
        _owner: owner,
        dir,
    }
}

async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<Incoming> {
    send_from(1, address, request).await
}

/// From 127.0.0.`number`.
async fn send_from(
    number: u8,
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Response<Incoming> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, number], 0).into()).unwrap();
    let stream = socket.connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

async fn body(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

impl Fixture {
    fn signed(&self, path: &str, post: Value) -> Request<Full<Bytes>> {
        self.signed_in(self.fleet.session(), path, post)
    }

    fn signed_in(&self, session: &str, path: &str, mut post: Value) -> Request<Full<Bytes>> {
        post["session"] = json!(session);
        let body = serde_json::to_vec(&post).unwrap();
        let (public, signature) = self.key.sign(path, &body);
        Request::post(path)
            .header("host", "box")
            .header(KEY_HEADER, public)
            .header(SIGNATURE_HEADER, signature)
            .body(Full::from(body))
            .unwrap()
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        let mut request = Request::get(path).header("host", "box");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(self.address, request.body(Full::default()).unwrap()).await
    }

    async fn text(&self, path: &str) -> (StatusCode, String) {
        let response = self.get(path, &[]).await;
        (
            response.status(),
            String::from_utf8(body(response).await.to_vec()).unwrap(),
        )
    }

    async fn post(&self, path: &str, content: impl Into<Bytes>) -> (StatusCode, String) {
        let request = Request::post(path)
            .header("host", "box")
            .body(Full::new(content.into()))
            .unwrap();
        let response = send(self.address, request).await;
        (
            response.status(),
            String::from_utf8(body(response).await.to_vec()).unwrap(),
        )
    }
}

#[tokio::test]
async fn open_pages_of_the_segment_leave_room_for_others_and_for_the_box_itself() {
    let box_ = serve().await;
    let opens = |last: u8| {
        let peer = IpAddr::from([172, 22, 0, last]);
        (0..8)
            .map(|_| {
                super::events::answer(
                    &box_.web,
                    &crate::people::Who::Nobody,
                    peer,
                    super::events::All,
                )
            })
            .collect::<Vec<_>>()
    };
    let count = |answers: &[Response<Body>]| {
        let open = answers.iter().filter(|answer| answer.status() == 200);
        open.count()
    };
    let first = opens(1);
    assert_eq!(
        (count(&first), count(&opens(1))),
        (8, 0),
        "one peer's share"
    );
    let others: Vec<_> = (2..9).map(opens).collect();
    assert!(others.iter().all(|answers| count(answers) == 8));
    // All places are taken.
    assert_eq!(box_.get("/api/v1/events", &[]).await.status(), 200);
    let late = opens(9);
    assert!(count(&late) > 0, "who has many gives way to who has none");
    let ended = async {
        for answer in first.into_iter().chain(others.into_iter().flatten()) {
            let mut body = answer.into_body();
            body.frame().await.unwrap().unwrap();
            if body.frame().await.is_none() {
                return;
            }
        }
        panic!("nobody's stream has ended");
    };
    let minutes = std::time::Duration::from_mins(2);
    tokio::time::timeout(minutes, ended).await.unwrap();
}

#[tokio::test]
async fn the_page_and_the_api_show_the_same_value() {
    let box_ = serve().await;
    box_.status.send(Update::Site("lab".into()));
    box_.status.running(StepName::Network);
    let mut events = box_.get("/api/v1/events", &[]).await;
    let mut text = String::new();
    // The first event may be older than the updates; one with them follows.
    while !text.contains("\"site\":\"lab\"") {
        text = String::from_utf8(
            events
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap()
                .to_vec(),
        )
        .unwrap();
    }
    let status: SiteStatus = serde_json::from_str(text.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(status.site, "lab");
    assert!(status.uptime > 0.0);
    let (_, json) = box_.text("/api/v1/status").await;
    let again: SiteStatus = serde_json::from_str(&json).unwrap();
    assert_eq!(again.bring_up, status.bring_up);
    let response = box_.get("/", &[]).await;
    assert!(
        response.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .starts_with("default-src 'none'")
    );
    let page = String::from_utf8(body(response).await.to_vec()).unwrap();
    assert!(
        page.contains(">lab</a></h1>") && page.contains("Provisioning network"),
        "{page}"
    );
    assert!(
        box_.text("/metrics")
            .await
            .1
            .contains("firstlight_step_state{step=\"network\"} 1\n")
    );
}

#[tokio::test]
async fn ready_answers_with_what_is_missing_until_every_step_is_done() {
    let box_ = serve().await;
    box_.status
        .failed(StepName::Etcd, "etcd is not well", "look");
    let (mut code, mut text) = box_.text("/readyz").await;
    while !text.contains("etcd is not well") {
        (code, text) = box_.text("/readyz").await;
    }
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
    for step in StepName::ALL {
        box_.status.done(step);
    }
    while code != StatusCode::OK {
        (code, text) = box_.text("/readyz").await;
    }
    assert_eq!(text, "ready\n");
}

#[tokio::test]
async fn the_third_server_is_sent_to_the_second_and_who_cannot_relay_never_is() {
    let mut box_ = serve().await;
    let ask = async |number: u8, port: &str| {
        let request = Request::get("/images/node.raw.zst")
            .header("host", "box")
            .header(RELAY_HEADER, port)
            .body(Full::default())
            .unwrap();
        let response = send_from(number, box_.address, request).await;
        let to = response.headers().get("location");
        to.map(|to| to.to_str().unwrap().to_owned())
    };
    let second = "http://127.0.0.2:4002/images/node.raw.zst";
    assert_eq!(ask(1, "4001").await, None);
    assert_eq!(ask(2, "4002").await, None);
    assert_eq!(ask(3, "no port").await, None);
    assert_eq!(ask(3, "4003").await.unwrap(), second);
    let done =
        json!({"bootMac": "52:54:00:00:00:03", "bootId": "x", "phase": {"phase": "configDrive"}});
    let done = box_.signed(PROGRESS_PATH, done);
    let believing = async {
        let Some(Input::Progress { answer, .. }) = box_.controller.inputs.recv().await else {
            panic!("a progress")
        };
        answer.send(true).unwrap();
    };
    let (response, ()) = tokio::join!(send_from(3, box_.address, done), believing);
    assert_eq!(response.status(), 200);
    assert_eq!(ask(4, "4004").await.unwrap(), second);
}

#[tokio::test]
async fn grub_under_secure_boot_finds_the_length_of_a_file() {
    let box_ = serve().await;
    let mut stream = TcpStream::connect(box_.address).await.unwrap();
    let request = b"GET /boot/kernel HTTP/1.1\r\nhost: box\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await.unwrap();
    let head = String::from_utf8_lossy(&answer);
    assert!(head.contains("\r\nContent-Length: "), "{head}");
}

#[tokio::test]
async fn images_come_whole_in_parts_and_as_a_head() {
    let box_ = serve().await;
    let path = "/images/node.raw.zst";
    let whole = box_.get(path, &[]).await;
    assert_eq!(whole.headers()["content-length"], "1500001");
    let etag = whole.headers()["etag"].to_str().unwrap().to_owned();
    assert!(body(whole).await == box_.image);

    let part = box_
        .get(
            path,
            &[("range", "bytes=524287-1048577"), ("if-range", &etag)],
        )
        .await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(
        part.headers()["content-range"],
        "bytes 524287-1048577/1500001"
    );
    assert!(body(part).await == box_.image[524_287..=1_048_577]);

    let changed = box_
        .get(path, &[("range", "bytes=5-6"), ("if-range", "\"other\"")])
        .await;
    assert_eq!(changed.status(), StatusCode::OK);
    let beyond = box_.get(path, &[("range", "bytes=1500001-")]).await;
    assert_eq!(
        (
            beyond.status(),
            beyond.headers()["content-range"].to_str().unwrap()
        ),
        (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */1500001")
    );
    let known = box_.get(path, &[("if-none-match", &etag)]).await;
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);

    let head = Request::head(path)
        .header("host", "box")
        .body(Full::default())
        .unwrap();
    let head = send(box_.address, head).await;
    assert_eq!(head.headers()["content-length"], "1500001");
    assert!(body(head).await.is_empty());
}

#[tokio::test]
async fn nothing_outside_the_stick_can_be_read() {
    let box_ = serve().await;
    for path in [
        "/images/../secret",
        "/images/..%2fsecret",
        "/images/",
        "/images/.",
        "/images/a/b",
        "/secret",
        "/boot/../../secret",
        "/grub/../secret",
    ] {
        assert_eq!(box_.text(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    std::os::unix::fs::symlink("/", box_.dir.path().join("usr/share/firstlight/images/dir"))
        .unwrap();
    assert_eq!(
        box_.text("/images/dir").await.0,
        StatusCode::NOT_FOUND,
        "a directory is no file"
    );
    let request = Request::put("/images/node.raw.zst")
        .header("host", "box")
        .body(Full::default())
        .unwrap();
    assert_eq!(
        send(box_.address, request).await.status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test]
async fn packages_come_from_the_stick_and_from_uploads() {
    let box_ = serve().await;
    let paths = Paths::new(box_.dir.path());
    let file = "pool/kubelet/kubelet_1.36.3-1.1+firstlight1_amd64.deb";
    for folder in [paths.apt_base(), paths.apt()] {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, folder.display().to_string()).unwrap();
    }
    for (suite, folder) in [("base", paths.apt_base()), ("uploads", paths.apt())] {
        // As apt asks for it.
        let path = format!("/apt/{suite}/{}", file.replace('+', "%2b"));
        let found = (StatusCode::OK, folder.display().to_string());
        assert_eq!(box_.text(&path).await, found);
    }
    for path in [
        "/apt/base/../../secret",
        "/apt/base/%2e%2e/secret",
        "/apt/base/pool",
        "/apt/other/x",
    ] {
        assert_eq!(box_.text(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn firmware_finds_its_files_also_with_double_slashes() {
    let box_ = serve().await;
    assert_eq!(
        box_.text("/boot/kernel").await,
        (StatusCode::OK, "kernel".into())
    );
    assert_eq!(
        box_.text("//shimx64.efi").await,
        (StatusCode::OK, "shim".into())
    );
    assert_eq!(
        box_.text("/boot/ca.pem").await,
        (StatusCode::OK, "pem".into())
    );
    assert_eq!(box_.text("/grubx64.efi").await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        box_.text("/grub/x86_64-efi/command.lst").await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn boot_scripts_follow_the_decision_of_the_controller() {
    let box_ = serve().await;
    let script = "/boot/ipxe?mac=52:54:00:00:00:01";
    assert_eq!(
        box_.text(script).await.0,
        StatusCode::SERVICE_UNAVAILABLE,
        "before the PKI exists"
    );
    box_.boot.send_replace(Some(boot_site()));
    let (code, ramdisk) = box_.text(script).await;
    assert!(
        code == StatusCode::OK
            && ramdisk.starts_with("#!ipxe")
            && ramdisk.contains("firstlight.box=http://172.22.0.1"),
        "{ramdisk}"
    );
    assert!(box_.text("/grub/grub.cfg").await.1.contains("mac-"));
    let mac: MacAddr = "52:54:00:00:00:01".parse().unwrap();
    box_.controller.view.send_replace(Arc::new(View {
        targets: [(mac, BootTarget::Disk)].into(),
        ..View::default()
    }));
    assert!(!box_.text(script).await.1.contains("firstlight.box="));
    assert!(
        !box_
            .text("/grub/mac-52:54:00:00:00:01.cfg")
            .await
            .1
            .contains("firstlight.box=")
    );
    for bad in [
        "/boot/ipxe",
        "/boot/ipxe?mac=",
        "/boot/ipxe?mac=01:00:5e:00:00:01",
        "/boot/ipxe?mac=$(reboot)",
    ] {
        assert_eq!(box_.text(bad).await.0, StatusCode::BAD_REQUEST, "{bad}");
    }
}

fn report() -> Value {
    json!({
        "bootMac": "52:54:00:00:00:01", "bootId": "a", "address": "127.0.0.1", "inventory": {},
        "disks": [], "lookup": "notAsked",
    })
}

fn progress() -> Value {
    let phase = json!({"phase": "writing", "bytes": 1, "total": 2});
    json!({"bootMac": "52:54:00:00:00:01", "bootId": "a", "phase": phase})
}

async fn answer_of(box_: &Fixture, request: Request<Full<Bytes>>) -> (StatusCode, String) {
    let response = send(box_.address, request).await;
    let status = response.status();
    let text = String::from_utf8(body(response).await.to_vec()).unwrap();
    (status, text)
}

#[tokio::test]
async fn a_signed_report_of_this_session_is_answered() {
    let mut box_ = serve().await;
    let request = box_.signed(REPORT_PATH, report());
    let (address, key) = (box_.address, box_.key.public());
    let answering = async {
        let Some(Input::Report {
            report,
            from,
            answer,
        }) = box_.controller.inputs.recv().await
        else {
            panic!("a report")
        };
        assert_eq!(report.boot_id, "a");
        assert_eq!((from.peer, from.key), ([127, 0, 0, 1].into(), key));
        answer.send(Directive::BootDisk).unwrap();
    };
    let (response, ()) = tokio::join!(send(address, request), answering);
    let reply: Reply = serde_json::from_slice(&body(response).await).unwrap();
    assert_eq!(reply.directive, Directive::BootDisk);
    assert_eq!(reply.session, box_.fleet.session());
}

#[tokio::test]
async fn what_was_overheard_yesterday_is_nothing_and_is_asked_for_again() {
    let mut box_ = serve().await;
    for (path, post) in [(REPORT_PATH, report()), (PROGRESS_PATH, progress())] {
        for session in ["", "0123456789abcdef"] {
            let (status, text) =
                answer_of(&box_, box_.signed_in(session, path, post.clone())).await;
            let reply: Reply = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (status, reply.directive),
                (StatusCode::OK, Directive::Again)
            );
            assert_eq!(reply.session, box_.fleet.session());
        }
    }
    assert!(box_.controller.inputs.try_recv().is_err(), "nobody is told");
}

#[tokio::test]
async fn what_is_not_signed_by_its_sender_is_refused() {
    let mut box_ = serve().await;
    let session = box_.fleet.session().to_owned();
    let body = |mut post: Value| {
        post["session"] = json!(session);
        serde_json::to_vec(&post).unwrap()
    };
    let plain = String::from_utf8(body(report())).unwrap();
    assert_eq!(
        box_.post(REPORT_PATH, plain).await.0,
        StatusCode::UNAUTHORIZED
    );
    // Signed: another body, another path, by another key.
    let (key, other) = (&box_.key, Key::new().unwrap());
    let stolen = key.sign(REPORT_PATH, &body(progress()));
    let elsewhere = key.sign(PROGRESS_PATH, &body(report()));
    let foreign = (
        key.public().to_string(),
        other.sign(REPORT_PATH, &body(report())).1,
    );
    for (public, signature) in [stolen, elsewhere, foreign] {
        let request = Request::post(REPORT_PATH)
            .header("host", "box")
            .header(KEY_HEADER, public)
            .header(SIGNATURE_HEADER, signature)
            .body(Full::from(body(report())))
            .unwrap();
        assert_eq!(answer_of(&box_, request).await.0, StatusCode::UNAUTHORIZED);
    }
    assert!(box_.controller.inputs.try_recv().is_err(), "nobody is told");
    let counted = box_.text("/metrics").await.1;
    for why in ["post-unsigned", "post-signature"] {
        assert!(counted.contains(&format!("firstlight_refused_total{{why=\"{why}\"}}")));
    }
}

#[tokio::test]
async fn hostile_reports_are_refused() {
    let box_ = serve().await;
    let mut wrong_mac = report();
    wrong_mac["bootMac"] = json!("gg:54:00:00:00:01");
    let mut many_disks = report();
    many_disks["inventory"] = json!({"disks": vec![json!({}); 20_000]});
    let json = |value: Value| serde_json::to_vec(&value).unwrap();
    for (bad, code) in [
        (b"{".to_vec(), StatusCode::BAD_REQUEST),
        (json(wrong_mac), StatusCode::BAD_REQUEST),
        (json(many_disks), StatusCode::BAD_REQUEST),
        (vec![b'['; 90_000], StatusCode::BAD_REQUEST),
        (vec![b' '; 96 * 1024 + 1], StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let (public, signature) = box_.key.sign(REPORT_PATH, &bad);
        let request = Request::post(REPORT_PATH)
            .header("host", "box")
            .header(KEY_HEADER, public)
            .header(SIGNATURE_HEADER, signature)
            .body(Full::from(bad))
            .unwrap();
        assert_eq!(answer_of(&box_, request).await.0, code);
    }
}

#[tokio::test]
async fn progress_that_nobody_believes_is_a_conflict() {
    let mut box_ = serve().await;
    let request = box_.signed(PROGRESS_PATH, progress());
    let address = box_.address;
    let doubting = async {
        let Some(Input::Progress { answer, .. }) = box_.controller.inputs.recv().await else {
            panic!("a progress")
        };
        answer.send(false).unwrap();
    };
    let (response, ()) = tokio::join!(send(address, request), doubting);
    assert_eq!(response.status(), StatusCode::CONFLICT);
}
