//! `firstlight push`: puts files into the box's store, from where the site uses them.
//!
//! [`describe`] finds out what a file is; [`crate::box_client`] is the way to the box; this module sends, goes on after a broken connection,
//! and waits until the box has put the file where it is used.

mod describe;
mod pieces;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use firstlight_api::artifact::{Arch, Artifact, ArtifactSpec, ArtifactState, Kind};
use indicatif::{ProgressBar, ProgressStyle};

use crate::box_client::{self, BoxClient, Reply};
use crate::ssh::BoxArgs;
use describe::Overrides;
use pieces::{Piece, pieces};

const PATH: &str = "/api/v1/artifacts";
/// Connections that break one after the other without a byte in between.
const MOST_BREAKS: u32 = 5;
const CONFLICT: u16 = 409;
const PAUSE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_secs(1);
/// For what the box does with a file that is whole; a disk that has to be converted takes longest.
const PUBLISHING: Duration = Duration::from_mins(30);

const EXAMPLES: &str = "Examples:
  firstlight push htop_3.4.1-5_amd64.deb       a Debian package, for the servers' apt
  firstlight push web-1.2.3.tgz                a Helm chart: oci://registry.firstlight.internal/charts/web
  docker save web:1.2 -o web.tar
  firstlight push web.tar                      a container image: registry.firstlight.internal/web:1.2
  docker save web:1.2 db:3 -o all.tar
  firstlight push all.tar                      each of its images, by each of its names
  firstlight push release/                     all files of a folder

What was interrupted goes on where it was: give the same command again. --box also takes the address of a forwarded port of its page,
like http://127.0.0.1:8080.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PushArgs {
    /// Packages, charts, container archives, disk images, and folders of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    the_box: BoxArgs,
    /// What it is, if the file does not say so itself
    #[arg(long)]
    kind: Option<Kind>,
    /// Its name, if the file does not say so itself
    #[arg(long)]
    name: Option<String>,
    /// Its version, if the file does not say so itself
    #[arg(long)]
    version: Option<String>,
    /// Its architecture, if the file does not say so itself
    #[arg(long)]
    arch: Option<Arch>,
}

/// A line for each file: what it is called now.
pub fn push(args: &PushArgs) -> Result<String> {
    let given = Overrides {
        kind: args.kind,
        name: args.name.clone(),
        version: args.version.clone(),
        arch: args.arch,
    };
    let scratch = tempfile::tempdir().context("making room for archives of several images")?;
    let mut all = Vec::new();
    for (at, file) in expand(&args.files)?.iter().enumerate() {
        let place = scratch.path().join(at.to_string());
        fs::create_dir(&place).context("making room for archives of several images")?;
        all.extend(pieces(file, &place).with_context(|| file.display().to_string())?);
    }
    ensure!(
        all.len() == 1 || given.is_nothing(),
        crate::UsageError(
            "--kind, --name, --version and --arch describe one file or image; push the others apart"
                .to_owned()
        )
    );
    // All of them, before the first byte is sent.
    let mut described = Vec::new();
    for piece in &all {
        let bar = bar(
            &format!("{}: reading", piece.title),
            piece.path.metadata().map_or(0, |found| found.len()),
        );
        described.push(
            describe::describe(&piece.path, &given, &bar).with_context(|| piece.title.clone())?,
        );
        bar.finish_and_clear();
    }
    let mut the_box = BoxClient::new(&args.the_box)?;
    let mut lines = String::new();
    for (piece, spec) in all.iter().zip(&described) {
        let artifact = send(&mut the_box, piece, spec).with_context(|| piece.title.clone())?;
        let _ = writeln!(lines, "{}\t{}", artifact.reference, piece.title);
    }
    Ok(lines)
}

/// Folders are their files, by name; what is hidden, and folders in them, are nobody's wish.
fn expand(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let listed = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let listed = listed.with_context(|| format!("listing {}", path.display()))?;
        let is_meant = |path: &PathBuf| path.is_file() && !shown(path).starts_with('.');
        let mut inside: Vec<_> = listed
            .iter()
            .map(fs::DirEntry::path)
            .filter(is_meant)
            .collect();
        ensure!(
            !inside.is_empty(),
            crate::UsageError(format!("{}: no file is in this folder", path.display()))
        );
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}

