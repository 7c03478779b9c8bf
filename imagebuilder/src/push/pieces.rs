//! What is sent for each file that a person names: the file, or, of an archive of several images or names, an archive of its own for each.

use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use firstlight_artifacts::{Format, container, recognise};

use super::{bar, shown};

/// One thing that the box gets.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub path: PathBuf,
    /// For people.
    pub title: String,
}

impl Piece {
    fn whole(file: &Path) -> Self {
        Self {
            path: file.to_owned(),
            title: shown(file),
        }
    }
}

/// In the order of the archive. What is made for it lies in `scratch`, the same bytes each time, so that an upload that broke off goes on.
pub fn pieces(file: &Path, scratch: &Path) -> Result<Vec<Piece>> {
    let mut content = File::open(file).context("opening it")?;
    if recognise(&mut content)? != Format::Tar {
        return Ok(vec![Piece::whole(file)]);
    }
    content.rewind().context("reading it")?;
    let names = container::read_names(&mut content)?;
    // One without images is refused as what it is.
    if names.iter().map(|names| names.len().max(1)).sum::<usize>() <= 1 {
        return Ok(vec![Piece::whole(file)]);
    }
    let length = content.metadata().map_or(0, |found| found.len());
    let bar = bar(
        &format!("{}: one archive for each image", shown(file)),
        length,
    );
    let mut pieces = Vec::new();
    for image in &container::read_containers(&mut content)? {
        let names = image.names.iter().map(|name| Some(name.as_str()));
        let unnamed = image.names.is_empty().then_some(None);
        for name in names.chain(unnamed) {
            let path = scratch.join(format!("{}.tar", pieces.len()));
            let no_room = || {
                let path = path.display();
                format!("writing {path}; the variable TMPDIR names another place for it")
            };
            let out = bar.wrap_write(File::create(&path).with_context(no_room)?);
            container::write_layout(&mut content, image, name, out).with_context(no_room)?;
            let title = format!(
                "{}: {}",
                shown(file),
                name.unwrap_or("an image without a name")
            );
            pieces.push(Piece { path, title });
        }
    }
    bar.finish_and_clear();
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    fn archive(path: &Path, images: &serde_json::Value) {
        let mut tar = tar::Builder::new(File::create(path).unwrap());
        let manifest = images.to_string();
        for (name, content) in [("c.json", "{}"), ("manifest.json", &manifest)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, name, content.as_bytes())
                .unwrap();
        }
        tar.finish().unwrap();
    }

    #[test]
    fn an_archive_of_several_images_is_sent_as_one_for_each_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("all.tar");
        let image =
            |tags: &[&str]| serde_json::json!({"Config": "c.json", "RepoTags": tags, "Layers": []});
        let scratch = dir.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        archive(&file, &serde_json::json!([image(&["web:1"])]));
        assert_eq!(pieces(&file, &scratch).unwrap(), [Piece::whole(&file)]);
        archive(&file, &serde_json::json!([]));
        assert_eq!(pieces(&file, &scratch).unwrap(), [Piece::whole(&file)]);
        archive(
            &file,
            &serde_json::json!([
                image(&["web:1", "web:2"]),
                image(&["team/db:3"]),
                image(&[])
            ]),
        );
        let found = pieces(&file, &scratch).unwrap();
        let titles: Vec<_> = found.iter().map(|piece| piece.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "all.tar: web:1",
                "all.tar: web:2",
                "all.tar: team/db:3",
                "all.tar: an image without a name"
            ]
        );
        let mut second = File::open(&found[1].path).unwrap();
        assert_eq!(
            container::read_container(&mut second).unwrap().names,
            ["web:2"]
        );
    }
}
