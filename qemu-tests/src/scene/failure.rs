//! What is left of a story that failed.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use imagebuilder::build::settings::find_cache;
use imagebuilder::page::read_status;

use super::Scene;

impl Scene<'_> {
    /// Writes down what a person needs to find out why: consoles, status, journal, capture; returns the directory.
    pub fn write_failure(&mut self, error: &anyhow::Error) -> Result<PathBuf> {
        let stamp = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let dir = failures()?.join(format!("{}-{stamp}", slug(self.story)));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("error.txt"), format!("{error:#}\n"))?;
        let seen = read_status(self.page).unwrap_or_else(|_| self.seen.clone());
        fs::write(
            dir.join("status.json"),
            serde_json::to_string_pretty(&seen)?,
        )?;
        if self.the_box.is_some() {
            let journal = self.box_ssh().run("sudo journalctl -b --no-pager");
            fs::write(
                dir.join("journal.txt"),
                journal.unwrap_or_else(|error| format!("{error:#}")),
            )?;
        }
        for entry in fs::read_dir(self.lab.dir())?.flatten() {
            let name = entry.file_name();
            let text = [".console", ".qemu.log"]
                .iter()
                .any(|end| name.to_string_lossy().ends_with(end));
            if text {
                fs::copy(entry.path(), dir.join(&name))?;
            }
        }
        for vm in self.the_box.iter_mut().chain(&mut self.servers) {
            let picture = dir.join(format!("{}.png", vm.name()));
            let _ = vm.screenshot(&picture);
            let _ = writeln!(
                std::io::stdout(),
                "--- last on the console of {}\n{}",
                vm.name(),
                vm.console().tail(12)
            );
        }
        Ok(dir)
    }
}

/// A directory that outlives the run.
pub fn failures() -> Result<PathBuf> {
    let dir = find_cache()?.join("failures");
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

pub fn slug(story: &str) -> String {
    story
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}
