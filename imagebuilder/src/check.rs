//! `firstlight check`: the same parser of `site.yaml` that the build and the box use.

mod hosts;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::site::{SiteConfig, SiteProblems, parse_site};

use crate::UsageError;

/// What the command prints; `status` is a file with a box's status.
pub fn run(file: &Path, status: Option<&Path>) -> Result<String> {
    let site = check_file(file)?;
    let (named, rules) = (site.hosts.len(), site.rules.len());
    let mut text = format!(
        "{}: good. Site {}, box at {}, {named} servers named, {rules} rules\n",
        file.display(),
        site.name,
        site.provisioning.address
    );
    if let Some(status) = status {
        text += &hosts::table(&site, status)?;
    }
    Ok(text)
}

/// Checks a file; every problem is in the error, with line and column.
pub fn check_file(path: &Path) -> Result<SiteConfig> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    parse_site(bytes).map_err(|problems| UsageError(describe(path, &problems)).into())
}

/// All problems, one a line, in the form that editors jump to.
pub fn describe(path: &Path, problems: &SiteProblems) -> String {
    let mut text = format!("{} has mistakes:", path.display());
    for problem in &problems.0 {
        let _ = write!(
            text,
            "\n  {}:{}:{}: {}",
            path.display(),
            problem.line,
            problem.column,
            problem.message
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_default_file_is_good_and_means_the_defaults() {
        let path = Path::new("../rootfs/box/site.yaml");
        assert_eq!(check_file(path).unwrap(), SiteConfig::default());
    }

    #[test]
    fn the_examples_in_the_default_file_are_good_too() {
        let path = Path::new("../rootfs/box/site.yaml");
        let text = fs::read_to_string(path).unwrap();
        // A comment that is an example is `# key:` or `#   deeper`; sentences start with a capital or have no colon.
        let example = |line: &&str| {
            line.contains(": ") || line.trim_end().ends_with(':') || line.contains("- ")
        };
        let lines: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with(|first: char| first == ' ' || first.is_lowercase()))
            .filter(example)
            .map(|line| {
                line.replace(
                    "AAAA...",
                    "AAAAC3NzaC1lZDI1NTE5AAAAIJ1pLbFSTpHvJ0hSWRnUGMvKxQ2g1YMxPvvqj5vJXc0f",
                )
            })
            .collect();
        let site = parse_site(lines.join("\n")).unwrap();
        let counts = (site.hosts.len(), site.ssh_keys.len(), site.rules.len());
        assert_eq!(counts, (1, 1, 2), "{lines:?}");
    }

    #[test]
    fn problems_carry_the_file_name_and_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("site.yaml");
        fs::write(&path, "nmae: x\n").unwrap();
        let error = check_file(&path).unwrap_err();
        assert!(error.downcast_ref::<UsageError>().is_some());
        assert!(
            error
                .to_string()
                .contains("site.yaml:1:1: unknown key `nmae`"),
            "{error}"
        );
    }
}
