//! The pages in a real Chromium: `scripts/test-page`, and figures of `scripts/bench operate`.

use std::{
    env, fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use firstlight_api::status::{HardwareSummary, HostControl, HostState, HostStatus, Problem};
use futures_util::future;
use tokio::time::sleep;

use super::{super::page, *};
use driver::{Browser, Settings};

pub mod driver;

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const PAGES: [&str; 8] = [
    "/",
    "/hosts",
    "/hosts?group=state&sort=since",
    "/hosts/n1",
    "/clusters",
    "/software",
    "/store",
    "/box",
];

fn server(number: usize, state: HostState) -> HostStatus {
    HostStatus {
        name: format!("n{number}"),
        namespace: "default".into(),
        mac: format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256),
        address: format!("172.22.{}.{}", number / 250, number % 250 + 2),
        state,
        step: format!("it is {}", state.as_str()),
        since: 10.0,
        hardware: Some(HardwareSummary {
            product: format!("ProLiant DL{} Gen10", 360 + number % 3 * 10),
            serial: format!("CZ{number:05}"),
            cpus: 32,
            memory_mib: 131_072,
            ..HardwareSummary::default()
        }),
        ..HostStatus::default()
    }
}

impl Fixture {
    fn shows(&self, host: &HostStatus) {
        let told = Box::new(host.clone());
        self.status.send(Update::Host(host.mac.clone(), Some(told)));
    }

    fn at(&self, page: &str) -> String {
        format!("http://{}{page}", self.address)
    }
}

/// axe-core, as `scripts/test-page` has fetched it.
fn axe() -> String {
    let path = env::var("AXE").expect("AXE names axe.min.js: scripts/test-page");
    fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: scripts/test-page"]
async fn nobody_is_kept_from_reading_a_page() {
    let mut box_ = serve().await;
    let (_busy, status) = watch::channel(page::tests::busy_site());
    box_.shows_site(status);
    let axe = axe();
    for dark in [false, true] {
        let settings = Settings {
            dark,
            ..Settings::default()
        };
        let browser = Browser::start(settings).await;
        for page in PAGES {
            browser.open(box_.at(page)).await;
            browser
                .until("performance.getEntriesByName('shown').length > 0")
                .await;
            for (width, height) in [(360, 640), (1280, 800), (3840, 2160)] {
                browser.resize(width, height).await;
                let place = format!("{page}, {width} px, dark: {dark}");
                let wide = browser
                    .value("document.documentElement.scrollWidth - innerWidth")
                    .await;
                assert!(
                    wide.as_i64().unwrap() <= 0,
                    "{place}: {wide} px are beyond the edge"
                );
                let script = format!(
                    "(async () => {{ if (!window.axe) {{ {axe}; }}
                     const found = await axe.run({{ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }});
                     return found.violations.map((it) => it.id + ': ' + it.help + ' ' + it.nodes.map((node) => node.html).join(' ')); }})()"
                );
                let found = browser.value(&script).await;
                assert_eq!(found, json!([]), "{place}");
                keep(&browser, &format!("{page}-{width}-{dark}")).await;
            }
        }
    }
}

