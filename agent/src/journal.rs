//! Log lines with their level for the journal (`sd-daemon(3)`): it takes what comes without one for information, and only
//! warnings outlive a power cut (`warnings`).

use std::io::{self, Write};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Standard error, if it is the journal's with a level before each line.
#[derive(Clone, Copy, Debug)]
pub struct Stderr {
    is_journal: bool,
}

impl Stderr {
    /// systemd says where standard error leads.
    pub fn open() -> Self {
        Self {
            is_journal: std::env::var_os("JOURNAL_STREAM").is_some(),
        }
    }
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Prefixed;

    fn make_writer(&'a self) -> Prefixed {
        Prefixed { prefix: "" }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Prefixed {
        let prefix = if self.is_journal {
            prefix(*meta.level())
        } else {
            ""
        };
        Prefixed { prefix }
    }
}

fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Takes one event, whole.
#[derive(Debug)]
pub struct Prefixed {
    prefix: &'static str,
}

impl Write for Prefixed {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // In one piece: other threads write, too.
        let line = [self.prefix.as_bytes(), event].concat();
        io::stderr().write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
