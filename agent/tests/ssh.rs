//! The box and a node's real sshd and sudo: who gets in, what he may do there, and whom the box believes to be its node.
//!
//! `scripts/test-nodes` makes the node's file system and builds `firstlight-bootstrap`, and says where they are.
#![allow(clippy::unwrap_used)]

#[path = "common/root.rs"]
mod root;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use firstlight_agent::{
    backups::outside,
    ssh::{self, Keys, Node, Pin, SshError, Towards},
};
use firstlight_api::{
    account::{Ask, Bmc, Outcome, Told},
    backup::{BackupFile, KeepOrder, Outside, SftpPlace},
    ramdisk_order::{RamdiskOrder, RemoteFile},
    site::SshKey,
};
use firstlight_bootstrap::{
    access::{self, parse_access},
    answer::{Data, HostKey},
    drive::Drive,
    seed::Seed,
};
use firstlight_netboot::MacAddr;
use root::{Root, Running, Tree, with_root};
use serde_json::{Map, json};
use tokio::runtime::Runtime;

const PROGRAM: &str = "FIRSTLIGHT_BOOTSTRAP";
const MAC: &str = "52:54:00:00:00:01";
const PORT: u16 = 2222;
const PATIENCE: Duration = Duration::from_mins(1);
/// In front of the real program: what `packages` does is told elsewhere, here it shows that its input arrives.
const FRONT: &str = "#!/bin/sh\n[ \"$1\" != packages ] || exec cat\nexec /usr/libexec/firstlight-bootstrap \"$@\"\n";
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$@\" >>/systemctl.log\n";

fn node() -> Node {
    Node {
        mac: MAC.parse().unwrap(),
        address: Ipv4Addr::LOCALHOST,
    }
}

/// A box and one node of it.
struct Site {
    dir: tempfile::TempDir,
    keys: Keys,
    root: Root,
    /// The node's journal, as far as it has not been read.
    journal: Arc<Mutex<String>>,
    runtime: Runtime,
    sshd: Option<Running>,
}

/// What an installed server does with its config drive and its bootstrap data, in its own file system.
fn bootstrap(told: &str) {
    let told: serde_json::Value = serde_json::from_str(told).unwrap();
    let access = parse_access(told["metaData"].as_object().unwrap());
    access::apply(Path::new("/"), &access.unwrap().unwrap()).unwrap();
    let data = Data {
        user_data: "#cloud-config\n".to_owned(),
        meta_data: Map::new(),
        network_data: None,
        host_key: serde_json::from_value::<Option<HostKey>>(told["hostKey"].clone()).unwrap(),
    };
    let drive = Drive {
        meta_data: Map::new(),
        network_data: None,
        user_data: None,
    };
    let seed = Path::new("/var/lib/cloud/seed/config_drive");
    if !seed.exists() {
        Seed::new(Path::new("/")).store(&data, &drive).unwrap();
    }
}

/// Reads at once: who writes to a full socket waits.
fn listen(root: &Root) -> Arc<Mutex<String>> {
    let path = root.path("dev/log");
    let socket = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    let journal = Arc::new(Mutex::new(String::new()));
    let to = Arc::clone(&journal);
    std::thread::spawn(move || {
        let mut line = [0; 4096];
        while let Ok(length) = socket.recv(&mut line) {
            let mut text = to.lock().unwrap();
            *text += &String::from_utf8_lossy(&line[..length]);
            text.push('\n');
        }
    });
    journal
}

