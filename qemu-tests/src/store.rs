//! What a person at a desk does with the box's store.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser as _;
use imagebuilder::cli::Cli;

use crate::scene::Scene;

const PORT: u16 = 80;

/// `firstlight push`, through a tunnel to the box's loopback.
pub fn push(scene: &Scene<'_>, file: &Path, more: &[&str]) -> Result<()> {
    let tunnel = scene.box_ssh().tunnel(PORT)?;
    let page = format!("http://{}", tunnel.address);
    let file = file.to_str().context("the path is not text")?;
    firstlight(["push", "--box", &page, file].iter().chain(more))
}

/// The program's command line.
pub fn firstlight<'a>(arguments: impl IntoIterator<Item = &'a &'a str>) -> Result<()> {
    let arguments = ["firstlight"].iter().chain(arguments);
    Cli::try_parse_from(arguments)?.run().map(drop)
}
