//! QEMU's monitor (QMP): one JSON object a line; see qemu-qmp-ref.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

pub struct Monitor {
    reader: BufReader<UnixStream>,
}

impl Monitor {
    /// Waits for the greeting, so that a machine is known to run when this returns.
    pub fn open(stream: UnixStream) -> Result<Self> {
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .context("the monitor's socket")?;
        let mut monitor = Self {
            reader: BufReader::new(stream),
        };
        monitor.next().context("waiting for QEMU to start")?;
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Runs one command and returns what it returns.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({"execute": command, "arguments": arguments});
        self.reader
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .with_context(|| format!("QMP {command}"))?;
        loop {
            let mut answer = self.next().with_context(|| format!("QMP {command}"))?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("QMP {command}: {error}");
            }
            // Anything else is an event.
        }
    }

    fn next(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("QEMU ended");
        }
        serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))
    }
}
