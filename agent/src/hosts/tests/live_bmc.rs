//! The controller, a live Ironic, and BMCs that are real programs: sushy-tools speaks Redfish, the simulator of `OpenIPMI` IPMI. Only the server
//! behind them is played. `scripts/test-ironic` runs it.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use firstlight_api::bmh::{BmcDetails, ErrorType, INSTALL_ANNOTATION, annotations::REBOOT};
use firstlight_ironic::PowerTarget;
use tokio::sync::watch;

use super::{
    live::{ends, live, remove, server, step},
    power::{SECRET, credentials},
    running::{Controller, IMPATIENT},
    *,
};

const HOST: &str = "worker-0";
const SYSTEM: &str = "27946b59-9e44-4fa7-8e91-f3527a1ef094";
pub const LONGEST: Duration = Duration::from_mins(5);

/// A program that ends with the test.
pub struct Program(Child);

impl Program {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Whoever has a proxy or a bundle of CAs does not mean these.
        command.env_remove("REQUESTS_CA_BUNDLE");
        command.env("no_proxy", "*");
        Self(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("{program}: {error}")),
        )
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// One that speaks Redfish over plain HTTP, on `port`.
pub struct Redfish {
    dir: PathBuf,
    port: u16,
    drives: Drives,
}

/// What it is made of.
#[derive(Clone, Copy, PartialEq)]
pub enum Drives {
    Usual,
    None,
}

impl Redfish {
    pub fn new(dir: &Path, port: u16) -> Self {
        let text = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let password = bcrypt::hash("hunter2", 5).unwrap();
        write(&dir.join("passwords"), &format!("admin:{password}\n"));
        let config = format!(
            "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n\
                 SUSHY_EMULATOR_AUTH_FILE = '{}'\nSUSHY_EMULATOR_STATE_DIR = '{}'\n",
            text("passwords"),
            text("")
        );
        write(&dir.join("sushy.conf"), &config);
        let bare = format!("{config}SUSHY_EMULATOR_VMEDIA_DEVICES = {{}}\n");
        write(&dir.join("bare.conf"), &bare);
        Self {
            dir: dir.to_owned(),
            port,
            drives: Drives::Usual,
        }
    }

    pub fn start(&self) -> Program {
        let name = match self.drives {
            Drives::Usual => "sushy.conf",
            Drives::None => "bare.conf",
        };
        let config = self.dir.join(name);
        let program = std::env::var("FIRSTLIGHT_SUSHY").unwrap();
        Program::start(&program, &["--fake", "--config", config.to_str().unwrap()])
    }

    pub fn path(&self) -> String {
        format!("127.0.0.1:{}/redfish/v1/Systems/{SYSTEM}", self.port)
    }

    pub fn with(self, drives: Drives) -> Self {
        Self { drives, ..self }
    }

    /// What it says of the server, asked as any client would.
    pub fn says(&self, words: &str) -> bool {
        Self::says_at(&self.path(), words)
    }