impl Site {
    fn new(tree: &Tree) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = tree.unpack("node");
        let settings = "etc/ssh/sshd_config.d/10-firstlight.conf";
        let overlay = fs::read(Path::new("../overlays/node").join(settings)).unwrap();
        root.write(settings, 0o644, overlay);
        for file in fs::read_dir(root.path("etc/ssh")).unwrap() {
            let path = file.unwrap().path();
            if path.to_string_lossy().contains("ssh_host_") {
                fs::remove_file(path).unwrap();
            }
        }
        fs::create_dir_all(root.path("run/sshd")).unwrap();
        root.write("usr/bin/systemctl", 0o755, SYSTEMCTL);
        root.write("usr/bin/firstlight-bootstrap", 0o755, FRONT);
        let program = fs::read(std::env::var_os(PROGRAM).unwrap()).unwrap();
        root.write("usr/libexec/firstlight-bootstrap", 0o755, program);
        Self {
            journal: listen(&root),
            keys: Keys::new(dir.path().join("keys"), PORT),
            dir,
            root,
            runtime: Runtime::new().unwrap(),
            sshd: None,
        }
    }

    /// The node's part, in the test `name`.
    fn install(&self, name: &str, pin: Pin) {
        let key = self.runtime.block_on(self.keys.prepare(node().mac, pin));
        let host_key = self.runtime.block_on(self.keys.host_key(node().mac));
        let told = json!({
            "metaData": {"firstlight_access": {
                "user": ssh::user(node().mac), "mac": MAC, "key": key.unwrap().as_str(),
            }},
            "hostKey": host_key.map(|key| json!({"private": key.private, "public": key.public})),
        });
        self.root.play(name, &told.to_string());
    }

    fn start_sshd(&mut self) {
        self.sshd = None;
        let log = fs::File::create(self.dir.path().join("sshd.log")).unwrap();
        let port = PORT.to_string();
        let mut sshd = self
            .root
            .command(&["/usr/sbin/sshd", "-D", "-e", "-p", &port]);
        self.sshd = Some(Running(sshd.stderr(log).spawn().unwrap()));
        let since = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).is_err() {
            assert!(since.elapsed() < PATIENCE, "{}", self.sshd_log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn sshd_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("sshd.log")).unwrap()
    }

    fn run_with(&self, keys: &Keys, command: &[&str], input: &[u8]) -> Result<Vec<u8>, SshError> {
        self.runtime
            .block_on(keys.run(&node(), command, input, PATIENCE))
    }

    fn run(&self, command: &[&str]) -> Result<Vec<u8>, SshError> {
        self.run_with(&self.keys, command, b"")
    }

    fn restart(&self, mac: MacAddr, into: Towards) -> anyhow::Result<()> {
        let restart = self.keys.restart(mac, Ipv4Addr::LOCALHOST, into);
        self.runtime.block_on(restart)
    }

    /// Waits until a line has all of `words`, and forgets everything that was there.
    fn has_logged(&self, words: &[&str]) {
        let since = Instant::now();
        loop {
            let text = self.journal.lock().unwrap().clone();
            let fits = |line: &str| words.iter().all(|word| line.contains(word));
            if text.lines().any(fits) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "no {words:?} in {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.journal.lock().unwrap().clear();
    }

    /// A person with a key of the box, or with a password.
    fn person(&self, user: &str, options: &[&str]) -> Output {
        let askpass = self.dir.path().join("askpass");
        fs::write(&askpass, "#!/bin/sh\necho secret\n").unwrap();
        fs::set_permissions(&askpass, fs::Permissions::from_mode(0o700)).unwrap();
        let key = self.dir.path().join("keys/52-54-00-00-00-01/key");
        Command::new("ssh")
            .args(["-F", "/dev/null", "-p", &PORT.to_string()])
            .args(["-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null"])
            .args(["-o", "NumberOfPasswordPrompts=1"])
            .args(["-o", "IdentitiesOnly=yes", "-i"])
            .arg(key)
            .args(options)
            .args([&format!("{user}@127.0.0.1"), "echo in"])
            .env("SSH_ASKPASS", askpass)
            .env("SSH_ASKPASS_REQUIRE", "force")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn the_box_gets_in_and_may_do_what_is_on_its_list() {
    let name = "the_box_gets_in_and_may_do_what_is_on_its_list";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        site.install(name, Pin::Made);
        site.start_sshd();

        let input = vec![b'x'; 1 << 20];
        let packages = ["firstlight-bootstrap", "packages"];
        let said = site.run_with(&site.keys, &packages, &input).unwrap();
        assert_eq!(said, input);
        let who = "box-525400000001 : PWD=/var/lib/firstlight/access ; USER=root ;";
        let what = "COMMAND=/usr/bin/firstlight-bootstrap packages";
        site.has_logged(&["sudo", who, what]);

        site.restart(node().mac, Towards::Network).unwrap();
        site.restart(node().mac, Towards::Disk).unwrap();
        let twice = "reboot --no-block\nreboot --no-block\n";
        assert_eq!(site.root.read("systemctl.log"), twice);
        site.has_logged(&[who, "bootstrap restart 52:54:00:00:00:01"]);

        for command in [
            &["id"][..],
            &["sh", "-c", "id"],
            &["firstlight-bootstrap"],
            &["firstlight-bootstrap", "packages", "--all"],
            &["firstlight-bootstrap", "restart", "52:54:00:00:00:02"],
            &["firstlight-bootstrap", "packages;", "echo", "in"],
            &["firstlight-bootstrap", "bmc"],
            &["firstlight-bootstrap", "bmc", "look", "--all"],
            &["firstlight-bootstrap", "bmc", "make;", "id"],
            &["firstlight-bootstrap", "kexec"],
            &["firstlight-bootstrap", "kexec", "52:54:00:00:00:02"],
            &["-u", "nobody", "firstlight-bootstrap", "packages"],
        ] {
            let refused = site.run(command);
            assert!(
                matches!(&refused, Err(SshError::Refused(text)) if text.contains("is not allowed to execute")),
                "{command:?}: {refused:?}"
            );
        }
        site.has_logged(&["command not allowed", "COMMAND=/usr/bin/id"]);

        site.root
            .write("usr/bin/systemctl", 0o755, "#!/bin/sh\nexit 4\n");
        let failed = site.run(&["firstlight-bootstrap", "restart"]);
        assert!(
            matches!(&failed, Err(SshError::Failed { code: 1, text }) if text.contains("systemctl reboot")),
            "{failed:?}"
        );
        let late = Duration::from_millis(1);
        let command = ["firstlight-bootstrap", "packages"];
        let node = node();
        let run = site.keys.run(&node, &command, b"", late);
        assert_eq!(site.runtime.block_on(run), Err(SshError::Late(late)));
    });
}

