//! Runs the programs of a step, with everything they say in the step's log.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Lines of the log that an error repeats.
const TAIL: usize = 15;

/// The log of one step, and what its programs have in common.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
    environment: Vec<(String, String)>,
}

impl Log {
    /// Starts an empty log.
    pub fn create(path: PathBuf) -> Result<Self> {
        File::create(&path).with_context(|| format!("creating the log {}", path.display()))?;
        Ok(Self {
            path,
            environment: Vec::new(),
        })
    }

    /// Variables for the step's programs, in capitals and in small letters, since half of all programs read either. What whoever builds has in
    /// the environment already comes first.
    #[must_use]
    pub fn with_environment(mut self, variables: &[(&'static str, String)]) -> Self {
        let new = variables.iter().flat_map(|(name, value)| {
            let names = [(*name).to_owned(), name.to_lowercase()];
            let own = names.iter().any(|name| std::env::var_os(name).is_some());
            let names = names.into_iter().filter(move |_| !own);
            names.map(|name| (name, value.clone()))
        });
        self.environment.extend(new);
        self
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line of our own.
    pub fn note(&self, line: &str) -> Result<()> {
        writeln!(self.open()?, "{line}").with_context(|| format!("writing {}", self.path.display()))
    }

    fn open(&self) -> Result<File> {
        OpenOptions::new()
            .append(true)
            .open(&self.path)
            .with_context(|| format!("opening the log {}", self.path.display()))
    }

    fn tail(&self) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n    ")
    }
}

/// A program with its arguments; a thin layer over [`Command`] that logs and explains failures.
#[derive(Debug)]
pub struct Program {
    command: Command,
    log: Log,
    input: Option<PathBuf>,
    name: Option<String>,
}

impl Program {
    pub fn new(program: impl AsRef<OsStr>, log: &Log) -> Self {
        let mut command = Command::new(program);
        command.envs(log.environment.iter().map(|(name, value)| (name, value)));
        Self {
            command,
            log: log.clone(),
            input: None,
            name: None,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    #[must_use]
    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// What errors call it, where the program itself is only a loader.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Standard input comes from this file; without it, it is empty.
    #[must_use]
    pub fn input(mut self, path: &Path) -> Self {
        self.input = Some(path.to_owned());
        self
    }

    /// Runs to the end; standard output and error go to the log.
    pub fn run(mut self) -> Result<()> {
        self.log.note(&format!("$ {}", self.describe()))?;
        self.connect_input()?;
        self.command
            .stdout(self.log.open()?)
            .stderr(self.log.open()?);
        let status = self
            .command
            .status()
            .with_context(|| format!("starting {}", self.name()))?;
        if !status.success() {
            bail!(
                "{} failed ({status}); the last lines of {}:\n    {}",
                self.name(),
                self.log.path.display(),
                self.log.tail()
            );
        }
        Ok(())
    }

    /// Runs to the end and returns standard output as text; standard error goes to the log.
    pub fn read(mut self) -> Result<String> {
        self.log.note(&format!("$ {}", self.describe()))?;
        self.connect_input()?;
        self.command.stdout(Stdio::piped()).stderr(self.log.open()?);
        let output = self
            .command
            .output()
            .with_context(|| format!("starting {}", self.name()))?;
        if !output.status.success() {
            bail!(
                "{} failed ({}); see {}",
                self.name(),
                output.status,
                self.log.path.display()
            );
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("{} wrote something that is not text", self.name()))
    }

    fn connect_input(&mut self) -> Result<()> {
        let input = match &self.input {
            Some(path) => Stdio::from(
                File::open(path).with_context(|| format!("opening {}", path.display()))?,
            ),
            None => Stdio::null(),
        };
        self.command.stdin(input);
        Ok(())
    }

    fn name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        Path::new(self.command.get_program())
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    fn describe(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failure_names_the_log_and_shows_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(dir.path().join("step.log")).unwrap();
        let error = Program::new("sh", &log)
            .args(["-c", "echo no such package >&2; exit 3"])
            .run()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("exit status: 3")
                && error.contains("no such package")
                && error.contains("step.log"),
            "{error}"
        );
    }

    #[test]
    fn standard_output_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(dir.path().join("step.log")).unwrap();
        std::fs::write(dir.path().join("in"), "given").unwrap();
        assert_eq!(
            Program::new("cat", &log)
                .input(&dir.path().join("in"))
                .read()
                .unwrap(),
            "given"
        );
    }
}