/// Where somebody wants to look at it: PICTURES names a folder.
async fn keep(browser: &Browser, name: &str) {
    if let Some(folder) = env::var_os("PICTURES") {
        let name = name.replace(['/', '?', '&', '='], "_");
        let path = std::path::Path::new(&folder).join(format!("{name}.png"));
        fs::write(path, browser.picture().await).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: scripts/test-page"]
async fn what_changes_is_shown_and_what_a_person_does_there_stays() {
    let box_ = serve().await;
    let mut host = server(1, HostState::Provisioning);
    host.percent = Some(41);
    box_.shows(&host);
    let browser = Browser::start(Settings::default()).await;
    browser.open(box_.at("/hosts/n1")).await;
    browser
        .until("document.querySelector('progress')?.value === 41")
        .await;
    browser
        .value(
            "(document.querySelector('details').open = true, document.querySelector('summary').focus(), \
             window.kept = document.activeElement, getSelection().selectAllChildren(document.querySelector('dd code')), true)",
        )
        .await;
    host.percent = Some(42);
    host.problem = Some(Problem {
        what: "<b>its image</b> comes slowly".into(),
        next: "look at the cable".into(),
    });
    box_.shows(&host);
    browser
        .until("document.querySelector('progress')?.value === 42")
        .await;
    assert!(
        browser
            .text(".problem")
            .await
            .contains("<b>its image</b> comes slowly")
    );
    assert_eq!(
        browser
            .value(
                "[document.querySelector('details').open, document.activeElement === window.kept && window.kept.isConnected, getSelection().toString()]"
            )
            .await,
        json!([true, true, host.mac])
    );
    // A server that goes takes its row along, and those around it stay the rows that they were.
    for number in 0..5 {
        box_.shows(&server(number, HostState::Available));
    }
    browser.open(box_.at("/hosts")).await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 5")
        .await;
    browser
        .value("(window.rows = [...document.querySelectorAll('tbody tr')], true)")
        .await;
    box_.status
        .send(Update::Host(server(2, HostState::Available).mac, None));
    browser
        .until("document.querySelectorAll('tbody tr').length === 4")
        .await;
    let same = "[...document.querySelectorAll('tbody tr')].every((row, at) => row === window.rows[at < 2 ? at : at + 1])";
    assert_eq!(browser.value(same).await, json!(true));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: scripts/test-page"]
async fn a_site_is_raised_and_mended_with_the_keyboard_alone() {
    let mut box_ = serve().await;
    let asked = box_.has_kubernetes();
    for step in StepName::ALL {
        box_.status.done(step);
    }
    let browser = Browser::start(Settings::default()).await;
    browser.open(box_.at("/")).await;
    browser
        .until("document.body.innerText.includes('No server seen yet.')")
        .await;
    assert!(browser.text("header").await.contains("all is well"));
    let mut host = server(1, HostState::Provisioning);
    host.percent = Some(7);
    box_.shows(&host);
    browser
        .until("document.querySelector('.ways')?.innerText.includes('7 %')")
        .await;
    assert!(browser.text("header").await.contains("at work"));
    // It has data, and stays as it is: nobody is asked to do anything.
    let mut kept = server(2, HostState::Discovered);
    kept.problem = Some(Problem {
        what: "disk /dev/sda carries gpt, ext4".into(),
        next: "to lose it, say `install: wipe`".into(),
    });
    box_.shows(&kept);
    host.state = HostState::Failed;
    host.percent = None;
    host.control = HostControl {
        failed: Some(firstlight_api::status::FailedStep::Installation),
        ..HostControl::default()
    };
    host.problem = Some(Problem {
        what: "the image was not written".into(),
        next: "look at its disk".into(),
    });
    box_.shows(&host);
    browser
        .until("document.querySelector('header').innerText.includes('1 thing needs you')")
        .await;
    // To the content, and on to the server that needs somebody.
    browser.press(TAB).await;
    browser.press(ENTER).await;
    browser.until("document.activeElement.id === 'main'").await;
    browser.press(TAB).await;
    assert_eq!(
        browser.value("document.activeElement.innerText").await,
        json!("server n1")
    );
    browser.press(ENTER).await;
    browser
        .until("location.pathname === '/hosts/n1' && !!document.querySelector('.verbs')")
        .await;
    let retry = "document.activeElement.innerText === 'retry'";
    for _ in 0..30 {
        if browser.value(retry).await == json!(true) {
            break;
        }
        browser.press(TAB).await;
    }
    assert_eq!(browser.value(retry).await, json!(true));
    browser.press(ENTER).await;
    browser.until("location.pathname === '/hosts/n1'").await;
    let end = Instant::now() + Duration::from_secs(30);
    while asked.lock().unwrap().is_empty() {
        assert!(Instant::now() < end, "nobody asked");
        sleep(Duration::from_millis(50)).await;
    }
    let first = asked.lock().unwrap()[0].clone();
    assert!(
        first.contains("PATCH /apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts/n1"),
        "{first}"
    );
    assert!(first.contains("firstlight.internal/retry"), "{first}");
    // Nothing here wipes the other one: the page says what would.
    browser.open(box_.at("/hosts/n2")).await;
    browser
        .until("document.body.innerText.includes('install: wipe')")
        .await;
    let buttons = "[...document.querySelectorAll('main button')].map((it) => it.innerText)";
    let buttons = browser.value(buttons).await;
    assert!(!buttons.to_string().contains("wipe"), "{buttons}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: scripts/test-page"]
async fn servers_are_sought_while_one_types_and_without_a_script() {
    let box_ = serve().await;
    for number in 0..20 {
        box_.shows(&server(number, HostState::Running));
    }
    let browser = Browser::start(Settings::default()).await;
    browser.open(box_.at("/hosts")).await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 20")
        .await;
    browser
        .value("(document.querySelector('[type=search]').focus(), true)")
        .await;
    browser.press("cz00007").await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 1")
        .await;
    assert_eq!(
        browser
            .value("[location.search, document.activeElement.value]")
            .await,
        json!(["?q=cz00007", "cz00007"])
    );
    // A page that is left and come back to is as it was.
    browser.value("(location.reload(), true)").await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 1")
        .await;
    drop(browser);
    let browser = Browser::start(Settings {
        no_script: true,
        ..Settings::default()
    })
    .await;
    browser.open(box_.at("/hosts")).await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 20")
        .await;
    assert_eq!(
        browser
            .value("performance.getEntriesByName('shown').length")
            .await,
        json!(0)
    );
    browser
        .value("(document.querySelector('[type=search]').focus(), true)")
        .await;
    browser.press("cz00008").await;
    browser.press(ENTER).await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 1")
        .await;
    assert!(browser.text("body").await.contains("Read it again"));
}

/// Figures of `scripts/bench operate`, and that 500 servers are no more than a browser takes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: scripts/test-page"]
async fn five_hundred_servers_of_which_ten_install() {
    let box_ = serve().await;
    for step in StepName::ALL {
        box_.status.done(step);
    }
    let mut installing: Vec<_> = (0..10)
        .map(|number| server(number, HostState::Provisioning))
        .collect();
    for number in 10..500 {
        box_.shows(&server(number, HostState::Running));
    }
    for host in &installing {
        box_.shows(host);
    }
    let browser = Browser::start(Settings::default()).await;
    browser.open(box_.at("/hosts")).await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 500")
        .await;
    browser
        .until("performance.getEntriesByName('first-contentful-paint').length > 0")
        .await;
    let painted = browser
        .value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        .await;
    // What is sent while they install, without what comes first, which is everything.
    let mut changes = box_.get("/changes?of=%2Fhosts", &[]).await;
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains("n499") {
        let frame = changes.frame().await.unwrap().unwrap();
        all.extend(frame.into_data().unwrap());
    }
    let began = Instant::now();
    let tells = async {
        for percent in 1..=20 {
            for host in &mut installing {
                host.percent = Some(percent);
                host.step = format!("writing node.raw.zst, {percent} %");
                box_.shows(host);
            }
            sleep(Duration::from_millis(500)).await;
        }
    };
    let mut bytes = 0_u32;
    let reads = async {
        while let Some(Ok(frame)) = changes.frame().await {
            bytes += frame
                .into_data()
                .map_or(0, |data| u32::try_from(data.len()).unwrap());
        }
    };
    future::select(Box::pin(tells), Box::pin(reads)).await;
    let rate = f64::from(bytes) / began.elapsed().as_secs_f64() / 1000.0;
    browser
        .until("document.body.innerText.includes('writing node.raw.zst, 20 %')")
        .await;
    let slowest = browser
        .value("performance.getEntriesByName('update').slice(1).map((it) => it.duration).sort((a, b) => a - b)")
        .await;
    let updates: Vec<f64> = serde_json::from_value(slowest).unwrap();
    assert!(updates.len() >= 5 && rate > 0.1, "{updates:?} {rate}");
    eprintln!("figure operate-paint {:.1}", painted.as_f64().unwrap());
    eprintln!("figure operate-update {:.1}", updates[updates.len() / 2]);
    eprintln!("figure operate-bytes {rate:.1}");
}

impl Fixture {
    /// The same server, of another status value.
    fn shows_site(&mut self, status: watch::Receiver<SiteStatus>) {
        let mut web = self.web.clone();
        web.status = status;
        self.listens(web);
    }

    /// An API server that takes everything, and what it was asked.
    fn has_kubernetes(&mut self) -> Arc<Mutex<Vec<String>>> {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let notes = Arc::clone(&asked);
        let answers = tower::service_fn(move |request: Request<kube::client::Body>| {
            let notes = Arc::clone(&notes);
            async move {
                let (head, content) = request.into_parts();
                let content = content.collect_bytes().await.unwrap_or_default();
                let content = String::from_utf8_lossy(&content).into_owned();
                notes
                    .lock()
                    .unwrap()
                    .push(format!("{} {} {content}", head.method, head.uri));
                Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from_static(
                    b"{}",
                ))))
            }
        });
        let client = kube::Client::new(answers, "default");
        let (_, kubernetes) = watch::channel(Some(client));
        self.web.facts.kubernetes = kubernetes;
        let web = self.web.clone();
        self.listens(web);
        asked
    }

    /// At another port.
    pub fn listens(&mut self, web: Web) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        self.address = listener.local_addr().unwrap();
        tokio::spawn(server::accept(
            web,
            self.door.clone(),
            listener,
            self.stop.clone(),
        ));
    }
}
