//! What a person in front of the machine sees: every line goes to all consoles, and to the kernel's log, where the box's
//! journal finds it later.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};

use nix::libc::{O_NOCTTY, O_NONBLOCK};
use nix::time::{ClockId, clock_gettime};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Starts logging. Needs `/dev`, `/proc` and `/sys`; what cannot be opened is left out.
pub fn start_logging(level: tracing::Level) {
    // By default the kernel takes ten lines in five seconds from us and drops the rest.
    let _ = std::fs::write("/proc/sys/kernel/printk_devkmsg", "on");
    let consoles = Consoles(Arc::new(Mutex::new(Sinks::open())));
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false)
        .with_timer(SinceBoot);
    if builder
        .with_writer(move || consoles.clone())
        .try_init()
        .is_err()
    {
        tracing::debug!("logging was started before");
    }
}

/// Seconds since the kernel started, as the kernel's own messages have it.
struct SinceBoot;

impl FormatTime for SinceBoot {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_err(|_| std::fmt::Error)?;
        write!(
            out,
            "[{:5}.{:03}] firstlight:",
            now.tv_sec(),
            now.tv_nsec() / 1_000_000
        )
    }
}

struct Sinks {
    consoles: Vec<File>,
    kernel_log: Option<File>,
}

impl Sinks {
    fn open() -> Self {
        let open = |path: &str| {
            OpenOptions::new()
                .write(true)
                .custom_flags(O_NOCTTY | O_NONBLOCK)
                .open(path)
                .ok()
        };
        // Without `quiet` the kernel shows its log on the consoles itself: once is enough.
        let levels = std::fs::read_to_string("/proc/sys/kernel/printk").unwrap_or_default();
        let shown = levels
            .split_whitespace()
            .next()
            .and_then(|level| level.parse().ok())
            .is_some_and(|level: u32| level > 6);
        let active = if shown {
            String::new()
        } else {
            std::fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default()
        };
        let consoles = active
            .split_whitespace()
            .filter_map(|name| open(&format!("/dev/{name}")))
            .collect();
        Self {
            consoles,
            kernel_log: open("/dev/kmsg"),
        }
    }
}

#[derive(Clone)]
struct Consoles(Arc<Mutex<Sinks>>);

impl Write for Consoles {
    /// One call is one line. A console that fails (a BMC's serial line that nobody reads) must not stop the machine.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for console in &mut sinks.consoles {
            let _ = console.write_all(line);
        }
        if let Some(log) = &mut sinks.kernel_log {
            // The kernel adds its own time, so ours (all before the colon) is cut. 30 = daemon, info; `quiet` hides it.
            let message = line
                .windows(2)
                .position(|pair| pair == b": ")
                .map_or(line, |at| &line[at + 2..]);
            let _ = log.write_all(&[b"<30>firstlight: ", message].concat());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
