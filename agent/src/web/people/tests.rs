#![allow(clippy::unwrap_used)]
use std::{net::Ipv4Addr, sync::Arc};

use firstlight_api::people::{AuditLine, NewOperator, NewToken, Operator};
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    boot_files::{BootFiles, Loaders},
    doors::{Door, Known},
    fleet,
    paths::Paths,
    people::People,
    pki::{self, Pki},
    store::Store,
    web::{secure, server, tls},
};

const PASSWORD: &str = "four plain words here";
const NOW: i64 = 1_795_219_200;

/// The page over TLS, on loopback; nobody there is taken for the box.
struct Fixture {
    people: People,
    pki: Pki,
    port: u16,
    stop: CancellationToken,
    dir: tempfile::TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Told {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Told {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).unwrap().to_str().unwrap()
    }

    /// As a browser sends it back.
    fn cookie(&self) -> String {
        let set = self.header(header::SET_COOKIE);
        for rule in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(set.contains(rule), "{set}");
        }
        set.split(';').next().unwrap().to_owned()
    }
}

async fn serve() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    let pki = pki::load_or_make(&paths, NOW).unwrap();
    let people = People::new(paths.people());
    people
        .open(&firstlight_api::site::SiteConfig::default())
        .await
        .unwrap();
    let (_, reader, _) = crate::status::channel("0.1.0");
    let store = Store::load(&paths.store()).unwrap();
    let boot_files = BootFiles {
        site: watch::channel(None).1,
        fleet: fleet::channel().0,
        paths,
        loaders: Loaders::default(),
    };
    let known = Known::new(watch::channel(Arc::default()).1);
    let facts = crate::web::Facts {
        store: watch::channel(Some(store)).1,
        ..crate::web::Facts::default()
    };
    let web = Web::new(reader, boot_files, known.clone(), people.clone(), facts);
    let acceptor = secure::certified(&pki, Ipv4Addr::LOCALHOST, web.certificate.current()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let page = secure::Secure::new(web.over_tls(), acceptor);
    let door = Door::new(server::SEGMENT, known);
    tokio::spawn(server::accept(page, door, listener, stop.clone()));
    Fixture {
        people,
        pki,
        port,
        stop,
        dir,
    }
}

