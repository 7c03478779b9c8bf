//! Pushes to the box's registry and pulls from it as a person does: through an SSH tunnel to its loopback, by the distribution
//! protocol.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use imagebuilder::build::cache::digest_file;
use serde_json::{Value, json};

use crate::ssh::{Ssh, Tunnel};

const PORT: u16 = 5001;
const TUNNEL: Duration = Duration::from_mins(2);
const MANIFESTS: &str = "Accept: application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.oci.image.index.v1+json";

/// Makes `to` (`NAME:TAG`) an image of its own, out of the blobs of the first tag of `from`.
pub fn copy(ssh: &Ssh, from: &str, to: &str) -> Result<()> {
    let tunnel = ssh.tunnel(PORT)?;
    let registry = wait_for_registry(&tunnel)?;
    let (manifest, parsed) = manifest_of(&registry, from)?;
    let kind = parsed["mediaType"].as_str().context("no media type")?;
    let (name, tag) = to.split_once(':').context("an image is NAME:TAG")?;
    for digest in blobs(&parsed)? {
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

/// Writes the first tag of `from` to `archive`, in the OCI layout that `docker save` and others write.
pub fn save(ssh: &Ssh, from: &str, archive: &Path) -> Result<()> {
    let tunnel = ssh.tunnel(PORT)?;
    let registry = wait_for_registry(&tunnel)?;
    let (manifest, parsed) = manifest_of(&registry, from)?;
    let layout = archive.with_extension("layout");
    let folder = layout.join("blobs/sha256");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for digest in blobs(&parsed)? {
        let file = folder.join(digest.trim_start_matches("sha256:"));
        let file = file.to_str().context("the path is not text")?;
        curl(&[
            "--output",
            file,
            &format!("{registry}/{from}/blobs/{digest}"),
        ])?;
    }
    let named = folder.join("manifest");
    fs::write(&named, &manifest).with_context(|| format!("writing {}", named.display()))?;
    let digest = digest_file(&named)?;
    fs::rename(&named, folder.join(&digest)).context("naming the manifest")?;
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{"mediaType": parsed["mediaType"], "digest": format!("sha256:{digest}"), "size": manifest.len()}],
    });
    for (name, text) in [
        ("index.json", index),
        ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
    ] {
        fs::write(layout.join(name), text.to_string())
            .with_context(|| format!("writing {name}"))?;
    }
    let packed = Command::new("tar")
        .arg("-cf")
        .arg(archive)
        .arg("-C")
        .arg(&layout)
        .arg(".")
        .status()
        .context("starting tar")?;
    ensure!(packed.success(), "tar: {packed}");
    Ok(())
}

fn wait_for_registry(tunnel: &Tunnel) -> Result<String> {
    let registry = format!("http://{}/v2", tunnel.address);
    let since = Instant::now();
    while let Err(error) = curl(&["--output", "/dev/null", &format!("{registry}/")]) {
        ensure!(
            since.elapsed() < TUNNEL,
            "no way to the registry: {error:#}"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(registry)
}

/// As it is, and read.
fn manifest_of(registry: &str, name: &str) -> Result<(String, Value)> {
    let tags = parse(&curl(&[&format!("{registry}/{name}/tags/list")])?)?;
    let tag = tags["tags"][0].as_str().context("the image has no tag")?;
    let manifest = curl(&[
        "--header",
        MANIFESTS,
        &format!("{registry}/{name}/manifests/{tag}"),
    ])?;
    let parsed = parse(&manifest)?;
    Ok((manifest, parsed))
}

fn blobs(manifest: &Value) -> Result<Vec<&str>> {
    let layers = manifest["layers"].as_array().into_iter().flatten();
    layers
        .chain([&manifest["config"]])
        .map(|blob| blob["digest"].as_str().context("a blob without a digest"))
        .collect()
}

fn parse(text: &str) -> Result<Value> {
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