    pub fn has_cd(&self) -> bool {
        let drive = format!("{}/VirtualMedia/Cd", self.path());
        // The BMC fetches it from the box, and Ironic keeps no copy of it.
        Self::says_at(&drive, r#""Inserted": true"#) && Self::says_at(&drive, "/boot/cd/")
    }

    fn says_at(path: &str, words: &str) -> bool {
        let url = format!("http://{path}");
        let asked = Command::new("curl")
            .args([
                "--silent",
                "--noproxy",
                "*",
                "--user",
                "admin:hunter2",
                &url,
            ])
            .output()
            .unwrap();
        String::from_utf8_lossy(&asked.stdout).contains(words)
    }

    pub fn is_on(&self) -> bool {
        self.says(r#""PowerState": "On""#)
    }
}

/// One that speaks IPMI; the server behind it is a file that says `0` or `1`.
struct Ipmi {
    dir: PathBuf,
    port: u16,
}

impl Ipmi {
    fn new(dir: &Path, port: u16) -> Self {
        let text = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let power = text("power");
        write(&dir.join("power"), "1");
        write(
            &dir.join("chassis"),
            &format!(
                "#!/bin/sh\n[ $# -gt 0 ] || exit 1\nop=$2\nshift 2\ncase $op in\n\
                 get) for word; do case $word in power) echo \"power:$(cat {power})\" ;; boot) echo boot:default ;; esac; done ;;\n\
                 set) while [ $# -gt 1 ]; do case $1 in power) echo \"$2\" >{power} ;; shutdown) echo 0 >{power} ;; esac; shift 2; done ;;\n\
                 esac\n"
            ),
        );
        let modes = "none md2 md5 straight";
        let allowed = ["callback", "user", "operator", "admin"]
            .map(|who| format!("    allowed_auths_{who} {modes}\n"))
            .concat();
        write(
            &dir.join("lan.conf"),
            &format!(
                "name \"lab\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n{allowed}    \
                 guid a123456789abcdefa123456789abcdef\n  endlan\n  chassis_control \"/bin/sh {} 0x20\"\n  \
                 user 1 true \"\" \"test\" user 10 {modes}\n  user 2 true \"admin\" \"hunter2\" admin 10 {modes}\n",
                text("chassis")
            ),
        );
        write(
            &dir.join("mc.emu"),
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
             sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n",
        );
        let dir = dir.to_owned();
        Self { dir, port }
    }

    fn start(&self) -> Program {
        let text = |name: &str| self.dir.join(name).to_str().unwrap().to_owned();
        let (lan, mc) = (text("lan.conf"), text("mc.emu"));
        Program::start("ipmi_sim", &["-c", &lan, "-f", &mc, "-s", &text(""), "-n"])
    }

    fn is_on(&self) -> bool {
        std::fs::read_to_string(self.dir.join("power"))
            .unwrap()
            .trim()
            == "1"
    }
}

/// The box, with what people do to it, and the server.
pub struct Rack {
    client: firstlight_ironic::Client,
    pub store: MemoryStore,
    pub running: Controller,
    server: Server,
    _ends: (
        watch::Sender<Option<IronicEnd>>,
        watch::Sender<Option<MemoryStore>>,
    ),
}

impl Rack {
    pub async fn start(client: firstlight_ironic::Client, state: &Path, address: &str) -> Self {
        let store = MemoryStore::default();
        credentials(&store, "wrong");
        store.change(HOST, |object| {
            object.spec.boot_mac_address = MAC.to_owned();
            object.spec.online = true;
            let never = (INSTALL_ANNOTATION.to_owned(), "never".to_owned());
            object.metadata.annotations.extend([never]);
            object.spec.bmc = Some(BmcDetails {
                address: address.to_owned(),
                credentials_name: SECRET.to_owned(),
                ..BmcDetails::default()
            });
        });
        let ironic = watch::Sender::new(Some(ends(&client).await));
        let stores = watch::Sender::new(Some(store.clone()));
        let (end, kept) = (ironic.subscribe(), stores.subscribe());
        Self {
            running: Controller::start(end, kept, state, 1, IMPATIENT),
            server: server(&client),
            client,
            store,
            _ends: (ironic, stores),
        }
    }

    pub fn status(&self) -> firstlight_api::bmh::BareMetalHostStatus {
        let object = self.store.only();
        object.and_then(|object| object.status).unwrap_or_default()
    }

    /// Rounds of the ramdisk, if the server is on, until it is so.
    pub async fn until(
        &mut self,
        what: &str,
        is_on: impl Fn() -> bool,
        reached: impl Fn(&Self) -> bool,
    ) -> Duration {
        let began = Instant::now();
        while !reached(self) {
            assert!(
                began.elapsed() < LONGEST,
                "waited for {what}: {:?}",
                self.status()
            );
            if is_on() {
                step(&self.client, &mut self.running.fleet, &mut self.server).await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let took = began.elapsed();
        eprintln!("{:6.1} s until {what}", took.as_secs_f64());
        took
    }

    pub fn change(&self, change: impl FnOnce(&mut BareMetalHost)) {
        self.store.change(HOST, change);
    }

    pub fn is_wrong(&self, kind: ErrorType, words: &str) -> bool {
        let status = self.status();
        status.error_type == Some(kind) && status.error_message.contains(words)
    }

    pub fn is_free(&self) -> bool {
        let page = self.running.page.borrow();
        let state = page.hosts.first().map(|host| host.state);
        state == Some(HostState::Available) && self.status().error_type.is_none()
    }

    /// A person removes the host. A ramdisk that still runs may be listed anew before anybody looks.
    pub async fn remove(&mut self, is_on: impl Fn() -> bool) {
        self.change(|object| {
            object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".to_owned());
        });
        let gone = |rack: &Self| {
            let object = rack.store.only();
            object.is_none_or(|object| object.metadata.deletion_timestamp.is_none())
        };
        self.until("it is gone", is_on, gone).await;
    }

    /// Off and on by the object's spec.
    async fn off_and_on(&mut self, is_on: impl Fn() -> bool) {
        self.change(|object| object.spec.online = false);
        let off = |rack: &Self| !is_on() && !rack.status().powered_on;
        self.until("it is off", &is_on, off).await;
        self.change(|object| object.spec.online = true);
        let on = |rack: &Self| is_on() && rack.status().powered_on;
        self.until("it is on", &is_on, on).await;
    }

    /// Where it must never be off.
    async fn restarted_with_one_order(&mut self, is_on: impl Fn() -> bool) {
        self.change(|object| {
            object.spec.disable_power_off = true;
            let annotations = &mut object.metadata.annotations;
            annotations.insert(REBOOT.to_owned(), String::new());
        });
        let done = |rack: &Self| {
            let object = rack.store.only().unwrap();
            !object.metadata.annotations.contains_key(REBOOT) && is_on() && rack.status().powered_on
        };
        self.until("it is restarted", &is_on, done).await;
        let began = Instant::now();
        loop {
            let off = self.client.set_power(&node(), PowerTarget::Off).await;
            let refused = off.unwrap_err().to_string();
            // Until its restart has ended, it is locked.
            if refused.contains("Failed to set node power state") {
                break;
            }
            assert!(began.elapsed() < LONGEST, "{refused}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        self.change(|object| object.spec.disable_power_off = false);
    }

    /// Off for as long as an annotation is there.
    async fn fenced(&mut self, is_on: impl Fn() -> bool) {
        let fence = "reboot.metal3.io/fence";
        self.change(|object| {
            let hard = r#"{"mode": "hard"}"#.to_owned();
            object.metadata.annotations.insert(fence.to_owned(), hard);
        });
        let off = |rack: &Self| !is_on() && !rack.status().powered_on;
        self.until("it is fenced", &is_on, off).await;
        self.change(|object| {
            object.metadata.annotations.remove(fence);
        });
        let on = |rack: &Self| is_on() && rack.status().powered_on;
        self.until("it is on again", &is_on, on).await;
    }
}

#[tokio::test]
#[ignore = "needs FIRSTLIGHT_IRONIC_URL and ipmi_sim: scripts/test-ironic"]
async fn a_live_ironic_speaks_ipmi_and_a_silent_bmc_is_told_from_one_that_refuses() {
    let client = live();
    remove(&client).await;
    let state = tempfile::tempdir().unwrap();
    let ipmi = Ipmi::new(state.path(), 6231);
    let address = format!("ipmi://127.0.0.1:{}", ipmi.port);
    let mut rack = Rack::start(client.clone(), state.path(), &address).await;
    let nobody = |rack: &Rack| {
        rack.is_wrong(
            ErrorType::Registration,
            "nothing answers IPMI at 127.0.0.1 port 6231",
        )
    };
    rack.until("nobody answers", || false, nobody).await;
    let bmc = ipmi.start();
    let refuses = |rack: &Rack| {
        rack.is_wrong(
            ErrorType::Registration,
            "answers by IPMI, but does not let the user",
        )
    };
    rack.until("a wrong password is told", || false, refuses)
        .await;
    drop(bmc);
    rack.until("it is gone, and that is told", || false, nobody)
        .await;
    let _bmc = ipmi.start();
    credentials(&rack.store, "hunter2");
    let on = || ipmi.is_on();
    rack.until("it is free", on, Rack::is_free).await;
    remove(&client).await;
    rack.running.task.abort();
}

#[tokio::test]
#[ignore = "needs FIRSTLIGHT_IRONIC_URL, FIRSTLIGHT_SUSHY and ipmi_sim: scripts/test-ironic"]
async fn a_live_ironic_switches_a_server_by_redfish_and_by_ipmi() {
    let client = live();
    remove(&client).await;
    let state = tempfile::tempdir().unwrap();
    let dirs = ["redfish", "ipmi"].map(|name| state.path().join(name));
    for dir in &dirs {
        std::fs::create_dir(dir).unwrap();
    }
    let redfish = Redfish::new(&dirs[0], 8000);
    let bmc = redfish.start();
    let address = format!("redfish+http://{}", redfish.path());
    let mut rack = Rack::start(client.clone(), state.path(), &address).await;
    let on = || redfish.is_on();

    let refused = |rack: &Rack| rack.is_wrong(ErrorType::Registration, "refuses the user");
    let what = "a wrong password is told";
    let took = rack.until(what, || false, refused).await;
    // For the table of `scripts/bench hosts`.
    eprintln!("figure hosts-wrong-password {:.1}", took.as_secs_f64());
    credentials(&rack.store, "hunter2");
    let from_network = r#""BootSourceOverrideTarget": "Pxe""#;
    let summoned = |_: &Rack| redfish.is_on() && redfish.says(from_network);
    let what = "its BMC starts it from the network";
    rack.until(what, || false, summoned).await;
    let free = |rack: &Rack| rack.is_free() && rack.status().powered_on;
    rack.until("it is free", on, free).await;
    rack.restarted_with_one_order(on).await;
    // That it may be off again shows that Ironic was told.
    rack.off_and_on(on).await;
    rack.fenced(on).await;

    drop(bmc);
    let silent = |rack: &Rack| rack.is_wrong(ErrorType::PowerManagement, "");
    let what = "its BMC is silent, and that is told";
    rack.until(what, || true, silent).await;
    let bmc = redfish.start();
    rack.until("its BMC answers again", on, free).await;
    drop(bmc);

    // Another protocol, with the host as it is.
    let ipmi = Ipmi::new(&dirs[1], 6230);
    let _bmc = ipmi.start();
    let on = || ipmi.is_on();
    rack.change(|object| {
        let bmc = object.spec.bmc.as_mut().unwrap();
        bmc.address = format!("ipmi://127.0.0.1:{}", ipmi.port);
    });
    // The first thing that is done by it shows that Ironic was told.
    rack.off_and_on(on).await;
    assert_eq!(client.node(&node()).await.unwrap().driver, "ipmi");

    rack.remove(on).await;
    assert!(client.node(&node()).await.unwrap_err().is_not_found());
    rack.running.task.abort();
}
