//! What orders do to the server they run on; tests put another one in its place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use crate::files::{NewFile, write_files};

const LOCK: &str = "/run/firstlight-packages.lock";
/// A large package on a slow disk takes minutes.
const PATIENCE: Duration = Duration::from_mins(10);
const AGAIN: Duration = Duration::from_secs(1);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Debian's packages and hooks make it when what they changed counts only after a restart.
const REBOOT: &str = "/run/reboot-required";
/// Nobody is there to be asked, a changed file of the administrator's stays, and services restart only as their packages say.
const ENVIRONMENT: [(&str, &str); 7] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", "/root"),
    ("LC_ALL", "C"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("APT_LISTCHANGES_FRONTEND", "none"),
    ("UCF_FORCE_CONFFOLD", "1"),
    ("NEEDRESTART_SUSPEND", "1"),
];

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    pub is_success: bool,
    /// Everything that it said, in the order in which it said it.
    pub text: String,
}

pub trait Server {
    type Lock;
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<CommandOutput>;
    /// Only one order at a time changes this server.
    fn lock(&mut self) -> Result<Self::Lock>;
    /// Below `/`; what is there with this content already stays.
    fn write(&mut self, files: &[NewFile]) -> Result<()>;
    fn is_there(&mut self, path: &str) -> bool;
    /// `None`: it is not there.
    fn read(&mut self, path: &str) -> Result<Option<String>>;
    /// One that is not there is no error.
    fn remove(&mut self, path: &str) -> Result<()>;
    fn boot_id(&mut self) -> Result<String>;
    fn reboot_needed(&mut self) -> bool;
    /// Returns while the server is still going down.
    fn restart(&mut self) -> Result<()>;
}

/// The server that this program runs on.
#[derive(Debug)]
pub struct ThisServer;

impl Server for ThisServer {
    type Lock = Flock<File>;

    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<CommandOutput> {
        let start = || -> io::Result<CommandOutput> {
            let (mut reader, writer) = io::pipe()?;
            let mut command = Command::new(program);
            command
                .args(arguments)
                .current_dir("/")
                .env_clear()
                .envs(ENVIRONMENT)
                .stdin(Stdio::null())
                .stdout(writer.try_clone()?)
                .stderr(writer);
            let mut child = command.spawn()?;
            // The ends of the pipe that are still open here would keep it from ending.
            drop(command);
            let mut text = Vec::new();
            reader.read_to_end(&mut text)?;
            Ok(CommandOutput {
                is_success: child.wait()?.success(),
                text: String::from_utf8_lossy(&text).into_owned(),
            })
        };
        start().with_context(|| format!("running {program}"))
    }

    fn lock(&mut self) -> Result<Flock<File>> {
        let open = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(LOCK);
        let mut file = open.with_context(|| format!("opening {LOCK}"))?;
        let began = Instant::now();
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((back, Errno::EWOULDBLOCK)) if began.elapsed() < PATIENCE => file = back,
                Err((_, Errno::EWOULDBLOCK)) => bail!(
                    "another order of the box has been at work here for {} minutes; see what dpkg waits for",
                    PATIENCE.as_secs() / 60
                ),
                Err((_, error)) => return Err(error).with_context(|| format!("locking {LOCK}")),
            }
            thread::sleep(AGAIN);
        }
    }

    fn write(&mut self, files: &[NewFile]) -> Result<()> {
        write_files(Path::new("/"), files)
    }

    fn is_there(&mut self, path: &str) -> bool {
        Path::new(path).exists()
    }

    fn read(&mut self, path: &str) -> Result<Option<String>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {path}")),
        }
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {path}"))
            }
            _ => Ok(()),
        }
    }

    fn boot_id(&mut self) -> Result<String> {
        let text = fs::read_to_string(BOOT_ID).with_context(|| format!("reading {BOOT_ID}"))?;
        Ok(text.trim().to_owned())
    }

    fn reboot_needed(&mut self) -> bool {
        Path::new(REBOOT).exists()
    }

    fn restart(&mut self) -> Result<()> {
        let said = self.run("systemctl", &["reboot", "--no-block"])?;
        ensure!(said.is_success, "systemctl reboot: {}", said.text.trim());
        Ok(())
    }
}
