//! Suite `base` of the repository that servers use: laid out and signed by the build, served by the box as it is.
//!
//! The key is made for this one build and forgotten when it is done: nobody can sign another `base` in its name. Its public half
//! lies beside the suite. Names, dates and indexes are the same for the same packages; the key and the signature are not.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use firstlight_artifacts::apt::{self, Package, Suite, key::SigningKey};
use firstlight_artifacts::deb::read_control;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::cache::digest_file;
use super::settings::SOURCE_DATE_EPOCH;

/// Suite, and its folder on the stick and at the box.
pub const SUITE: &str = "base";
/// Names of the package files, one a line.
pub const LIST: &str = "packages";

/// Lays these package files out in `root`.
pub fn lay_out(root: &Path, debs: &[PathBuf]) -> Result<()> {
    let mut packages = Vec::new();
    for deb in debs {
        let package = describe(deb).with_context(|| format!("reading {}", deb.display()))?;
        let to = root.join(&package.filename);
        fs::create_dir_all(to.parent().unwrap_or(root))
            .and_then(|()| fs::hard_link(deb, &to).or_else(|_| fs::copy(deb, &to).map(drop)))
            .with_context(|| format!("making {}", to.display()))?;
        packages.push(package);
    }
    for (path, content) in sign(&packages)? {
        let to = root.join(path);
        fs::create_dir_all(to.parent().unwrap_or(root))
            .and_then(|()| fs::write(&to, content))
            .with_context(|| format!("writing {}", to.display()))?;
    }
    let names = packages
        .iter()
        .filter_map(|package| package.filename.rsplit('/').next());
    let list = names.fold(String::new(), |list, name| list + name + "\n");
    fs::write(root.join(LIST), list).context("writing the list of packages")
}

fn describe(deb: &Path) -> Result<Package> {
    let control = read_control(File::open(deb)?)?;
    Ok(Package {
        filename: apt::filename(&control)?,
        size: fs::metadata(deb)?.len(),
        sha256: digest_file(deb)?,
        control,
    })
}

/// Signed at the time that all files of the stick have: no clock of a server is before it.
fn sign(packages: &[Package]) -> Result<Vec<(String, String)>> {
    let now = u32::try_from(SOURCE_DATE_EPOCH)?;
    let date = OffsetDateTime::from_unix_timestamp(now.into())?.format(&Rfc2822)?;
    let key = SigningKey::make(rand::rngs::OsRng, "Firstlight base of one build", now)?;
    let suite = Suite {
        name: SUITE,
        architectures: &["amd64"],
        date: &date,
    };
    Ok(apt::files(&suite, packages, &key, now)?)
}

#[cfg(test)]
#[path = "repository/tests.rs"]
mod tests;