impl Fixture {
    fn origin(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Told {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
            .await
            .unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = tls::connector(&self.pki)
            .connect(name, stream)
            .await
            .unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("127.0.0.1:{}", self.port));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(bytes::Bytes::from(body.to_owned())))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        // A stream has no end.
        let body = if path == "/api/v1/events" {
            String::new()
        } else {
            let body = body.collect().await.unwrap().to_bytes();
            String::from_utf8(body.to_vec()).unwrap()
        };
        Told {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    /// As a form of the box's own page.
    async fn submit(&self, path: &str, cookie: &str, form: &str) -> Told {
        let origin = self.origin();
        let mut headers = vec![
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", &origin),
        ];
        if !cookie.is_empty() {
            headers.push(("cookie", cookie));
        }
        self.ask("POST", path, &headers, form).await
    }

    async fn add(&self, name: &str, role: Role) {
        let new = NewOperator {
            name: PersonName::parse(name).unwrap(),
            role,
            password: PASSWORD.to_owned(),
        };
        let peer = Ipv4Addr::LOCALHOST.into();
        self.people.add(&Who::OnBox, peer, new).await.unwrap();
    }

    async fn token(&self, role: Role) -> String {
        let new = NewToken {
            name: PersonName::parse(role.as_str()).unwrap(),
            role,
            days: 1,
        };
        let peer = Ipv4Addr::LOCALHOST.into();
        self.people
            .make_token(&Who::OnBox, peer, new)
            .await
            .unwrap()
            .token
    }
}

/// Each route and verb, and the least role that is let in; `None`: everybody is.
pub const ROUTES: [(&str, &str, Option<Role>); 71] = {
    use Role::{Admin, Operator, Viewer};
    [
        ("GET", "/", Some(Viewer)),
        ("HEAD", "/", Some(Viewer)),
        ("GET", "/hosts", Some(Viewer)),
        ("GET", "/hosts/n1", Some(Viewer)),
        ("GET", "/clusters", Some(Viewer)),
        ("GET", "/software", Some(Viewer)),
        ("GET", "/store", Some(Viewer)),
        ("GET", "/box", Some(Viewer)),
        ("GET", "/changes?of=/box", Some(Viewer)),
        ("GET", "/page/nothing.css", None),
        ("GET", "/logs", Some(Viewer)),
        ("GET", "/api/v1/logs", Some(Viewer)),
        ("GET", "/api/v1/logs/starts", Some(Viewer)),
        ("POST", "/monitoring/metrics/api/v1/query", Some(Viewer)),
        ("GET", "/monitoring/logs/select/vmui/", Some(Viewer)),
        ("GET", "/metrics", Some(Viewer)),
        ("GET", "/readyz", None),
        ("GET", "/login", None),
        ("GET", "/first", None),
        ("GET", "/people", Some(Admin)),
        ("GET", "/update", Some(Admin)),
        ("GET", "/kubernetes/api/v1/pods", Some(Viewer)),
        ("POST", "/kubernetes/api/v1/pods", Some(Viewer)),
        ("GET", "/boot/kernel", None),
        ("GET", "/boot/ca.pem", None),
        ("GET", "/boot/ipxe?mac=52:54:00:12:34:56", None),
        ("GET", "/grub/grub.cfg", None),
        ("GET", "/images/node.raw.zst", None),
        ("GET", "/apt/base/Release", None),
        ("POST", "/api/v1/ramdisk/report", None),
        ("POST", "/api/v1/ramdisk/progress", None),
        ("POST", "/api/v1/login", None),
        ("POST", "/api/v1/logout", None),
        ("POST", "/api/v1/first", None),
        ("GET", "/api/v1/me", Some(Viewer)),
        ("POST", "/api/v1/password", Some(Viewer)),
        ("GET", "/api/v1/status", Some(Viewer)),
        ("GET", "/api/v1/events", Some(Viewer)),
        ("GET", "/api/v1/edge", Some(Viewer)),
        ("GET", "/api/v1/openapi.json", None),
        ("POST", "/api/v1/status", Some(Admin)),
        ("GET", "/api/v1/artifacts", Some(Viewer)),
        ("GET", "/api/v1/artifacts/a/content", Some(Viewer)),
        ("POST", "/api/v1/artifacts", Some(Operator)),
        ("PATCH", "/api/v1/artifacts/a", Some(Operator)),
        ("DELETE", "/api/v1/artifacts/a", Some(Operator)),
        ("GET", "/api/v1/update", Some(Admin)),
        ("GET", "/api/v1/receipt", Some(Admin)),
        ("GET", "/api/v1/certificate", Some(Admin)),
        ("PUT", "/api/v1/certificate", Some(Admin)),
        ("DELETE", "/api/v1/certificate", Some(Admin)),
        ("POST", "/api/v1/update/plan", Some(Admin)),
        ("POST", "/api/v1/update/layers", Some(Admin)),
        ("POST", "/api/v1/update/start", Some(Admin)),
        ("POST", "/api/v1/update/image", Some(Admin)),
        ("POST", "/api/v1/update/seal", Some(Admin)),
        ("POST", "/api/v1/update/backup", Some(Admin)),
        ("POST", "/api/v1/hosts/n1/retry", Some(Operator)),
        ("POST", "/api/v1/hosts/n1/power-off", Some(Operator)),
        ("POST", "/api/v1/hosts/n1/forget", Some(Operator)),
        ("GET", "/api/v1/operators", Some(Admin)),
        ("POST", "/api/v1/operators", Some(Admin)),
        ("PATCH", "/api/v1/operators/ada", Some(Admin)),
        ("DELETE", "/api/v1/operators/nobody", Some(Admin)),
        ("POST", "/api/v1/operators/nobody/remove", Some(Admin)),
        ("GET", "/api/v1/tokens", Some(Admin)),
        ("POST", "/api/v1/tokens", Some(Admin)),
        ("DELETE", "/api/v1/tokens/nobody", Some(Admin)),
        ("POST", "/api/v1/tokens/nobody/remove", Some(Admin)),
        ("GET", "/api/v1/audit", Some(Admin)),
        ("GET", "/api/v1/no-such-thing", Some(Admin)),
    ]
};

#[tokio::test]
async fn each_route_lets_in_who_may_and_nobody_else() {
    let site = serve().await;
    site.add("ada", Role::Admin).await;
    let mut callers = vec![(None, String::new())];
    for role in Role::ALL {
        let token = site.token(role).await;
        callers.push((Some(role), format!("Bearer {token}")));
    }
    for (method, path, least) in ROUTES {
        for (role, bearer) in &callers {
            let mut headers = vec![];
            if role.is_some() {
                headers.push(("authorization", bearer.as_str()));
            }
            let told = site.ask(method, path, &headers, "").await;
            let expected = match (least, role) {
                (Some(_), None) => Some(StatusCode::UNAUTHORIZED),
                (Some(least), Some(role)) if *role < least => Some(StatusCode::FORBIDDEN),
                _ => None,
            };
            let asked = format!("{method} {path} as {role:?}: {} {}", told.status, told.body);
            match expected {
                Some(status) => assert_eq!(told.status, status, "{asked}"),
                // Not signed: that is for servers, and no login helps.
                None if path.contains("/ramdisk/") => assert_eq!(told.status, 401, "{asked}"),
                None => assert!(!matches!(told.status.as_u16(), 401 | 403), "{asked}"),
            }
        }
    }
    let unknown = [("authorization", "Bearer firstlight_nobody")];
    let told = site.ask("GET", "/api/v1/status", &unknown, "").await;
    assert_eq!(told.status, 401);
    assert!(told.header(header::WWW_AUTHENTICATE).starts_with("Bearer"));
}

#[tokio::test]
async fn the_first_operator_is_made_by_the_code_and_then_everybody_logs_in() {
    let site = serve().await;
    // Nobody is there yet: everybody reads, and nobody changes anything.
    assert_eq!(site.ask("GET", "/api/v1/status", &[], "").await.status, 200);
    // But logs and metrics, which say more of the box, are nobody's.
    for path in [
        "/logs",
        "/api/v1/logs",
        "/api/v1/logs/starts",
        "/monitoring/metrics/vmui/",
    ] {
        assert_eq!(site.ask("GET", path, &[], "").await.status, 401, "{path}");
    }
    let page = site.ask("GET", "/", &[], "").await;
    assert!(
        page.status == 200 && page.body.contains("/first"),
        "{}",
        page.body
    );
    assert_eq!(
        site.ask("POST", "/api/v1/hosts/n1/retry", &[], "")
            .await
            .status,
        401
    );
    assert_eq!(site.ask("GET", "/people", &[], "").await.status, 401);
    assert_eq!(
        site.ask("GET", "/login", &[], "")
            .await
            .header(header::LOCATION),
        "/first"
    );

    let form = |code: &str| format!("code={code}&name=ada&password=four+plain+words+here");
    let wrong = site.submit("/api/v1/first", "", &form("AAAAA-22222")).await;
    assert!(
        wrong.status == 422 && wrong.body.contains("not the code"),
        "{}",
        wrong.body
    );
    let code = site.people.code().borrow().clone().unwrap();
    let told = site.submit("/api/v1/first", "", &form(&code)).await;
    assert_eq!(
        (told.status.as_u16(), told.header(header::LOCATION)),
        (303, "/")
    );
    let cookie = told.cookie();

    let me = site
        .ask("GET", "/api/v1/me", &[("cookie", &cookie)], "")
        .await;
    assert_eq!(
        serde_json::from_str::<Value>(&me.body).unwrap(),
        json!({"name": "ada", "role": "admin"})
    );
    let asked = site.ask("GET", "/", &[], "").await;
    assert!(asked.status == 401 && asked.body.contains("action=\"/api/v1/login\""));
    assert_eq!(
        site.ask("GET", "/first", &[], "")
            .await
            .header(header::LOCATION),
        "/login"
    );
    let page = site.ask("GET", "/", &[("cookie", &cookie)], "").await;
    assert!(page.status == 200 && page.body.contains("Log out"));

    let told = site.submit("/api/v1/logout", &cookie, "").await;
    assert!(told.status == 303 && told.header(header::SET_COOKIE).contains("Max-Age=0"));
    assert_eq!(
        site.ask("GET", "/", &[("cookie", &cookie)], "")
            .await
            .status,
        401
    );
    let wrong = site
        .submit("/api/v1/login", "", "name=ada&password=wrong")
        .await;
    assert!(wrong.status == 401 && wrong.body.contains("do not belong together"));
    let json = [("content-type", "application/json")];
    let body = json!({"name": "ada", "password": PASSWORD}).to_string();
    let told = site.ask("POST", "/api/v1/login", &json, &body).await;
    assert_eq!(told.status, 204);
    told.cookie();
}

#[tokio::test]
async fn a_page_of_somebody_else_changes_nothing_with_a_cookie() {
    let site = serve().await;
    site.add("ada", Role::Admin).await;
    let told = site
        .submit(
            "/api/v1/login",
            "",
            "name=ada&password=four+plain+words+here",
        )
        .await;
    let cookie = told.cookie();
    let origin = site.origin();
    let form = ("content-type", "application/x-www-form-urlencoded");
    let ours = [
        form,
        ("cookie", cookie.as_str()),
        ("origin", origin.as_str()),
    ];
    for (said, value) in [
        ("origin", "https://evil.example"),
        ("origin", "http://127.0.0.1:8080"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("x-nothing", "said"),
    ] {
        let headers = [form, ("cookie", cookie.as_str()), (said, value)];
        let told = site
            .ask("POST", "/api/v1/tokens", &headers, "name=t&role=admin")
            .await;
        assert_eq!(told.status, 403, "{said}: {value}: {}", told.body);
    }
    assert!(site.people.tokens().is_empty());
    let told = site
        .ask("POST", "/api/v1/tokens", &ours, "name=t&role=admin")
        .await;
    assert!(
        told.status == 201 && told.body.contains("firstlight_"),
        "{}",
        told.body
    );
}

#[tokio::test]
async fn people_are_made_changed_and_taken_away_by_admins_and_all_of_it_is_told() {
    let site = serve().await;
    let admin = format!("Bearer {}", site.token(Role::Admin).await);
    let headers = [
        ("authorization", admin.as_str()),
        ("content-type", "application/json"),
    ];
    let ask = |method: &'static str, path: &'static str, body: Value| {
        let (site, headers) = (&site, headers);
        async move { site.ask(method, path, &headers, &body.to_string()).await }
    };
    for (body, status) in [
        (
            json!({"name": "Ada!", "role": "admin", "password": PASSWORD}),
            422,
        ),
        (
            json!({"name": "ada", "role": "root", "password": PASSWORD}),
            422,
        ),
        (json!({"name": "ada", "role": "admin"}), 422),
        (
            json!({"name": "ada", "role": "admin", "password": "short"}),
            422,
        ),
        (
            json!({"name": "ada", "role": "admin", "password": PASSWORD}),
            201,
        ),
        (
            json!({"name": "ada", "role": "viewer", "password": PASSWORD}),
            409,
        ),
    ] {
        let told = ask("POST", "/api/v1/operators", body.clone()).await;
        assert_eq!(told.status, status, "{body}: {}", told.body);
    }
    let told = ask("PATCH", "/api/v1/operators/ada", json!({"role": "viewer"})).await;
    assert_eq!(told.status, 409, "the last admin: {}", told.body);
    site.add("ben", Role::Admin).await;
    let told = ask("PATCH", "/api/v1/operators/ada", json!({"role": "viewer"})).await;
    assert_eq!(told.status, 204, "{}", told.body);
    let listed = ask("GET", "/api/v1/operators", json!({})).await;
    let listed: Vec<Operator> = serde_json::from_str(&listed.body).unwrap();
    let roles: Vec<_> = listed
        .iter()
        .map(|one| (one.name.as_str(), one.role))
        .collect();
    assert_eq!(roles, [("ada", Role::Viewer), ("ben", Role::Admin)]);

    a_person_changes_the_password(&site).await;
    let told = ask("DELETE", "/api/v1/operators/ada", json!({})).await;
    assert_eq!(told.status, 204);
    let told = ask("POST", "/api/v1/hosts/n1/reinstall", json!({})).await;
    assert!(
        told.status == 404 && told.body.contains("retry, power-on"),
        "{}",
        told.body
    );

    let audit = ask("GET", "/api/v1/audit", json!({})).await;
    let audit: Vec<AuditLine> = serde_json::from_str(&audit.body).unwrap();
    let by_token: Vec<(&str, &str)> = audit
        .iter()
        .filter(|line| line.who == "token admin")
        .map(|line| (line.what.as_str(), line.outcome.as_str()))
        .collect();
    assert!(
        by_token.contains(&("remove operator", "done")),
        "{by_token:?}"
    );
    assert!(by_token.iter().any(|(what, _)| *what == "host reinstall"));
    no_secret_is_told_or_kept(&site, &audit, &admin[7..]);
}

async fn a_person_changes_the_password(site: &Fixture) {
    let told = site
        .submit(
            "/api/v1/login",
            "",
            "name=ada&password=four+plain+words+here",
        )
        .await;
    let cookie = told.cookie();
    let change = |old: &str| format!("old={old}&password=other+words+that+fit");
    let told = site
        .submit("/api/v1/password", &cookie, &change("wrong"))
        .await;
    assert_eq!(told.status, 401);
    let told = site
        .submit(
            "/api/v1/password",
            &cookie,
            &change("four+plain+words+here"),
        )
        .await;
    assert_eq!(told.status, 303, "{}", told.body);
    assert_eq!(
        site.ask("GET", "/", &[("cookie", &cookie)], "")
            .await
            .status,
        401
    );
}

fn no_secret_is_told_or_kept(site: &Fixture, audit: &[AuditLine], token: &str) {
    let whole = format!("{audit:?}");
    assert!(
        !whole.contains("plain words") && !whole.contains("firstlight_"),
        "{whole}"
    );
    for file in walk(site.dir.path()) {
        let content = std::fs::read(&file).unwrap();
        let content = String::from_utf8_lossy(&content);
        assert!(
            !content.contains("plain words") && !content.contains(token),
            "{file:?}"
        );
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
