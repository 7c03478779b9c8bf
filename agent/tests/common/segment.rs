//! A box's agent, a stick and a server at the other end of a cable, in network namespaces.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use firstlight_api::status::{DhcpMode, SiteStatus};

/// Emulated and busy machines are slow; every wait ends as soon as its condition holds.
const PATIENCE: Duration = Duration::from_mins(1);
pub const MAC: &str = "52:54:00:00:00:11";

pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; install it"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {args:?}: {text}{errors}"
    );
    text
}

pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that ends with its owner.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A server beside the box: a network namespace at the other end of a cable.
pub struct Server {
    holder: Running,
}

impl Server {
    /// A namespace with nothing in it.
    pub fn alone() -> Self {
        let holder = Running(
            Command::new("unshare")
                .args(["--net", "sleep", "infinity"])
                .spawn()
                .unwrap(),
        );
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", holder.0.id());
        wait_for("the namespace of the server", || {
            fs::read_link(&theirs).ok().filter(|link| *link != own)
        });
        let server = Self { holder };
        server.run("ip", &["link", "set", "lo", "up"]);
        server
    }

    pub fn pid(&self) -> String {
        self.holder.0.id().to_string()
    }

    /// `inside` in this server's network.
    pub fn inside<T: Send + 'static>(&self, inside: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn_inside(inside).join().unwrap()
    }

    /// The same, meanwhile.
    pub fn spawn_inside<T: Send + 'static>(
        &self,
        inside: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let namespace = fs::File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        std::thread::spawn(move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            inside()
        })
    }

    /// Lays the cable: `fl-box` here, `fl-host` there.
    pub fn connect() -> Self {
        let server = Self::alone();
        run("ip", &["link", "set", "lo", "up"]);
        // Stands for the dummy device, which the kernel of a test machine may lack; the agent takes it as it is.
        run("ip", &["link", "add", "name", "box0", "type", "bridge"]);
        run(
            "ip",
            &[
                "link", "add", "name", "fl-box", "type", "veth", "peer", "name", "fl-host",
            ],
        );
        run(
            "ip",
            &[
                "link",
                "set",
                "fl-host",
                "address",
                MAC,
                "netns",
                &server.pid(),
            ],
        );
        server.run("ip", &["link", "set", "fl-host", "up"]);
        server
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.holder.0.id()))
            .arg(program);
        command
    }

    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{program} {args:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    /// What a real client gets: the variables that udhcpc hands to its script.
    pub fn dhcp(&self, script: &Path) -> String {
        let script = script.to_str().unwrap();
        self.run(
            "busybox",
            &[
                "udhcpc", "-i", "fl-host", "-f", "-q", "-n", "-t", "10", "-T", "1", "-O", "ntpsrv",
                "-s", script,
            ],
        )
    }
}

/// A tree as the stick has it.
pub struct Stick {
    pub dir: tempfile::TempDir,
    pub kernel: Vec<u8>,
}

impl Stick {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kernel: Vec<u8> = (0..700_001_u32)
            .map(|at| u8::try_from(at % 253).unwrap())
            .collect();
        let stick = Self { dir, kernel };
        stick.write(
            "firstlight/site/site.yaml",
            b"name: lab\nprovisioning: {interface: fl-box}\n",
        );
        stick.write("usr/share/firstlight/netboot/vmlinuz", &stick.kernel);
        stick.write(
            "usr/share/firstlight/netboot/undionly.kpxe",
            &stick.kernel[..100_000],
        );
        fs::create_dir_all(stick.path("var/lib/firstlight/agent")).unwrap();
        fs::create_dir_all(stick.path("run/firstlight")).unwrap();
        stick
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The script that prints what udhcpc got.
    pub fn script(&self) -> PathBuf {
        let text = "#!/bin/sh\n[ \"$1\" = bound ] && echo \"ip=$ip mask=$mask serverid=$serverid router=$router lease=$lease\"\nexit 0\n";
        self.write("script", text.as_bytes());
        run("chmod", &["0755", self.path("script").to_str().unwrap()]);
        self.path("script")
    }

    pub fn start_agent(&self) -> Running {
        self.start_agent_with(&[])
    }

    pub fn start_agent_with(&self, options: &[&str]) -> Running {
        let agent = Command::new(env!("CARGO_BIN_EXE_firstlight-agent"))
            .args(options)
            .arg("--root")
            .arg(self.dir.path())
            .stdout(Stdio::null())
            .spawn();
        Running(agent.unwrap())
    }
}

pub fn status() -> Option<SiteStatus> {
    let output = Command::new("curl")
        .args(["-sf", "http://127.0.0.1/api/v1/status"])
        .output()
        .expect("curl runs");
    serde_json::from_slice(&output.stdout).ok()
}

pub fn wait_for_dhcp(what: &str, wanted: impl Fn(&DhcpMode) -> bool) -> SiteStatus {
    wait_for(what, || {
        status().filter(|status| wanted(&status.network.dhcp))
    })
}
