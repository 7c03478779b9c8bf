//! Pushes to the box's registry as a person does: through an SSH tunnel to its loopback, by the distribution protocol.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::ssh::Ssh;

const PORT: u16 = 5001;
const TUNNEL: Duration = Duration::from_mins(2);
const MANIFESTS: &str = "Accept: application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.oci.image.index.v1+json";

/// Makes `to` (`NAME:TAG`) an image of its own, out of the blobs of the first tag of `from`.
pub fn copy(ssh: &Ssh, from: &str, to: &str) -> Result<()> {
    let tunnel = ssh.tunnel(PORT)?;
    let registry = format!("http://{}/v2", tunnel.address);
    let since = Instant::now();
    while let Err(error) = curl(&["--output", "/dev/null", &format!("{registry}/")]) {
        ensure!(
            since.elapsed() < TUNNEL,
            "no way to the registry: {error:#}"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
    let tags = json(&curl(&[&format!("{registry}/{from}/tags/list")])?)?;
    let tag = tags["tags"][0].as_str().context("the image has no tag")?;
    let manifest = curl(&[
        "--header",
        MANIFESTS,
        &format!("{registry}/{from}/manifests/{tag}"),
    ])?;
    let parsed = json(&manifest)?;
    let kind = parsed["mediaType"].as_str().context("no media type")?;
    let (name, tag) = to.split_once(':').context("an image is NAME:TAG")?;
    let layers = parsed["layers"].as_array().into_iter().flatten();
    for blob in layers.chain([&parsed["config"]]) {
        let digest = blob["digest"].as_str().context("a blob without a digest")?;
        let mount = format!("{registry}/{name}/blobs/uploads/?mount={digest}&from={from}");
        curl(&["--request", "POST", &mount])?;
    }
    curl(&[
        "--request",
        "PUT",
        "--header",
        &format!("Content-Type: {kind}"),
        "--data-binary",
        &manifest,
        &format!("{registry}/{name}/manifests/{tag}"),
    ])?;
    Ok(())
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("not JSON: {text}"))
}

fn curl(arguments: &[&str]) -> Result<String> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--max-time", "60"])
        .args(arguments)
        .output()
        .context("starting curl")?;
    ensure!(
        output.status.success(),
        "curl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}