fn shown(file: &Path) -> String {
    file.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn bar(what: &str, length: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "  {prefix} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
    )
    .expect("the template is constant and valid");
    ProgressBar::new(length)
        .with_style(style)
        .with_prefix(what.to_owned())
}

/// Until the box uses it.
fn send(the_box: &mut BoxClient, piece: &Piece, spec: &ArtifactSpec) -> Result<Artifact> {
    let description = serde_json::to_vec(spec)?;
    let begin = |the_box: &mut BoxClient| {
        artifact(&the_box.ask(
            "POST",
            PATH,
            &[("content-type", "application/json")],
            &description,
        )?)
    };
    let bar = bar(&format!("{}: sending", piece.title), spec.size);
    let (mut breaks, mut reached) = (0, 0);
    let artifact = loop {
        // The same description again tells where to go on.
        let result = begin(the_box).and_then(|artifact| match artifact.state {
            ArtifactState::Uploading { offset } => {
                if offset > reached {
                    (breaks, reached) = (0, offset);
                }
                bar.set_position(offset);
                send_from(the_box, &piece.path, &artifact, offset, &bar)
            }
            _ => Ok(artifact),
        });
        match result {
            Ok(artifact) if matches!(artifact.state, ArtifactState::Uploading { .. }) => {}
            Ok(artifact) => break artifact,
            Err(error) if error.is::<box_client::Broken>() && breaks < MOST_BREAKS => {
                breaks += 1;
                bar.println(format!("  {}: {error:#}; trying again", piece.title));
                sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    };
    bar.finish_and_clear();
    published(the_box, artifact)
}

fn send_from(
    the_box: &mut BoxClient,
    file: &Path,
    artifact: &Artifact,
    offset: u64,
    bar: &ProgressBar,
) -> Result<Artifact> {
    let mut content = File::open(file).context("opening it")?;
    content
        .seek(SeekFrom::Start(offset))
        .context("reading it")?;
    let length = artifact.spec.size - offset;
    let path = format!("{PATH}/{}", artifact.id);
    let body = bar.wrap_read(content.take(length));
    let answer = the_box.send(
        "PATCH",
        &path,
        &[("upload-offset", &offset.to_string())],
        length,
        body,
    )?;
    // Somebody else, or what is left of a connection that broke: asking again tells where to go on.
    if answer.status == CONFLICT {
        return Err(box_client::Broken(answer.sentence()).into());
    }
    self::artifact(&answer)
}

fn artifact(answer: &Reply) -> Result<Artifact> {
    answer.check()?;
    serde_json::from_slice(&answer.body)
        .context("the box's answer is none that this version of firstlight knows")
}

/// Waits until it is where it is used.
fn published(the_box: &mut BoxClient, mut artifact: Artifact) -> Result<Artifact> {
    let since = Instant::now();
    let path = format!("{PATH}/{}", artifact.id);
    loop {
        match &artifact.state {
            ArtifactState::Ready => return Ok(artifact),
            ArtifactState::Failed { reason, next } => {
                bail!("the box cannot use it: {reason}\n  next: {next}")
            }
            ArtifactState::Publishing | ArtifactState::Uploading { .. } => {}
        }
        ensure!(
            since.elapsed() < PUBLISHING,
            "all of it is on the box, which has not put it into use for {} minutes; the page says why",
            PUBLISHING.as_secs() / 60
        );
        sleep(LOOK);
        artifact = match the_box.ask("GET", &path, &[], &[]) {
            Ok(answer) => self::artifact(&answer)?,
            Err(error) if error.is::<box_client::Broken>() => continue,
            Err(error) => return Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_is_its_files_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("release");
        fs::create_dir_all(folder.join("inner")).unwrap();
        let empty = expand(std::slice::from_ref(&folder)).unwrap_err();
        assert!(
            empty.to_string().contains("no file is in this folder"),
            "{empty}"
        );
        for name in ["b.tar", "a.deb", ".hidden", "inner/c.tgz"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let other = dir.path().join("absent.tgz");
        let all = expand(&[other.clone(), folder.clone()]).unwrap();
        assert_eq!(all, [other, folder.join("a.deb"), folder.join("b.tar")]);
    }
}
