//! What a person at a desk does with the box's store.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::scene::Scene;
use crate::typed::firstlight;

const PORT: u16 = 80;

/// `firstlight push`, through a tunnel to the box's loopback.
pub fn push(scene: &Scene<'_>, file: &Path, more: &[&str]) -> Result<()> {
    let tunnel = scene.box_ssh().tunnel(PORT)?;
    let page = format!("http://{}", tunnel.address);
    let file = file.to_str().context("the path is not text")?;
    let words = ["push", "--box", page.as_str(), file];
    firstlight(words.into_iter().chain(more.iter().copied())).map(drop)
}

/// Asks for the deletion of the artifact of this name; the answer's status and its sentence.
pub fn delete(scene: &Scene<'_>, name: &str) -> Result<String> {
    let mut artifacts = scene.status().artifacts.iter();
    let artifact = artifacts.find(|artifact| artifact.spec.name == name);
    let id = &artifact.with_context(|| format!("no artifact {name}"))?.id;
    let tunnel = scene.box_ssh().tunnel(PORT)?;
    let asked = Command::new("curl")
        .args(["-s", "--retry", "5", "--retry-connrefused", "-X", "DELETE"])
        .args(["-w", "%{stderr}%{http_code} "])
        .arg(format!("http://{}/api/v1/artifacts/{id}", tunnel.address))
        .output()
        .context("starting curl")?;
    let said = [asked.stderr, asked.stdout].concat();
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}
