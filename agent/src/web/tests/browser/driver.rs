//! A real Chromium without a screen, led over `WebDriver` (W3C) by its own chromedriver.

use std::{
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::super::{body, send};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};

/// A page of an emulated machine beside compilers takes its time.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Browser {
    /// What Chromium leaves behind.
    _scratch: tempfile::TempDir,
    driver: Child,
    address: std::net::SocketAddr,
    session: String,
}

/// What is set before it starts.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    pub dark: bool,
    pub no_script: bool,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A driver that is killed leaves its browser behind.
        let _ = self.end_session();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Without a runtime, which may be ending.
    fn end_session(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(
            stream,
            "DELETE {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
            self.session
        )?;
        stream.read_to_string(&mut String::new()).map(drop)
    }

    pub async fn start(settings: Settings) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .env("TMPDIR", scratch.path())
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is there: scripts/bootstrap");
        let said = BufReader::new(driver.stdout.take().unwrap());
        let port = said
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                port.trim_end_matches('.').parse::<u16>().ok()
            })
            .expect("chromedriver says its port");
        let color = u8::from(!settings.dark);
        let script = if settings.no_script { 2 } else { 1 };
        let mut browser = Self {
            _scratch: scratch,
            driver,
            address: ([127, 0, 0, 1], port).into(),
            session: String::new(),
        };
        let new = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                format!("--blink-settings=preferredColorScheme={color}"),
            ],
            "prefs": {"profile.managed_default_content_settings.javascript": script},
        }}}});
        let made = browser.ask("/session", new).await;
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser
    }

    async fn ask(&self, path: &str, post: Value) -> Value {
        let request = Request::post(format!("{}{path}", self.session))
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(post.to_string()))
            .unwrap();
        let answer = body(send(self.address, request).await).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let value = &answer["value"];
        assert!(value["error"].is_null(), "{path}: {value}");
        value.clone()
    }

    pub async fn open(&self, address: String) {
        self.ask("/url", json!({"url": address})).await;
    }

    /// The value of an expression, or of a promise of one.
    pub async fn value(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; Promise.resolve(({expression})).then(done, (error) => done('failed: ' + error))"
        );
        self.ask("/execute/async", json!({"script": script, "args": []}))
            .await
    }

    pub async fn text(&self, selector: &str) -> String {
        let text = self
            .value(&format!(
                "document.querySelector({selector:?})?.innerText ?? ''"
            ))
            .await;
        text.as_str().unwrap().to_owned()
    }

    /// Until an expression is true.
    pub async fn until(&self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.value(expression).await != json!(true) {
            assert!(
                Instant::now() < end,
                "{expression} does not become true: {}",
                self.text("body").await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// As a person types: the letters, or keys by their `WebDriver` code points.
    pub async fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key})))
            .collect();
        self.ask(
            "/actions",
            json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}),
        )
        .await;
    }

    async fn devtools(&self, command: &str, params: Value) -> Value {
        self.ask(
            "/goog/cdp/execute",
            json!({"cmd": command, "params": params}),
        )
        .await
    }

    /// Pixels of the window.
    pub async fn resize(&self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
    }

    /// PNG of what is seen.
    pub async fn picture(&self) -> Vec<u8> {
        use base64::Engine as _;
        let all = json!({"captureBeyondViewport": true});
        let made = self.devtools("Page.captureScreenshot", all).await;
        base64::engine::general_purpose::STANDARD
            .decode(made["data"].as_str().unwrap())
            .unwrap()
    }
}
