//! The table at the end of a build, and the manifest on the stick: the same facts twice.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cache::digest_file;
use super::image::Written;
use super::squashfs::Layer;

/// A file on the stick that somebody may want to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Sizes and digests of files.
pub fn collect_items(paths: &[&Path]) -> Result<Vec<Item>> {
    let item = |path: &&Path| {
        let name = path
            .file_name()
            .context("a file needs a name")?
            .to_string_lossy()
            .into_owned();
        let bytes = fs::metadata(path)
            .with_context(|| format!("reading {}", path.display()))?
            .len();
        Ok(Item {
            name,
            bytes,
            sha256: digest_file(path)?,
        })
    };
    paths.iter().map(item).collect()
}

/// What `manifest.json` on the FIRSTLIGHT partition says.
pub fn manifest(versions: &Value, layers: &[Layer], items: &[Item]) -> Result<String> {
    let layers: Vec<Value> = layers
        .iter()
        .map(|layer| json!({"name": layer.name, "bytes": layer.bytes, "sha256": layer.sha256}))
        .collect();
    let files: Vec<Value> = items
        .iter()
        .map(|item| json!({"name": item.name, "bytes": item.bytes, "sha256": item.sha256}))
        .collect();
    Ok(format!(
        "{}\n",
        serde_json::to_string_pretty(
            &json!({"versions": versions, "layers": layers, "files": files})
        )?
    ))
}

/// The table: partitions, layers, files, and the image itself.
pub fn table(output: &Path, written: &Written, items: &[Item]) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "\n{:<20} {:>14}  sha256", "partition", "bytes")?;
    for part in &written.plan.partitions {
        writeln!(
            text,
            "{:<20} {:>14}",
            format!("{} {}", part.number, part.name),
            group(part.bytes())
        )?;
    }
    writeln!(text, "\n{:<20} {:>14}", "layer of system-a", "bytes")?;
    for layer in &written.slot.layers {
        writeln!(
            text,
            "{:<20} {:>14}  {}",
            layer.name,
            group(layer.length),
            layer.sha256
        )?;
    }
    writeln!(text, "\n{:<20} {:>14}", "file", "bytes")?;
    for item in items {
        writeln!(
            text,
            "{:<20} {:>14}  {}",
            item.name,
            group(item.bytes),
            item.sha256
        )?;
    }
    let bytes = fs::metadata(output)?.len();
    writeln!(
        text,
        "\n{:<20} {:>14}  {}",
        output.display(),
        group(bytes),
        digest_file(output)?
    )?;
    if let Some(signer) = &written.signer {
        writeln!(
            text,
            "signed by {signer}: its box takes updates by this key"
        )?;
    }
    Ok(text)
}

/// 1234567 as `1,234,567`.
pub fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::group;

    #[test]
    fn numbers_are_grouped_from_the_right() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (12_345_678, "12,345,678"),
        ];
        for (number, text) in cases {
            assert_eq!(group(number), text);
        }
    }
}
