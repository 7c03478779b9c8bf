//! What a kernel module says about itself: the NUL-separated `key=value` strings of its ELF section `.modinfo`.

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};

/// The facts that decide when a module is loaded, and what must come with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModInfo {
    pub aliases: Vec<String>,
    /// Names of modules that must be loaded first.
    pub depends: Vec<String>,
    /// `softdep=pre:`: names or aliases that should be loaded first, if they exist.
    pub soft: Vec<String>,
    /// Paths below `/lib/firmware`.
    pub firmware: Vec<String>,
}

/// Unpacks a module as Debian ships it; one that is not compressed comes back as it is.
pub fn unpack_module(stored: &[u8]) -> Result<Vec<u8>> {
    if !stored.starts_with(b"\xfd7zXZ\0") {
        return Ok(stored.to_vec());
    }
    let mut plain = Vec::with_capacity(stored.len() * 6);
    lzma_rs::xz_decompress(&mut &stored[..], &mut plain).context("decompressing the xz stream")?;
    Ok(plain)
}

/// Reads the section of an uncompressed module.
pub fn read_modinfo(elf: &[u8]) -> Result<ModInfo> {
    let file = object::File::parse(elf).context("reading the ELF header")?;
    let Some(section) = file.section_by_name(".modinfo") else {
        bail!("no .modinfo section: not a kernel module");
    };
    Ok(parse_modinfo(section.data().context("reading .modinfo")?))
}

pub(super) fn parse_modinfo(section: &[u8]) -> ModInfo {
    let mut info = ModInfo::default();
    for field in section.split(|byte| *byte == 0) {
        let text = String::from_utf8_lossy(field);
        let Some((key, value)) = text.split_once('=') else {
            continue;
        };
        match key {
            "alias" => info.aliases.push(value.to_owned()),
            "depends" => info.depends.extend(
                value
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(module_name),
            ),
            "softdep" => info.soft.extend(pre_dependencies(value)),
            "firmware" => info.firmware.push(value.to_owned()),
            _ => {}
        }
    }
    info
}

/// `pre: a b post: c` gives a and b. What comes after is loaded by the kernel's own requests.
fn pre_dependencies(value: &str) -> Vec<String> {
    let mut pre = false;
    let mut names = Vec::new();
    for word in value.split_whitespace() {
        match word {
            "pre:" => pre = true,
            "post:" => pre = false,
            name if pre => names.push(name.to_owned()),
            _ => {}
        }
    }
    names
}

/// The kernel's own spelling: file names may have `-` where the module has `_`.
pub fn module_name(text: &str) -> String {
    text.replace('-', "_")
}