/// A backup, and what a server is told of it.
fn backup(site: &Site, number: u8) -> (KeepOrder, Vec<u8>, std::path::PathBuf) {
    let content = vec![number; 300_000];
    let file = BackupFile {
        name: format!("lab-2026112{number}T030000Z.backup"),
        bytes: content.len() as u64,
    };
    let path = site.dir.path().join(&file.name);
    fs::write(&path, &content).unwrap();
    (KeepOrder { file, count: 2 }, content, path)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const LAST_TWO: [&str; 2] = ["lab-20261122T030000Z.backup", "lab-20261123T030000Z.backup"];

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn a_server_keeps_the_boxs_backups() {
    let name = "a_server_keeps_the_boxs_backups";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        site.install(name, Pin::Made);
        site.start_sshd();
        for number in 1..=3 {
            let (order, content, _) = backup(&site, number);
            let node = node();
            let kept = site.keys.keep_backup(&node, &order, &content);
            site.runtime.block_on(kept).unwrap();
        }
        let folder = site.root.path("var/lib/firstlight/backups");
        assert_eq!(names(&folder), LAST_TWO);
        assert_eq!(
            fs::read(folder.join(LAST_TWO[1])).unwrap(),
            vec![3; 300_000]
        );
        assert_eq!(
            folder.metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );
        // A server of an older stick knows no such order.
        site.root
            .write("usr/bin/firstlight-bootstrap", 0o755, "#!/bin/sh\nexit 2\n");
        let (order, content, _) = backup(&site, 4);
        let node = node();
        let kept = site.keys.keep_backup(&node, &order, &content);
        let refused = site.runtime.block_on(kept);
        assert!(
            matches!(refused, Err(SshError::Failed { code: 2, .. })),
            "{refused:?}"
        );
    });
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn a_place_outside_gets_backups_from_the_key_that_it_admits() {
    let name = "a_place_outside_gets_backups_from_the_key_that_it_admits";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        site.install(name, Pin::Made);
        site.start_sshd();
        let host_key = site
            .runtime
            .block_on(site.keys.host_key(node().mac))
            .unwrap();
        let place = format!(
            "sftp://{}@127.0.0.1:{PORT}/srv/backups",
            ssh::user(node().mac)
        );
        let place = Outside {
            place: SftpPlace::parse(&place).unwrap(),
            host_key: SshKey::parse(host_key.public.trim()).unwrap(),
        };
        let dir = site.dir.path().join("outside");
        let bring = |place: &Outside, number: u8| {
            let (order, _, path) = backup(&site, number);
            let brought = outside::bring(&dir, place, &order.file, &path, order.count);
            site.runtime.block_on(brought)
        };
        // The page says which key it is.
        let refused = bring(&place, 1).unwrap_err();
        let key = site.runtime.block_on(outside::public_key(&dir)).unwrap();
        assert!(
            refused.definite && refused.why.contains(key.as_str()),
            "{refused:?}"
        );
        site.root.write(
            "var/lib/firstlight/access/.ssh/authorized_keys",
            0o644,
            format!("restrict {}\n", key.as_str()),
        );
        let missing = bring(&place, 1).unwrap_err();
        assert!(
            !missing.definite && missing.why.contains("/srv/backups"),
            "{missing:?}"
        );
        let folder = site.root.path("srv/backups");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(folder.join("notes"), "theirs").unwrap();
        for number in [1, 2, 3, 3] {
            if number == 2 {
                // Cut in the middle, some time ago.
                fs::write(folder.join(format!("{}.new", LAST_TWO[0])), "half").unwrap();
                fs::set_permissions(
                    folder.join(format!("{}.new", LAST_TWO[0])),
                    fs::Permissions::from_mode(0o666),
                )
                .unwrap();
            }
            bring(&place, number).unwrap();
        }
        assert_eq!(names(&folder), [LAST_TWO[0], LAST_TWO[1], "notes"]);
        assert_eq!(
            fs::read(folder.join(LAST_TWO[1])).unwrap(),
            vec![3; 300_000]
        );
        // Somebody else at that address.
        let stranger = Outside {
            host_key: key,
            ..place
        };
        let refused = bring(&stranger, 4).unwrap_err();
        assert!(
            refused.definite && refused.why.contains("another host key"),
            "{refused:?}"
        );
        assert_eq!(names(&folder).len(), 3);
    });
}

