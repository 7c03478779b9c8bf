//! Somebody stands before the box, reads the code on its console and becomes the first operator; from then on people log in. What else
//! listens on the box's network is what docs/reference.md says.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::people::AuditLine;
use qemu_tests::scene::Scene;
use qemu_tests::typed::{Desk, firstlight};

/// Above the login prompt of the console.
const ISSUE: &str = "/run/firstlight/issue";
/// TCP and UDP ports of docs/reference.md, and SSH.
const OPEN: [&str; 11] = [
    "tcp 22", "tcp 80", "tcp 443", "tcp 5000", "tcp 6385", "tcp 8443", "udp 67", "udp 68",
    "udp 69", "udp 123", "udp 4011",
];
const PASSWORD: &str = "four+plain+words+here";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    scene.ready_box()?;
    nothing_else_listens(scene)?;
    let browser = Browser::new(scene)?;
    ensure!(
        browser.asks("/", &[])?.0 == 200,
        "the page of a new box is everybody's"
    );

    let code = scene.wait(
        "the console shows a code",
        Duration::from_mins(1),
        |scene| {
            let issue = scene.box_ssh().run(&format!("cat {ISSUE}"))?;
            let (_, code) = issue.rsplit_once("/first, code ").unwrap_or_default();
            Ok(code.split_whitespace().next().map(str::to_owned))
        },
    )?;
    let form = |code: &str| format!("code={code}&name=ada&password={PASSWORD}");
    ensure!(
        browser.posts("/api/v1/first", &form("AAAAA-22222"))? == 422,
        "any code does"
    );
    ensure!(
        browser.posts("/api/v1/first", &form(&code))? == 303,
        "the code does not do"
    );
    let (status, page) = browser.asks("/", &["--cookie", &browser.jar()])?;
    ensure!(
        status == 200 && page.contains("Log out"),
        "{status}: {page}"
    );
    ensure!(
        browser.asks("/", &[])?.0 == 401,
        "the page is everybody's still"
    );
    ensure!(
        browser.in_clear("/")? == 307 && browser.in_clear("/readyz")? == 200,
        "port 80"
    );
    let issue = scene.box_ssh().run(&format!("cat {ISSUE}"))?;
    ensure!(
        !issue.contains("/first"),
        "the console shows a code still: {issue}"
    );

    let desk = Desk::new(scene)?;
    let token = desk.types(&["tokens", "make", "scraper", "--role", "viewer"])?;
    let bearer = format!("authorization: Bearer {}", token.trim());
    ensure!(
        browser.asks("/metrics", &["--header", &bearer])?.0 == 200,
        "a token is no login"
    );
    ensure!(
        browser.asks("/people", &["--header", &bearer])?.0 == 403,
        "a viewer sees people"
    );
    ensure!(
        browser
            .asks("/kubernetes/api/v1/nodes/box", &["--header", &bearer])?
            .1
            .replace(' ', "")
            .contains("\"kind\":\"Node\""),
        "the box's Kubernetes tells a viewer nothing"
    );
    ensure!(
        desk.types(&["operators", "list"])?.starts_with("ada "),
        "who may log in"
    );

    a_bundle_has_no_secret(scene, &desk, token.trim())?;

    // A restart ends sessions, and nothing else.
    scene
        .box_ssh()
        .run("sudo systemctl restart firstlight-agent")?;
    scene.wait("a token is known again", Duration::from_mins(1), |_| {
        let answer = browser.asks("/api/v1/me", &["--header", &bearer]);
        Ok(answer.is_ok_and(|(status, _)| status == 200).then_some(()))
    })?;
    ensure!(
        browser.asks("/", &["--cookie", &browser.jar()])?.0 == 401,
        "a session outlived the agent"
    );
    ensure!(
        browser.posts("/api/v1/login", &format!("name=ada&password={PASSWORD}"))? == 303,
        "ada is not known"
    );
    let audit = desk.types(&["audit", "--json"])?;
    let audit: Result<Vec<AuditLine>, _> = audit.lines().map(serde_json::from_str).collect();
    let audit = audit.context("firstlight audit")?;
    let done = |who: &str, what: &str| {
        let mut lines = audit.iter();
        lines.any(|line| line.who == who && line.what == what && line.outcome == "done")
    };
    ensure!(
        done("box", "make the first operator")
            && done("box", "make token")
            && done("ada", "log in"),
        "{audit:#?}"
    );
    scene.nothing_leaked()
}

