//! An installed server: a Debian tree with the real sshd, sudo, apt and dpkg, and the program that carries out the box's orders.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use firstlight_agent::ssh::{self, Keys, Pin};
use firstlight_api::repository::Repository;
use firstlight_netboot::MacAddr;
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    programs::ip,
    root::{Root, Running},
};

pub const PORT: u16 = 2222;
const PROGRAM: &str = "FIRSTLIGHT_BOOTSTRAP";
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// Of what systemd would do, that which the box can see: memory is empty, and the kernel's start has another name.
const SYSTEMCTL: &str = "#!/bin/sh\nrm -f /run/reboot-required\ntr 0-8 1-9 </boot_id >/boot_id.new\ncat /boot_id.new >/boot_id\n";

pub struct Server {
    pub name: String,
    pub address: Ipv4Addr,
    pub mac: MacAddr,
    pub root: Root,
    sshd: Option<Running>,
}

/// What every server has: the program, and the repository of a box with another stick as the only source.
pub fn prepare(base: &Root) {
    let program = std::env::var_os(PROGRAM).expect("scripts/test-cluster-api says where it is");
    base.write(
        "usr/bin/firstlight-bootstrap",
        0o755,
        fs::read(program).unwrap(),
    );
    base.write("usr/bin/systemctl", 0o755, SYSTEMCTL);
    base.write("boot_id", 0o644, "00000000-0000-4000-8000-000000000000\n");
    let settings = "etc/ssh/sshd_config.d/10-firstlight.conf";
    let overlay = fs::read(Path::new("../overlays/node").join(settings)).unwrap();
    base.write(settings, 0o644, overlay);
    drop(fs::remove_file(base.path("etc/apt/sources.list")));
    drop(fs::remove_dir_all(base.path("etc/apt/sources.list.d")));
    let hook = "usr/share/update-notifier/notify-reboot-required";
    let script = fs::read(Path::new("../overlays/node").join(hook)).unwrap();
    base.write(hook, 0o755, script);
    let other = Repository {
        host: "172.22.0.1".to_owned(),
        base: "another key".to_owned(),
        uploads: "another key".to_owned(),
    };
    for (path, content) in other.files() {
        base.write(&path, 0o644, content);
    }
    fs::create_dir_all(base.path("run/sshd")).unwrap();
}

impl Server {
    /// `number` from 1. The box knows its host key, and it the box's.
    pub async fn install(base: &Root, keys: &Keys, number: u8) -> Self {
        let name = format!("n{number:02}");
        let mac: MacAddr = format!("52:54:00:00:00:{number:02x}").parse().unwrap();
        let root = base.over(&name);
        let key = keys.prepare(mac, Pin::Made).await.unwrap();
        let host = keys.host_key(mac).await.unwrap();
        root.write("etc/ssh/ssh_host_ed25519_key", 0o600, &host.private);
        let user = ssh::user(mac);
        root.run(&["useradd", "--create-home", "--shell", "/bin/sh", &user]);
        root.write(
            &format!("home/{user}/.ssh/authorized_keys"),
            0o644,
            key.as_str(),
        );
        let list = format!("{user} ALL=(root) NOPASSWD: /usr/bin/firstlight-bootstrap packages\n");
        root.write("etc/sudoers.d/firstlight", 0o440, list);
        let boot_id = root.path("boot_id");
        let bound = Command::new("mount")
            .arg("--bind")
            .args([&boot_id, &root.path(BOOT_ID)])
            .status();
        assert!(bound.unwrap().success());
        let address = Ipv4Addr::new(172, 22, 0, 100 + number);
        let mut server = Self {
            name,
            address,
            mac,
            root,
            sshd: None,
        };
        server.start();
        server
    }

    /// The cable, and sshd.
    pub fn start(&mut self) {
        ip(&format!("addr add {}/32 dev lo", self.address));
        let (port, listen) = (PORT.to_string(), format!("ListenAddress={}", self.address));
        let words = ["/usr/sbin/sshd", "-D", "-p", &port, "-o", &listen];
        let mut sshd = self.root.command(&words);
        self.sshd = Some(Running(sshd.stderr(Stdio::null()).spawn().unwrap()));
        let since = Instant::now();
        while TcpStream::connect((self.address, PORT)).is_err() {
            assert!(since.elapsed() < PATIENCE, "sshd of {}", self.name);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// The power goes: everything that runs there ends in the same moment, and nothing is said to anybody.
    pub fn cut(&mut self) {
        ip(&format!("addr del {}/32 dev lo", self.address));
        self.sshd = None;
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let at = |file: &str| process.path().join(file);
            let is_here = fs::read_link(at("root")).is_ok_and(|root| root == self.root.path(""));
            if let (true, Ok(pid)) = (
                is_here,
                process.file_name().to_string_lossy().parse::<i32>(),
            ) {
                let pid = nix::unistd::Pid::from_raw(pid);
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
        }
    }

    /// What dpkg says of a package there.
    pub fn has(&self, package: &str) -> String {
        let words = [
            "dpkg-query",
            "-W",
            "-f",
            "${Version} ${db:Status-Status}",
            package,
        ];
        let said = self.root.command(&words).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    }

    /// Changes with every write of dpkg's.
    pub fn written(&self) -> (i64, i64, u64) {
        let status = fs::metadata(self.root.path("var/lib/dpkg/status")).unwrap();
        (status.mtime(), status.mtime_nsec(), status.ino())
    }

    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": self.name, "namespace": "default", "labels": {"rack": "7"}},
            "spec": {"online": true, "bootMACAddress": self.mac.to_string()},
        })
    }

    pub fn status(&self) -> Value {
        let mut object = self.object();
        object["status"] = json!({
            "poweredOn": true, "errorCount": 0, "errorMessage": "", "operationalStatus": "OK",
            "provisioning": {"state": "provisioned", "ID": ""},
            "hardware": {"nics": [{"ip": self.address.to_string(), "mac": self.mac.to_string(), "pxe": true}]},
        });
        object
    }
}
