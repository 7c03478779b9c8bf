//! A router of the site (Debian's `GoBGP`), which `MetalLB` tells by BGP where the addresses of services are.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use imagebuilder::build::settings::find_cache;
use serde_json::Value;

const PACKAGE: &str = "gobgpd";
pub const NUMBER: u32 = 64512;
pub const NUMBER_OF_NODES: u32 = 64513;
pub const ADDRESS: &str = "172.22.0.1";

/// Where its programs are; first called outside of the test's namespaces, from which nothing is downloaded. The package is not installed, for it
/// would start a router on whoever's machine this is.
pub fn download() -> Result<PathBuf> {
    let programs = find_cache()?.join("router");
    let daemon = programs.join("usr/bin").join(PACKAGE);
    if daemon.exists() {
        return Ok(programs);
    }
    fs::create_dir_all(&programs)?;
    let downloads = tempfile::tempdir()?;
    run(Command::new("apt-get")
        .args(["download", "-qq", PACKAGE])
        .current_dir(&downloads))?;
    let mut files = downloads.path().read_dir()?;
    let package = files.next().context("apt-get downloaded nothing")??;
    run(Command::new("dpkg")
        .arg("-x")
        .arg(package.path())
        .arg(&programs))?;
    Ok(programs)
}

fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(output.stdout)
}

/// On the cable of the nodes; it takes any of them for a neighbour.
pub struct Router {
    programs: PathBuf,
    daemon: Child,
}

impl Router {
    pub fn start(place: &Path) -> Result<Self> {
        let config = place.join("router.toml");
        let text = format!(
            "[global.config]\nas = {NUMBER}\nrouter-id = \"{ADDRESS}\"\n\
             [[peer-groups]]\n[peer-groups.config]\npeer-group-name = \"nodes\"\npeer-as = {NUMBER_OF_NODES}\n\
             [[dynamic-neighbors]]\n[dynamic-neighbors.config]\nprefix = \"172.22.0.0/24\"\npeer-group = \"nodes\"\n"
        );
        fs::write(&config, text)?;
        let log = File::create(place.join("router.log"))?;
        let programs = download()?.join("usr/bin");
        let daemon = Command::new(programs.join(PACKAGE))
            .arg("-f")
            .arg(config)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting the router")?;
        Ok(Self { programs, daemon })
    }

    /// The nodes to which packets for this address go.
    pub fn way_to(&self, address: &str) -> Result<Vec<String>> {
        let words = ["global", "rib", "-j"];
        let table = run(Command::new(self.programs.join("gobgp")).args(words))?;
        let table: Value = serde_json::from_slice(&table).context("the table of routes")?;
        let paths = table[format!("{address}/32")].as_array();
        let attributes = paths
            .into_iter()
            .flatten()
            .filter_map(|path| path["attrs"].as_array());
        let next = attributes
            .flatten()
            .filter_map(|attribute| Some(attribute["nexthop"].as_str()?.to_owned()));
        Ok(next.collect())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}
