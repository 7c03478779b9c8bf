//! A running virtual machine. It ends with its [`Vm`], and with the program that started it.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;
use serde_json::json;

use super::console::Console;
use super::qemu::{Accel, Begin, BootFirst, Flash, Sockets, VmSpec, command_line, environment};
use super::qmp::Monitor;
use super::tools;

/// How often QEMU is asked how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// More than any pipe carries: a machine that is stopped has nothing else to do.
const UNLIMITED: u64 = 64 << 30;

/// What a machine runs in.
pub struct Setting<'a> {
    pub accel: Accel,
    /// Of its process, for its clock.
    pub environment: &'a [(&'a str, String)],
    pub flash: Option<&'a Flash>,
    /// Its end of the cable.
    pub wire: UnixStream,
    /// Of its second NIC.
    pub second_wire: Option<UnixStream>,
    /// Gets `NAME.console` and `NAME.qemu.log`.
    pub dir: &'a Path,
    pub begin: Begin,
}

pub struct Vm {
    spec: VmSpec,
    process: Child,
    monitor: Monitor,
    console: Console,
    started: Instant,
    _tpm: Option<Tpm>,
}

impl Vm {
    /// Switches a machine on.
    pub fn start(spec: &VmSpec, setting: Setting<'_>) -> Result<Self> {
        let Setting {
            accel,
            environment: clock,
            flash,
            wire,
            second_wire,
            dir,
            begin,
        } = setting;
        let qemu = tools::find_program("qemu-system-x86_64", "qemu-system-x86")?;
        let (console, guest_console) = UnixStream::pair().context("a socket for the console")?;
        let (monitor, guest_monitor) = UnixStream::pair().context("a socket for the monitor")?;
        let tpm = spec.tpm.then(|| Tpm::start(&spec.name, dir)).transpose()?;
        let sockets = Sockets {
            console: guest_console.as_raw_fd(),
            monitor: guest_monitor.as_raw_fd(),
            wire: wire.as_raw_fd(),
            second_wire: second_wire.as_ref().map(AsRawFd::as_raw_fd),
            tpm: tpm.as_ref().map(|(_, socket)| socket.as_raw_fd()),
        };
        let log = dir.join(format!("{}.qemu.log", spec.name));
        let mut command = Command::new(qemu);
        command
            .args(command_line(spec, accel, flash, sockets, begin))
            .envs(environment(accel))
            .envs(clock.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).with_context(|| format!("creating {}", log.display()))?)
            // Ctrl-C goes to us alone; we end the machines in order.
            .process_group(0);
        inherit(
            &mut command,
            [sockets.console, sockets.monitor, sockets.wire]
                .into_iter()
                .chain(sockets.second_wire)
                .chain(sockets.tpm)
                .collect(),
        );
        let started = Instant::now();
        let mut process = command.spawn().context("starting qemu-system-x86_64")?;
        drop((guest_console, guest_monitor, wire, second_wire));
        let tpm = tpm.map(|(tpm, _)| tpm);
        let console = Console::record(
            console,
            &dir.join(format!("{}.console", spec.name)),
            started,
        );
        let running = console
            .context("recording the console")
            .and_then(|console| Ok((console, Monitor::open(monitor)?)));
        match running {
            Ok((console, monitor)) => {
                let mut vm = Self {
                    spec: spec.clone(),
                    process,
                    monitor,
                    console,
                    started,
                    _tpm: tpm,
                };
                match spec.boot {
                    BootFirst::NetworkOnce => vm.boot_once("nic")?,
                    BootFirst::CdOnce => vm.boot_once("cd")?,
                    BootFirst::Disk | BootFirst::Network | BootFirst::Http => {}
                }
                Ok(vm)
            }
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                let said = fs::read_to_string(&log).unwrap_or_default();
                Err(error.context(format!("QEMU did not start {}: {}", spec.name, said.trim())))
            }
        }
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn spec(&self) -> &VmSpec {
        &self.spec
    }

    pub fn console(&self) -> &Console {
        &self.console
    }

    /// When it was switched on.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// An error when the machine switched itself off or QEMU broke.
    pub fn check_running(&mut self) -> Result<()> {
        match self.process.try_wait().context("waiting for QEMU")? {
            None => Ok(()),
            Some(status) => bail!(
                "{} has ended ({status}); last on its console:\n{}",
                self.name(),
                self.console.tail(15)
            ),
        }
    }

    /// The power cord: nothing is flushed, nobody is told.
    pub fn cut_power(mut self) -> Result<()> {
        self.process
            .kill()
            .with_context(|| format!("killing {}", self.spec.name))?;
        self.process
            .wait()
            .map(drop)
            .with_context(|| format!("waiting for {}", self.spec.name))
    }

    /// Ends QEMU in order: its disk files are complete afterwards. For the guest it is still a power cut.
    pub fn switch_off(mut self) -> Result<()> {
        self.monitor.execute("quit", &json!({}))?;
        self.process
            .wait()
            .map(drop)
            .with_context(|| format!("waiting for {}", self.spec.name))
    }

    /// The reset button.
    pub fn reset(&mut self) -> Result<()> {
        self.monitor.execute("system_reset", &json!({})).map(drop)
    }

    /// The firmware reads the order of its devices at each reset.
    fn boot_once(&mut self, device: &str) -> Result<()> {
        let path = format!("/machine/peripheral/{device}");
        let nowhere = json!({"path": path, "property": "bootindex", "value": -1});
        self.monitor.execute("qom-set", &nowhere).map(drop)
    }

    /// Its optical drive is empty then, whatever its system does with it.
    pub fn eject_cd(&mut self) -> Result<()> {
        if self.spec.cd.take().is_none() {
            return Ok(());
        }
        let order = json!({"id": "cd", "force": true});
        self.monitor.execute("eject", &order).map(drop)
    }

    /// A port of loopback that is carried to `port` of the machine, by its card in the office.
    pub fn forward_office(&mut self, port: u16) -> Result<SocketAddr> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        let door = free.local_addr()?;
        drop(free);
        let line = format!("hostfwd_add office tcp:127.0.0.1:{}-:{port}", door.port());
        let said = self
            .monitor
            .execute("human-monitor-command", &json!({"command-line": line}))?;
        let said = said.as_str().unwrap_or_default().trim();
        ensure!(said.is_empty(), "{line}: {said}");
        Ok(door)
    }

    /// The power button: its system is asked to end.
    pub fn press_power_button(&mut self) -> Result<()> {
        self.monitor
            .execute("system_powerdown", &json!({}))
            .map(drop)
    }

    /// Stops its processors, and with them its time.
    pub fn pause(&mut self) -> Result<()> {
        self.monitor.execute("stop", &json!({})).map(drop)
    }

    /// Starts its processors.
    pub fn go_on(&mut self) -> Result<()> {
        self.monitor.execute("cont", &json!({})).map(drop)
    }

    /// Writes the state of a machine that is paused: memory, processors, devices; not its disks.
    pub fn save_state(&mut self, file: &Path) -> Result<()> {
        let limits = json!({"max-bandwidth": UNLIMITED});
        self.monitor.execute("migrate-set-parameters", &limits)?;
        let uri = format!("exec:zstd -q -1 -T2 >{}", quoted(file)?);
        self.monitor.execute("migrate", &json!({"uri": uri}))?;
        self.moved()
            .with_context(|| format!("saving {}", self.spec.name))
    }

    /// Takes over the state of such a machine; it was started to [wait](Begin::Wait) for it, and is paused afterwards.
    pub fn load_state(&mut self, file: &Path) -> Result<()> {
        // QEMU reads no further than the state's own end, and so hears of no wrong checksum behind it.
        let whole = Command::new("zstd").args(["-q", "-t"]).arg(file).output()?;
        ensure!(
            whole.status.success(),
            "{} is damaged: {}",
            file.display(),
            String::from_utf8_lossy(&whole.stderr).trim()
        );
        let uri = format!("exec:zstd -q -d -c {}", quoted(file)?);
        self.monitor
            .execute("migrate-incoming", &json!({"uri": uri}))?;
        self.moved()
            .with_context(|| format!("loading {}", self.spec.name))
    }

    fn moved(&mut self) -> Result<()> {
        loop {
            let state = self.monitor.execute("query-migrate", &json!({}))?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => bail!("QEMU: {state}"),
                _ => std::thread::sleep(LOOK),
            }
        }
    }

    /// The screen as a picture (PNG from QEMU 7.1).
    pub fn screenshot(&mut self, file: &Path) -> Result<()> {
        self.monitor
            .execute("screendump", &json!({"filename": file, "format": "png"}))
            .map(drop)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program that is a machine's TPM; its state is in a folder beside the machine's disk, so that it outlives its power.
struct Tpm(Child);

impl Tpm {
    /// With the machine's end of its cable.
    fn start(machine: &str, dir: &Path) -> Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair().context("a socket for the TPM")?;
        let state = dir.join(format!("{machine}.tpm"));
        fs::create_dir_all(&state).with_context(|| format!("creating {}", state.display()))?;
        let log = dir.join(format!("{machine}.tpm.log"));
        let mut command = Command::new(tools::find_program("swtpm", "swtpm")?);
        command
            .args(["socket", "--tpm2", "--tpmstate"])
            .arg(format!("dir={}", state.display()))
            .arg("--ctrl")
            .arg(format!("type=unixio,clientfd={}", theirs.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).with_context(|| format!("creating {}", log.display()))?)
            .process_group(0);
        inherit(&mut command, vec![theirs.as_raw_fd()]);
        let process = command.spawn().context("starting swtpm")?;
        Ok((Self(process), ours))
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A path as one word of a shell.
fn quoted(file: &Path) -> Result<String> {
    let text = file.to_str().context("the path is not text")?;
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Lets the child have `descriptors`, and ends it when the thread that starts it ends.
pub(super) fn inherit(command: &mut Command, descriptors: Vec<RawFd>) {
    let before_exec = move || -> io::Result<()> {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        for &descriptor in &descriptors {
            // SAFETY: the descriptor is open: its owner lives in `Vm::start` until after the fork.
            #[allow(unsafe_code, reason = "fcntl after fork needs the raw number")]
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
            fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only and allocates nothing.
    #[allow(
        unsafe_code,
        reason = "the one way to set a death signal and inherit descriptors"
    )]
    unsafe {
        command.pre_exec(before_exec);
    }
}

/// A copy of the variable store that a new UEFI machine starts with, unless the machine has one already.
pub fn flash_for(spec: &VmSpec, dir: &Path) -> Result<Option<Flash>> {
    let files = tools::find_firmware(spec.firmware)?;
    let (Some(files), Some(name)) = (files, spec.variables_file()) else {
        return Ok(None);
    };
    let variables: PathBuf = dir.join(name);
    if !variables.exists() {
        // Read and write, not copy: the original may be read-only.
        let fresh = fs::read(files.variables)
            .with_context(|| format!("reading {}", files.variables.display()))?;
        fs::write(&variables, fresh).with_context(|| format!("writing {}", variables.display()))?;
    }
    Ok(Some(Flash {
        code: files.code.to_owned(),
        variables,
    }))
}
