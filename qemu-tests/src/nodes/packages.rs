//! What a node installs packages with: the box's program for its orders, and the stick's own packages, which the box serves.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use firstlight_api::repository::{BASE, Repository};
use imagebuilder::build::nodes::Nodes;

use super::machine::Running;

const BOX: &str = "172.22.0.1";

/// `tree`: of all nodes.
pub fn serve(parts: &Nodes, tree: &Path, place: &Path) -> Result<Running> {
    fs::copy(&parts.bootstrap, tree.join("usr/bin/firstlight-bootstrap"))?;
    let repository = Repository {
        host: BOX.to_owned(),
        base: fs::read_to_string(parts.repository.join(format!("{BASE}.asc")))?,
        uploads: String::new(),
    };
    for (path, text) in repository.files() {
        // Nobody uploads anything here.
        let base_only = text.split("\n\n").next().unwrap_or_default();
        fs::create_dir_all(tree.join(&path).parent().context("a file is in a folder")?)?;
        fs::write(
            tree.join(&path),
            if path.ends_with(".sources") {
                base_only
            } else {
                &text
            },
        )?;
    }
    let folder = place.join("served");
    fs::create_dir_all(folder.join("apt"))?;
    symlink(&parts.repository, folder.join("apt").join(BASE))?;
    let log = File::create(place.join("repository.log"))?;
    let server = Command::new("python3")
        .args(["-m", "http.server", "--bind", BOX, "--directory"])
        .arg(&folder)
        .arg("80")
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn();
    Ok(Running(server.context("starting python3")?))
}