/// In place of the kernel's: what it knows, and what it says when it is to load something.
fn modprobe(site: &Site, is_known: bool, says: &str) {
    let known = if is_known { "exit 0" } else { "exit 1" };
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *dry-run*) {known};; esac\necho \"$*: {says}\" >&2\nexit 1\n"
    );
    site.root.write("usr/sbin/modprobe", 0o755, script);
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn a_node_is_asked_for_its_bmc_and_says_why_there_is_nothing_to_be_had() {
    let name = "a_node_is_asked_for_its_bmc_and_says_why_there_is_nothing_to_be_had";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        site.install(name, Pin::Made);
        site.start_sshd();
        let asked = |site: &Site, ask: Ask| {
            let node = node();
            site.runtime.block_on(site.keys.ask_bmc(&node, ask))
        };
        let failed = |told: Told| match told.outcome {
            Outcome::Failed { reason } => reason,
            other => panic!("{other:?}"),
        };

        modprobe(&site, true, "could not insert 'ipmi_si': No such device");
        for ask in Ask::ALL {
            let none = Told {
                bmc: None,
                outcome: Outcome::Ready,
            };
            assert_eq!(asked(&site, ask), Ok(none));
            site.has_logged(&[
                "sudo",
                &format!("COMMAND=/usr/bin/firstlight-bootstrap bmc {}", ask.word()),
            ]);
        }
        modprobe(&site, false, "not found");
        let reason = failed(asked(&site, Ask::Make).unwrap());
        assert!(reason.contains("no module ipmi_si"), "{reason}");
        modprobe(&site, true, "Key was rejected by service");
        let reason = failed(asked(&site, Ask::Make).unwrap());
        let said = "does not take the module ipmi_si: --use-blacklist ipmi_si: Key was rejected";
        assert!(reason.contains(said), "{reason}");

        // What is there is no BMC.
        site.root.write("dev/ipmi0", 0o600, "");
        let told = asked(&site, Ask::Make).unwrap();
        assert_eq!(told.bmc, Some(Bmc::default()));
        let reason = failed(told);
        assert!(reason.starts_with("it cannot be spoken to"), "{reason}");
        // Another order is at work there.
        let lock = [
            "flock",
            "--no-fork",
            "/run/firstlight-bmc.lock",
            "sleep",
            "600",
        ];
        let holder = Running(site.root.command(&lock).spawn().unwrap());
        let since = Instant::now();
        while !failed(asked(&site, Ask::Make).unwrap()).contains("still at work") {
            assert!(since.elapsed() < PATIENCE, "it is not refused");
        }
        drop(holder);

        // By a version whose list does not have it yet.
        let list = site.root.read("etc/sudoers.d/firstlight");
        let older = list.split(", /usr/bin/firstlight-bootstrap bmc").next();
        let older = format!("{}\n", older.unwrap());
        site.root.write("etc/sudoers.d/firstlight", 0o440, older);
        let refused = asked(&site, Ask::Look);
        assert!(
            matches!(&refused, Err(SshError::Refused(text)) if text.contains("is not allowed to execute")),
            "{refused:?}"
        );
    });
}

