//! Which stories a run has time for: those that the change under test touches first, then the plain ones, then the others; among
//! equals the shortest. How long one takes is what it took when it passed last.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use imagebuilder::build::settings::{find_cache, find_source};

/// The commit whose tests have all passed that a change since then would touch.
const LAST_PASSED: &str = "last-passed";

/// Why a story is told, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Touched,
    /// Told with every change, if there is time.
    Plain,
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub cause: Cause,
    pub takes: Duration,
}

/// The next story, of those that end within `left`.
pub fn next(candidates: &[Candidate], left: Duration) -> Option<usize> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|&at| (candidates[at].cause, candidates[at].takes));
    order.into_iter().find(|&at| candidates[at].takes <= left)
}

/// True if one of the changed `files` is below one of `paths`.
pub fn touches(files: &[String], paths: &[&str]) -> bool {
    files.iter().any(|file| {
        paths.iter().any(|path| {
            file.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
        })
    })
}

/// Files that differ from the last tree that passed here, or from the commit before this one.
pub fn changed_files() -> Vec<String> {
    let mark = find_cache().and_then(|cache| Ok(fs::read_to_string(cache.join(LAST_PASSED))?));
    let base = mark
        .ok()
        .map(|base| base.trim().to_owned())
        .filter(|base| git(&["cat-file", "-e", base]).is_ok())
        .unwrap_or_else(|| "HEAD~1".to_owned());
    // A checkout without history has changed nothing.
    let differ = git(&["diff", "--name-only", &base]).unwrap_or_default();
    let new = git(&["ls-files", "--others", "--exclude-standard"]).unwrap_or_default();
    differ
        .lines()
        .chain(new.lines())
        .map(str::to_owned)
        .collect()
}

/// Notes that this commit has passed.
pub fn note_passed() -> Result<()> {
    let head = git(&["rev-parse", "HEAD"])?;
    let file = find_cache()?.join(LAST_PASSED);
    fs::write(&file, head).with_context(|| format!("writing {}", file.display()))
}

fn git(arguments: &[&str]) -> Result<String> {
    let source = find_source()?;
    let output = Command::new("git")
        .arg("-C")
        .arg(&source as &Path)
        .args(arguments)
        .output()
        .context("starting git")?;
    anyhow::ensure!(output.status.success(), "git {arguments:?} failed");
    String::from_utf8(output.stdout).context("git's answer is not text")
}

/// What took how long, by name; kept from run to run.
pub struct Times {
    folder: std::path::PathBuf,
}

impl Times {
    pub fn open() -> Result<Self> {
        let folder = find_cache()?.join("times");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        Ok(Self { folder })
    }

    pub fn of(&self, name: &str) -> Option<Duration> {
        let seconds = fs::read_to_string(self.folder.join(name)).ok()?;
        Some(Duration::from_secs(seconds.trim().parse().ok()?))
    }

    pub fn note(&self, name: &str, time: Duration) -> Result<()> {
        let file = self.folder.join(name);
        fs::write(&file, time.as_secs().to_string())
            .with_context(|| format!("writing {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(cause: Cause, minutes: u64) -> Candidate {
        Candidate {
            cause,
            takes: Duration::from_mins(minutes),
        }
    }

    /// Minutes of the stories that are told in `left` minutes, each as long as it says.
    fn told(mut candidates: Vec<Candidate>, left: u64) -> Vec<u64> {
        let (mut left, mut told) = (Duration::from_mins(left), Vec::new());
        while let Some(at) = next(&candidates, left) {
            let candidate = candidates.remove(at);
            left -= candidate.takes;
            told.push(candidate.takes.as_secs() / 60);
        }
        told
    }

    #[test]
    fn what_a_change_touches_comes_first_then_the_plain_then_the_shortest() {
        let all = vec![
            candidate(Cause::Rest, 5),
            candidate(Cause::Plain, 16),
            candidate(Cause::Touched, 39),
            candidate(Cause::Rest, 7),
            candidate(Cause::Plain, 12),
            candidate(Cause::Touched, 20),
        ];
        assert_eq!(told(all.clone(), 1000), [20, 39, 12, 16, 5, 7]);
        assert_eq!(told(all.clone(), 60), [20, 39]);
        assert_eq!(told(all.clone(), 55), [20, 12, 16, 5]);
        assert_eq!(told(all.clone(), 14), [12]);
        assert_eq!(told(all, 4), Vec::<u64>::new());
    }

    #[test]
    fn a_file_touches_the_folder_that_it_is_in_and_the_module_of_its_name() {
        let files = |name: &str| vec![name.to_owned()];
        assert!(touches(
            &files("agent/src/hosts/plan.rs"),
            &["agent/src/hosts"]
        ));
        assert!(touches(&files("agent/src/hosts.rs"), &["agent/src/hosts"]));
        assert!(!touches(
            &files("agent/src/hosts_of_others.rs"),
            &["agent/src/hosts"]
        ));
        assert!(!touches(
            &files("docs/hosts.md"),
            &["agent/src/hosts", "agent/api"]
        ));
        assert!(!touches(&[], &["agent"]));
    }
}
