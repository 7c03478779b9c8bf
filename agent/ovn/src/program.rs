//! Programs of Open vSwitch, OVN and the kernel's tools, run to their end.

use std::{ffi::OsStr, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;

/// Each of them answers at once, or waits for something that says for how long itself.
const PATIENCE: Duration = Duration::from_secs(90);
const MOST_SAID: usize = 300;

/// As [`run`], with words between spaces.
pub async fn say(name: &str, words: &str) -> Result<String> {
    run(name, words.split_whitespace()).await
}

/// What it printed. An error has what it complained of.
pub async fn run<S: AsRef<OsStr>>(
    name: &str,
    words: impl IntoIterator<Item = S>,
) -> Result<String> {
    let mut command = Command::new(name);
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    let Ok(ended) = tokio::time::timeout(PATIENCE, command.output()).await else {
        bail!("{name} did not end within {} s", PATIENCE.as_secs());
    };
    let output = ended.with_context(|| format!("starting {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(MOST_SAID).collect();
    ensure!(
        output.status.success(),
        "{name} ended with {}: {said}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
