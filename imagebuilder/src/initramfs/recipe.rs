//! The lists of `rootfs/ramdisk`: one item a line, `#` begins a comment.
//!
//! `modules`: paths below `kernel/`, without `.ko`. `dir/` takes everything below, `*` stands for any part of one name,
//! `!` takes back what a line above chose. `unpacked`: names of modules to store without xz. `load.MODE`: names of
//! modules that PID 1 loads without waiting for a device, in this order.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::modinfo::module_name;

/// What goes into the initramfs, as written by a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    pub modules: Vec<String>,
    pub unpacked: Vec<String>,
    /// Mode (`box`, `ramdisk`) to module names.
    pub load: BTreeMap<String, Vec<String>>,
}

/// Reads the lists of `dir`.
pub fn load_recipe(dir: &Path) -> Result<Recipe> {
    let mut recipe = Recipe {
        modules: load_list(&dir.join("modules"))?,
        ..Recipe::default()
    };
    recipe.unpacked = load_list(&dir.join("unpacked"))?;
    for mode in ["box", "ramdisk"] {
        recipe.load.insert(
            mode.to_owned(),
            load_list(&dir.join(format!("load.{mode}")))?,
        );
    }
    Ok(recipe)
}

fn load_list(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let items = parse_list(&text);
    if items.is_empty() {
        bail!("{}: the list is empty", path.display());
    }
    Ok(items)
}

/// Items without comments, in order.
pub fn parse_list(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Recipe {
    /// The last line that matches decides.
    pub fn chooses(&self, stem: &str) -> bool {
        let verdict = |line: &String| match line.strip_prefix('!') {
            Some(pattern) => matches_path(pattern, stem).then_some(false),
            None => matches_path(line, stem).then_some(true),
        };
        self.modules.iter().rev().find_map(verdict).unwrap_or(false)
    }

    /// The first line that matches none of `stems`: a driver that moved must not silently get lost.
    pub fn unused(&self, stems: &[&str]) -> Option<&str> {
        let unused = |pattern: &&str| !stems.iter().any(|stem| matches_path(pattern, stem));
        let mut patterns = self.modules.iter().map(|line| line.trim_start_matches('!'));
        patterns.find(unused)
    }

    /// Modules that lists name one by one.
    pub fn named(&self) -> Vec<String> {
        let loads = self.load.values().flatten();
        loads
            .chain(&self.unpacked)
            .map(|name| module_name(name))
            .collect()
    }
}

/// What the list `modules` calls a module: `kernel/fs/fat/vfat.ko.xz` is `fs/fat/vfat`.
pub fn stem(path: &str) -> &str {
    let path = path.strip_prefix("kernel/").unwrap_or(path);
    path.split_once(".ko").map_or(path, |(stem, _)| stem)
}

/// `a/b/` matches everything below; otherwise part by part, `*` inside one part only.
pub fn matches_path(pattern: &str, path: &str) -> bool {
    if let Some(dir) = pattern.strip_suffix('/') {
        let depth = dir.split('/').count();
        let parts: Vec<&str> = path.split('/').collect();
        return parts.len() > depth && matches_path(dir, &parts[..depth].join("/"));
    }
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if matches_part(pattern, part) => {}
            _ => return false,
        }
    }
}

fn matches_part(pattern: &str, part: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == part;
    };
    let Some(part) = part.strip_prefix(head) else {
        return false;
    };
    (0..=part.len()).any(|skip| part.is_char_boundary(skip) && matches_part(rest, &part[skip..]))
}