/// That somebody logged one is bad enough.
fn a_bundle_has_no_secret(scene: &Scene<'_>, desk: &Desk, token: &str) -> Result<()> {
    const CANARY: &str = "yellow-bird-in-the-mine";
    let plant = format!(
        "kubectl create secret generic canary --from-literal=song={CANARY} && logger the song is {CANARY} and {token}"
    );
    scene.box_ssh().run(&plant)?;
    let file = scene.lab.dir().join("support.tar.zst");
    let path = file.to_str().context("the path is not text")?;
    scene.tell(desk.types(&["support", "--output", path])?.trim());
    let all = zstd::decode_all(fs::File::open(&file)?)?;
    let all = String::from_utf8_lossy(&all);
    for secret in [CANARY, token, "four plain words", "PRIVATE KEY-----"] {
        ensure!(!all.contains(secret), "{secret} is in the bundle");
    }
    for part in [
        "the song is (removed)",
        "kube-apiserver",
        "NAMESPACE",
        "172.22.0.1",
    ] {
        ensure!(all.contains(part), "{part} is not in the bundle");
    }
    let told = firstlight(["support", "--read", path])?;
    ensure!(told.contains("journal.txt"), "{told}");
    scene.tell(format_args!(
        "a bundle of {} kB",
        fs::metadata(&file)?.len() / 1000
    ));
    Ok(())
}

/// By every address but those of the box's Kubernetes, which nobody reaches from a wire (firewall.nft).
fn nothing_else_listens(scene: &Scene<'_>) -> Result<()> {
    let sockets = scene.box_ssh().run("sudo ss -Hlntu")?;
    let mut found = BTreeSet::new();
    for line in sockets.lines() {
        let mut words = line.split_whitespace();
        let (transport, local) = (words.next(), words.nth(3));
        let (address, port) = local
            .and_then(|local| local.rsplit_once(':'))
            .with_context(|| format!("ss said {line}"))?;
        let inside = ["127.", "100.64.", "[::1]"];
        if !inside.iter().any(|inside| address.starts_with(inside)) {
            found.insert(format!("{} {port}", transport.unwrap_or_default()));
        }
    }
    let known = BTreeSet::from(OPEN.map(str::to_owned));
    let more: Vec<&String> = found.difference(&known).collect();
    ensure!(
        more.is_empty(),
        "these ports are in no document: {more:?}\n{sockets}"
    );
    for port in ["tcp 22", "tcp 80", "tcp 443", "tcp 8443"] {
        ensure!(found.contains(port), "nobody listens at {port}:\n{sockets}");
    }
    scene.tell(format_args!("open are {found:?}"));
    Ok(())
}

/// curl, as it is called by who trusts the site's CA.
struct Browser {
    page: SocketAddr,
    clear: SocketAddr,
    the_box: String,
    folder: PathBuf,
}

impl Browser {
    fn new(scene: &Scene<'_>) -> Result<Self> {
        let address = scene.lab.box_address();
        let browser = Self {
            page: scene.lab.forward(0, SocketAddrV4::new(address, 443))?,
            clear: scene.lab.forward_page(0)?,
            the_box: address.to_string(),
            folder: scene.lab.dir().to_owned(),
        };
        let ca = scene
            .box_ssh()
            .run("sudo cat /var/lib/firstlight/pki/ca.crt")?;
        fs::write(browser.folder.join("site-ca.pem"), ca)?;
        Ok(browser)
    }

    fn jar(&self) -> String {
        self.folder.join("cookies").display().to_string()
    }

    /// Status and body.
    fn asks(&self, path: &str, more: &[&str]) -> Result<(u16, String)> {
        let Self { page, the_box, .. } = self;
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .arg("--cacert")
            .arg(self.folder.join("site-ca.pem"))
            .arg("--connect-to")
            .arg(format!("{the_box}:443:{}:{}", page.ip(), page.port()))
            .args(["--write-out", "\n%{http_code}"])
            .args(more)
            .arg(format!("https://{the_box}{path}"))
            .output()
            .context("starting curl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "curl {path}: {said}");
        let text = String::from_utf8(output.stdout)?;
        let (body, status) = text.rsplit_once('\n').context("curl says no status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    /// A form of the page; its cookie is kept.
    fn posts(&self, path: &str, form: &str) -> Result<u16> {
        let (jar, origin) = (self.jar(), format!("origin: https://{}", self.the_box));
        let more = ["--cookie-jar", &jar, "--header", &origin, "--data", form];
        Ok(self.asks(path, &more)?.0)
    }

    fn in_clear(&self, path: &str) -> Result<u16> {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "60", "--output", "/dev/null"])
            .args(["--write-out", "%{http_code}"])
            .arg(format!("http://{}{path}", self.clear))
            .output()
            .context("starting curl")?;
        Ok(String::from_utf8(output.stdout)?.parse()?)
    }
}
