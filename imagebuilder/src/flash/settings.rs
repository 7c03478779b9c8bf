//! The settings of a site on their way to the stick: its `site.yaml`, and SSH keys in it.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use firstlight_api::site::parse_site;

use super::source::{Over, Source};
use crate::UsageError;
use crate::check::describe;
use crate::disk::fat;
use crate::disk::gpt::{self, PartitionPlan};
use crate::site::{load_keys, with_keys};

const PARTITION: &str = "FIRSTLIGHT";
const FILE: &str = "site.yaml";

/// What a person wants to have there.
#[derive(Debug)]
pub struct Settings {
    /// Name and text; else the image's own.
    site: Option<(PathBuf, String)>,
    /// As `authorized_keys` has them.
    keys: Vec<String>,
}

impl Settings {
    /// `None`: the image's own stay. A file that is no `site.yaml` is refused before anything else happens.
    pub fn load(site: Option<&Path>, keys: &[PathBuf]) -> Result<Option<Self>> {
        if site.is_none() && keys.is_empty() {
            return Ok(None);
        }
        let read = |path: &Path| {
            fs::read_to_string(path)
                .map_err(|error| UsageError(format!("{}: {error}", path.display())))
        };
        let site = site.map(|path| read(path).map(|text| (path.to_owned(), text)));
        let settings = Self {
            site: site.transpose()?,
            keys: load_keys(keys)?,
        };
        if let Some((path, text)) = &settings.site {
            settings.text(path, text)?;
        }
        Ok(Some(settings))
    }

    /// The partition of the image with these in it.
    pub fn on(&self, image: &Source) -> Result<Over> {
        let table = gpt::load_table(image.path())?;
        let mut partition = read_partition(image, table.partition(PARTITION)?)?;
        let text = if let Some((path, text)) = &self.site {
            self.text(path, text)?
        } else {
            let found = fat::read_file(Cursor::new(&mut partition.content[..]), FILE)?;
            let found = String::from_utf8(found.unwrap_or_default());
            let found = found.context("site.yaml of the image is no text")?;
            self.text(Path::new(FILE), &found)?
        };
        let disk = Cursor::new(&mut partition.content[..]);
        let system = fatfs::FileSystem::new(disk, fatfs::FsOptions::new())
            .context("reading the FAT file system of the image")?;
        let mut file = system.root_dir().create_file(FILE)?;
        file.truncate()?;
        file.write_all(text.as_bytes())?;
        file.flush()?;
        drop(file);
        system.unmount()?;
        Ok(partition)
    }

    /// Checked, with the keys in it.
    fn text(&self, path: &Path, text: &str) -> Result<String> {
        let site =
            |text: &str| parse_site(text).map_err(|problems| UsageError(describe(path, &problems)));
        let there = site(text)?.ssh_keys;
        let new = |key: &&String| !there.iter().any(|known| known.as_str() == key.as_str());
        let new: Vec<&String> = self.keys.iter().filter(new).collect();
        if new.is_empty() {
            return Ok(text.to_owned());
        }
        let whole = with_keys(text, &new).ok_or_else(|| {
            UsageError(format!(
                "{}: `sshKeys` is in one line; write it as a list with a key a line, or put the keys there yourself",
                path.display()
            ))
        })?;
        site(&whole)?;
        Ok(whole)
    }
}

fn read_partition(image: &Source, place: &PartitionPlan) -> Result<Over> {
    use std::os::unix::fs::FileExt as _;
    let mut content = vec![0; usize::try_from(place.bytes())?];
    fs::File::open(image.path())?
        .read_exact_at(&mut content, place.offset())
        .with_context(|| format!("reading partition {PARTITION} of the image"))?;
    Ok(Over {
        offset: place.offset(),
        content,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJKnMsDQbTMUlMvSn7Cb5mS1nP7oGV9hCZLJj9XVIBYF ada: \"desk\" #1";
    const OTHER: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJKnMsDQbTMUlMvSn7Cb5mS1nP7oGV9hCZLJj9XVIBYG bob";

    fn settings(text: &str) -> Result<String> {
        let settings = Settings {
            site: None,
            keys: vec![KEY.to_owned()],
        };
        settings.text(Path::new("site.yaml"), text)
    }

    fn keys(text: &str) -> Vec<String> {
        let site = parse_site(text).unwrap();
        site.ssh_keys
            .iter()
            .map(|key| key.as_str().to_owned())
            .collect()
    }

    #[test]
    fn a_key_comes_to_those_that_are_there_and_the_rest_stays_as_it_was() {
        for (text, expected) in [
            ("", vec![KEY]),
            ("name: lab\n# sshKeys:\n#   - x\n", vec![KEY]),
            (
                &format!("sshKeys:\n- {OTHER}\nname: lab\n"),
                vec![KEY, OTHER],
            ),
            (
                &format!("sshKeys: # people\n    - {OTHER}\n"),
                vec![KEY, OTHER],
            ),
            (
                &format!("name: lab\nsshKeys:\n  # Bob's\n  - {OTHER}\n"),
                vec![KEY, OTHER],
            ),
        ] {
            let whole = settings(text).unwrap();
            assert_eq!(keys(&whole), expected, "{whole}");
            for line in text.lines() {
                assert!(whole.lines().any(|kept| kept == line), "{line}\n{whole}");
            }
            // A second time nothing is added.
            assert_eq!(settings(&whole).unwrap(), whole);
        }
    }

    #[test]
    fn what_cannot_be_added_to_is_said() {
        let flow = format!("sshKeys: [{OTHER}]\n");
        let error = settings(&flow).unwrap_err();
        assert!(
            error.is::<UsageError>() && error.to_string().contains("in one line"),
            "{error}"
        );
        let error = settings("nmae: lab\n").unwrap_err();
        assert!(error.to_string().contains("site.yaml:1:1"), "{error}");
    }

    #[test]
    fn a_private_key_goes_nowhere() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "-----BEGIN OPENSSH PRIVATE KEY-----\n").unwrap();
        let error = Settings::load(None, &[file.path().to_owned()]).unwrap_err();
        assert!(
            error.to_string().contains("this is a private key"),
            "{error}"
        );
        assert!(Settings::load(None, &[]).unwrap().is_none());
    }
}