/// Serves these bytes, which no kernel is made of, to whoever asks.
fn serve(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/boot/kernel", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(bytes).unwrap();
        }
    });
    url
}

/// The kernel is this machine's own: it is offered nothing that it could take.
#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn a_node_that_cannot_start_the_ramdisk_says_why_and_goes_on() {
    let name = "a_node_that_cannot_start_the_ramdisk_says_why_and_goes_on";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        site.install(name, Pin::Made);
        site.start_sshd();
        let url = serve(b"no kernel");
        // `printf 'no kernel' | sha256sum`
        let sha256 = "7ae1ec2e71e85d5ff3ff8fcb88cf886c96c8fde8496996826e99be74e76ec95d";
        let order = |sha256: &str| {
            let file = RemoteFile {
                url: url.clone(),
                sha256: sha256.to_owned(),
                bytes: 9,
            };
            RamdiskOrder {
                kernel: file.clone(),
                initrd: file,
                options: "quiet".to_owned(),
            }
        };
        let started = |order: RamdiskOrder| {
            let node = node();
            let start = site.keys.start_ramdisk(&node, &order);
            match site.runtime.block_on(start) {
                Err(SshError::Failed { code: 1, text }) => text,
                other => panic!("{other:?}"),
            }
        };
        let said = started(order(&"ab".repeat(32)));
        assert!(said.contains("its SHA-256 is another one"), "{said}");
        let said = started(order(sha256));
        let reasons = [
            "does not take it",
            "has no signature",
            "kexec_load_disabled is 1",
        ];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
        let said = started(RamdiskOrder {
            options: "a\nb".to_owned(),
            ..order(sha256)
        });
        assert!(said.contains("no kernel takes its command line"), "{said}");
        assert_eq!(site.root.read("systemctl.log"), "", "its system has ended");
        site.has_logged(&["COMMAND=/usr/bin/firstlight-bootstrap kexec 52:54:00:00:00:01"]);
    });
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn nobody_else_gets_in() {
    let name = "nobody_else_gets_in";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        site.install(name, Pin::Made);
        let user = ssh::user(node().mac);
        for command in [
            "useradd --create-home --shell /bin/sh admin",
            "echo admin:secret | chpasswd",
            &format!("echo {user}:secret | chpasswd"),
        ] {
            site.root.run(&["sh", "-c", command]);
        }
        // As user data may ask for.
        let lax = "PasswordAuthentication yes\nKbdInteractiveAuthentication yes\n";
        let file = "etc/ssh/sshd_config.d/50-cloud-init.conf";
        site.root.write(file, 0o644, lax);
        site.start_sshd();
        assert!(site.person(&user, &[]).status.success());
        let password = [
            "-o",
            "PreferredAuthentications=password,keyboard-interactive",
        ];
        for (user, options) in [("admin", &[][..]), ("admin", &password), (&user, &password)] {
            let refused = site.person(user, options);
            let text = String::from_utf8_lossy(&refused.stderr);
            assert!(refused.stdout.is_empty(), "{user} {options:?}");
            assert!(text.contains("Permission denied (publickey)."), "{text}");
        }

        // Another box, or the key of another node, for this node's user.
        let other = Keys::new(site.dir.path().join("other"), PORT);
        site.runtime
            .block_on(other.prepare(node().mac, Pin::FirstSight))
            .unwrap();
        let refused = site.run_with(&other, &["firstlight-bootstrap", "packages"], b"");
        assert!(
            matches!(&refused, Err(SshError::Refused(text)) if text.contains("Permission denied")),
            "{refused:?}"
        );
    });
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn a_machine_with_another_host_key_is_told_nothing() {
    let name = "a_machine_with_another_host_key_is_told_nothing";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        let command = ["firstlight-bootstrap", "packages"];
        for pin in [Pin::Made, Pin::FirstSight] {
            drop(fs::remove_dir_all(site.root.path("var/lib/cloud")));
            site.install(name, pin);
            if pin == Pin::FirstSight {
                site.root
                    .run(&["sh", "-c", "rm -f /etc/ssh/ssh_host_*; ssh-keygen -A"]);
            }
            site.start_sshd();
            site.run(&command).unwrap();
            let dir = site.dir.path().join("keys/52-54-00-00-00-01");
            let print = |file: &Path| {
                let listed = Command::new("ssh-keygen").arg("-lf").arg(file).output();
                let text = String::from_utf8(listed.unwrap().stdout).unwrap();
                text.split(' ').nth(1).unwrap().to_owned()
            };
            let known = print(&dir.join("known_hosts"));

            let make = |kind: &str| {
                format!(
                    "rm -f /etc/ssh/ssh_host_*; ssh-keygen -q -t {kind} -N '' -f /etc/ssh/ssh_host_ed25519_key"
                )
            };
            for kind in ["ed25519", "ecdsa"] {
                site.root.run(&["sh", "-c", &make(kind)]);
                site.start_sshd();
                let shown = print(&site.root.path("etc/ssh/ssh_host_ed25519_key.pub"));
                let expected = SshError::HostKeyMismatch {
                    address: Ipv4Addr::LOCALHOST,
                    shown,
                    known: known.clone(),
                    dir: dir.clone(),
                };
                assert_eq!(site.run(&command), Err(expected), "{pin:?} {kind}");
                let restart = site.restart(node().mac, Towards::Network);
                assert!(restart.unwrap_err().to_string().contains("sudo rm "));
                assert!(!site.sshd_log().contains("Accepted"), "{}", site.sshd_log());
            }
            // What the message says brings it back.
            fs::remove_file(dir.join("known_hosts")).unwrap();
            site.run(&command).unwrap();
        }
    });
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn a_power_cut_between_any_two_steps_is_made_good_at_the_next_start() {
    let name = "a_power_cut_between_any_two_steps_is_made_good_at_the_next_start";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        site.install(name, Pin::Made);
        let (key, again) = (
            site.root.read("etc/ssh/ssh_host_ed25519_key"),
            |site: &Site| {
                // The same drive, and bootstrap data that is here already.
                let key = site.runtime.block_on(site.keys.public(node().mac)).unwrap();
                let told = json!({
                    "metaData": {"firstlight_access": {
                        "user": ssh::user(node().mac), "mac": MAC, "key": key.as_str(),
                    }},
                    "hostKey": null,
                });
                site.root.play(name, &told.to_string());
            },
        );
        site.start_sshd();
        for lost in [
            "true",
            "sed -i /^box-/d /etc/shadow",
            "sed -i /^box-/d /etc/passwd",
            "sed -i /^box-/d /etc/shadow /etc/passwd /etc/group /etc/gshadow",
            "rm -r /var/lib/firstlight/access",
            "rm /etc/sudoers.d/firstlight",
            "echo cut >/etc/sudoers.d/firstlight",
        ] {
            site.root.run(&["sh", "-c", lost]);
            again(&site);
            let ran = site.run(&["firstlight-bootstrap", "packages"]);
            assert_eq!(ran, Ok(vec![]), "{lost}: {}", site.sshd_log());
            let locked = site.root.run(&["passwd", "-S", &ssh::user(node().mac)]);
            let text = String::from_utf8(locked.stdout).unwrap();
            assert_eq!(text.split(' ').nth(1), Some("L"), "{lost}: {text}");
        }
        let listed = site
            .root
            .run(&["stat", "-c", "%a %U", "/etc/sudoers.d/firstlight"]);
        assert_eq!(listed.stdout, b"440 root\n");
        site.root.run(&["visudo", "-c", "-q"]);
        assert_eq!(site.root.read("etc/ssh/ssh_host_ed25519_key"), key);
    });
}

#[test]
#[ignore = "needs FIRSTLIGHT_ROOT and FIRSTLIGHT_BOOTSTRAP: scripts/test-nodes"]
fn a_system_of_an_older_box_restarts_by_the_operators_login() {
    let name = "a_system_of_an_older_box_restarts_by_the_operators_login";
    with_root(name, bootstrap, |tree| {
        let mut site = Site::new(tree);
        let prepared = site.keys.prepare(node().mac, Pin::FirstSight);
        let key = site.runtime.block_on(prepared).unwrap();
        site.root.run(&[
            "sh",
            "-c",
            "useradd --create-home --shell /bin/sh debian; ssh-keygen -A",
        ]);
        let keys = "home/debian/.ssh/authorized_keys";
        site.root.write(keys, 0o644, key.as_str());
        let all = "debian ALL=(ALL) NOPASSWD:ALL\n";
        site.root.write("etc/sudoers.d/90-cloud-init", 0o440, all);
        site.start_sshd();
        site.restart(node().mac, Towards::Disk).unwrap();
        assert_eq!(site.root.read("systemctl.log"), "reboot --no-block\n");
    });
}
