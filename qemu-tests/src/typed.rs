//! What a person at a desk types at the box: `firstlight …`, by SSH through the forwarded port, with the box's host key in a file.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser as _;
use firstlight_api::status::HostStatus;
use imagebuilder::UsageError;
use imagebuilder::cli::Cli;

use crate::scene::Scene;
use crate::ssh::Ssh;

const HOST_KEY: &str = "/var/lib/firstlight/ssh/ssh_host_ed25519_key.pub";

/// A desk, from which the box can be reached.
pub struct Desk {
    door: Ssh,
    known_hosts: PathBuf,
}

impl Desk {
    pub fn new(scene: &Scene<'_>) -> Result<Self> {
        let door = scene.box_ssh();
        let key = door.run(&format!("sudo cat {HOST_KEY}"))?;
        let known_hosts = scene.lab.dir().join("box.keys");
        let (address, port) = (door.door.ip(), door.door.port());
        fs::write(&known_hosts, format!("[{address}]:{port} {key}\n"))
            .with_context(|| format!("writing {}", known_hosts.display()))?;
        Ok(Self { door, known_hosts })
    }

    /// `firstlight hosts WORDS`: what it prints.
    pub fn hosts(&self, words: &[&str]) -> Result<String> {
        self.types(&[&["hosts"], words].concat())
    }

    /// `firstlight WORDS`, of a command that asks the box by SSH: what it prints.
    pub fn types(&self, words: &[&str]) -> Result<String> {
        let the_box = format!("admin@{}", self.door.door.ip());
        let port = self.door.door.port().to_string();
        let [key, known_hosts] = [&self.door.key, &self.known_hosts].map(|path| path.to_str());
        let way = [
            ("--box", the_box.as_str()),
            ("--port", port.as_str()),
            ("--identity", key.context("the path is not text")?),
            (
                "--known-hosts",
                known_hosts.context("the path is not text")?,
            ),
        ];
        let way = way.iter().flat_map(|(flag, value)| [*flag, *value]);
        firstlight(words.iter().copied().chain(way))
    }

    /// As a program reads it.
    pub fn show(&self, name: &str) -> Result<HostStatus> {
        let said = self.hosts(&["show", name, "--output", "json"])?;
        serde_json::from_str(&said).with_context(|| format!("firstlight hosts show: {said}"))
    }

    /// The sentence with which it is refused before anything is written.
    pub fn refused(&self, words: &[&str]) -> Result<String> {
        match self.hosts(words) {
            Ok(said) => bail!("`firstlight hosts {}` was done: {said}", words.join(" ")),
            Err(error) => match error.downcast::<UsageError>() {
                Ok(UsageError(why)) => Ok(why),
                Err(other) => Err(other),
            },
        }
    }
}

/// The program's command line.
pub fn firstlight<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let arguments = ["firstlight"].into_iter().chain(arguments);
    Cli::try_parse_from(arguments)?.run()
}
