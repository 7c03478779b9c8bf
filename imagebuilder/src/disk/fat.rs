//! FAT32 file systems, made in memory with fixed times and serial numbers.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fatfs::{
    Date, DateTime, FatType, FileSystem, FormatVolumeOptions, FsOptions, Time, TimeProvider,
};

/// All files carry this time: the FAT epoch would make some systems show 1979.
#[derive(Debug)]
struct FixedTime;

static FIXED_TIME: FixedTime = FixedTime;

impl TimeProvider for FixedTime {
    fn get_current_date(&self) -> Date {
        Date {
            year: 2026,
            month: 11,
            day: 1,
        }
    }

    fn get_current_date_time(&self) -> DateTime {
        DateTime {
            date: self.get_current_date(),
            time: Time {
                hour: 0,
                min: 0,
                sec: 0,
                millis: 0,
            },
        }
    }
}

/// Where the bytes of a file come from.
#[derive(Clone, Debug)]
pub enum Content {
    Text(String),
    File(PathBuf),
}

/// A file system to make.
#[derive(Clone, Debug)]
pub struct FatSpec {
    pub bytes: u64,
    /// FAT32 wants at least 65,525 clusters.
    pub cluster: u32,
    /// At most 11 characters, upper case.
    pub label: String,
    pub volume_id: u32,
    /// Path from the root with `/`, and content.
    pub files: Vec<(String, Content)>,
}

/// The whole file system, as bytes.
pub fn format_fat(spec: &FatSpec) -> Result<Vec<u8>> {
    ensure!(
        spec.bytes / u64::from(spec.cluster) > 66_500,
        "{} is too small for FAT32",
        spec.label
    );
    let mut label = [b' '; 11];
    ensure!(
        spec.label.len() <= 11,
        "label {} is longer than 11 characters",
        spec.label
    );
    label[..spec.label.len()].copy_from_slice(spec.label.as_bytes());

    let mut disk = Cursor::new(vec![0; usize::try_from(spec.bytes)?]);
    let options = FormatVolumeOptions::new()
        .fat_type(FatType::Fat32)
        .bytes_per_cluster(spec.cluster)
        .volume_id(spec.volume_id)
        .volume_label(label);
    fatfs::format_volume(&mut disk, options)
        .with_context(|| format!("formatting {}", spec.label))?;
    {
        let system = FileSystem::new(&mut disk, FsOptions::new().time_provider(&FIXED_TIME))?;
        for (path, content) in &spec.files {
            write_file(&system, path, content)
                .with_context(|| format!("writing {path} to {}", spec.label))?;
        }
        system.unmount()?;
    }
    Ok(disk.into_inner())
}

fn write_file(
    system: &FileSystem<&mut Cursor<Vec<u8>>>,
    path: &str,
    content: &Content,
) -> Result<()> {
    let mut dir = system.root_dir();
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    for part in parts {
        dir = dir.create_dir(part)?;
    }
    let data = match content {
        Content::Text(text) => text.as_bytes().to_vec(),
        Content::File(path) => {
            fs::read(path).with_context(|| format!("reading {}", path.display()))?
        }
    };
    let mut file = dir.create_file(name)?;
    file.truncate()?;
    file.write_all(&data)?;
    file.flush()?;
    Ok(())
}

/// Reads one file of a FAT file system; `None` when it is not there.
pub fn read_file(image: impl fatfs::ReadWriteSeek, path: &str) -> Result<Option<Vec<u8>>> {
    let system = FileSystem::new(image, FsOptions::new()).context("reading the FAT file system")?;
    let root = system.root_dir();
    let Ok(mut file) = root.open_file(path) else {
        return Ok(None);
    };
    let mut data = Vec::new();
    file.read_to_end(&mut data)?;
    Ok(Some(data))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec() -> FatSpec {
        FatSpec {
            bytes: 64 << 20,
            cluster: 512,
            label: "FIRSTLIGHT".to_owned(),
            volume_id: 0x5f1a_57e0,
            files: vec![
                (
                    "site.yaml".to_owned(),
                    Content::Text("name: a\n".to_owned()),
                ),
                (
                    "EFI/BOOT/BOOTX64.EFI".to_owned(),
                    Content::Text("x".repeat(100_000)),
                ),
            ],
        }
    }

    #[test]
    fn files_read_back() {
        let image = format_fat(&spec()).unwrap();
        assert_eq!(
            read_file(Cursor::new(image.clone()), "site.yaml").unwrap(),
            Some(b"name: a\n".to_vec())
        );
        assert_eq!(
            read_file(Cursor::new(image.clone()), "EFI/BOOT/BOOTX64.EFI")
                .unwrap()
                .unwrap()
                .len(),
            100_000
        );
        assert_eq!(read_file(Cursor::new(image), "nothing").unwrap(), None);
    }

    #[test]
    fn same_files_same_bytes() {
        assert!(format_fat(&spec()).unwrap() == format_fat(&spec()).unwrap());
    }

    #[test]
    fn a_partition_too_small_for_fat32_is_refused() {
        let error = format_fat(&FatSpec {
            bytes: 16 << 20,
            ..spec()
        })
        .unwrap_err();
        assert!(error.to_string().contains("too small"), "{error}");
    }
}
