//! Reads `site.yaml` at the start of the agent. A file that was used is kept on the state partition: if the one of the stick
//! cannot be used at a later start, the site goes on as it was, nothing is installed, and the page says why.
//!
//! Nothing takes up a change while the agent runs, because the stick is in another machine then. Only a file that could not be
//! used and now can makes the agent start anew.

use std::{
    fmt::Display,
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use firstlight_api::{
    site::{SiteConfig, SiteProblems, Standing, parse_site},
    status::Problem,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    files::{self, Access},
    hosts,
    paths::{LAST_SITE, Paths},
    start_line,
    state::{self, is_mounted, wait_until},
    status::{StatusSender, StepName, Update},
};

/// The partition is on the stick that the box has just booted from.
const PATIENCE: Duration = Duration::from_mins(1);
/// For the state partition, which holds the last good file. The first boot makes it.
const STATE_PATIENCE: Duration = Duration::from_mins(2);
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// A damaged directory entry of the FAT can promise gigabytes.
const LARGEST: u64 = 1 << 20;

const MEND: &str = "mend site.yaml on the stick's FIRSTLIGHT partition, or in /etc/firstlight/site of an installed machine (`firstlight check site.yaml` explains it), and start the box again";
const PUT_ONE: &str = "put a site.yaml on the stick's FIRSTLIGHT partition, or into /etc/firstlight/site of an installed machine, and start the box again";

/// Publishes the settings. Then waits for a file that can be used, if this one could not: that ends it with an error, and
/// systemd starts the agent anew.
pub async fn run(
    paths: Paths,
    status: StatusSender,
    publish: watch::Sender<Option<Arc<SiteConfig>>>,
    stop: CancellationToken,
) -> Result<()> {
    status.running(StepName::Site);
    let mounted = || is_mounted(&paths, &paths.site_partition());
    wait_until(mounted, PATIENCE, &stop).await;
    // Nearly everything waits for it anyway, and only what is on it can contradict a file.
    wait_until(|| state::is_usable(&paths), STATE_PATIENCE, &stop).await;
    let file = read(&paths.site_yaml());
    let (mut site, mut problems) = judge(&file, &Earlier::load(&paths));
    // What a system does that may not stay is nothing that could not be taken back.
    let tried = start_line::is_tried(&paths);
    if tried && site.standing == Standing::Current {
        site = site.as_last_good();
    }
    if let (Standing::Current, Ok(bytes)) = (site.standing, &file) {
        problems.extend(keep(&paths, bytes).err().as_ref().map(not_kept));
    }
    for problem in &problems {
        tracing::warn!(reason = problem.what, "site.yaml");
    }
    status.send(Update::Site(site.name.to_string()));
    status.problems("site.yaml", problems);
    write_admin_keys(&paths, &site)?;
    status.done(StepName::Site);
    let standing = site.standing;
    publish.send_replace(Some(Arc::new(site)));
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK_AGAIN), if standing != Standing::Current && !tried => {}
        }
        let (site, _) = judge(&read(&paths.site_yaml()), &Earlier::load(&paths));
        if site.standing == Standing::Current {
            bail!("site.yaml can be used now: starting anew with it");
        }
    }
}

/// What earlier starts left on the state partition.
#[derive(Clone, Debug, Default)]
struct Earlier {
    site: Option<SiteConfig>,
    /// Servers carry systems that this box has installed.
    installed: bool,
}

impl Earlier {
    fn load(paths: &Paths) -> Self {
        if !state::is_usable(paths) {
            return Self::default();
        }
        let kept = read(&paths.last_site()).ok().map(parse_site);
        Self {
            site: kept.and_then(Result::ok),
            installed: hosts::has_installed(paths),
        }
    }
}

/// Whatever the file is, the box comes up; without a good one it installs nothing.
fn judge(file: &io::Result<Vec<u8>>, earlier: &Earlier) -> (SiteConfig, Vec<Problem>) {
    let problem = |what: String, next: &str| Problem {
        what,
        next: next.to_owned(),
    };
    let refused: Vec<Problem> = match file.as_ref().map(parse_site) {
        Ok(Ok(site)) => match contradiction(file, &site, earlier) {
            None => return (site, vec![]),
            Some(problem) => vec![problem],
        },
        Ok(Err(SiteProblems(problems))) => problems
            .iter()
            .map(|wrong| problem(format!("site.yaml is not used: {wrong}"), MEND))
            .collect(),
        Err(error) => vec![problem(
            format!("site.yaml cannot be read: {error}"),
            PUT_ONE,
        )],
    };
    let (site, meanwhile) = match &earlier.site {
        Some(site) => (
            site.clone().as_last_good(),
            "the site goes on with the settings of the last start, and no server is installed, erased or given its bootstrap data",
        ),
        None => (
            SiteConfig::for_a_refused_file(),
            "no server is installed, and the box leases no addresses",
        ),
    };
    let told = refused.into_iter().map(|problem| Problem {
        what: format!("{}; until then {meanwhile}", problem.what),
        ..problem
    });
    (site, told.collect())
}

/// A file without a mistake that can hardly be meant.
fn contradiction(
    file: &io::Result<Vec<u8>>,
    new: &SiteConfig,
    earlier: &Earlier,
) -> Option<Problem> {
    let old = earlier.site.as_ref()?;
    let is_blank = |byte: &u8| *byte == 0 || byte.is_ascii_whitespace();
    let is_empty = file.as_ref().is_ok_and(|bytes| bytes.iter().all(is_blank));
    if is_empty && new != old {
        return Some(Problem {
            what: "site.yaml is not used: it is empty now, and was not at the last start".to_owned(),
            next: "write it anew; if it is to be empty, write `# empty` into it; then start the box again".to_owned(),
        });
    }
    let moved = |what: &str, old: &dyn Display, new: &dyn Display| Problem {
        what: format!(
            "site.yaml is not used: {what} was {old} and is {new} now, while servers carry the systems of the old one"
        ),
        next: format!(
            "if this is the file of another site, put the right one back; if it is meant, log in as admin, run `sudo rm /{LAST_SITE}`, and start the box again"
        ),
    };
    // Their systems find the box, its registry and its packages at the address.
    let (before, now) = (old.provisioning.address, new.provisioning.address);
    match earlier.installed {
        true if before != now => Some(moved("the box's address", &before, &now)),
        true if old.name != new.name => Some(moved("the site's name", &old.name, &new.name)),
        _ => None,
    }
}

fn keep(paths: &Paths, bytes: &[u8]) -> Result<()> {
    if !state::is_usable(paths) || fs::read(paths.last_site()).is_ok_and(|kept| kept == bytes) {
        return Ok(());
    }
    files::write(&paths.last_site(), bytes, Access::Group)
}

fn not_kept(error: &anyhow::Error) -> Problem {
    Problem {
        what: format!("site.yaml could not be kept for later starts: {error:#}"),
        next: "if the state partition is full or worn out, write the image to another stick"
            .to_owned(),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!(
            "it is larger than {LARGEST} bytes"
        )));
    }
    Ok(bytes)
}

/// sshd reads them through `AuthorizedKeysCommand`, because it trusts no file of another user.
fn write_admin_keys(paths: &Paths, site: &SiteConfig) -> Result<()> {
    let keys = site
        .ssh_keys
        .iter()
        .fold(String::new(), |keys, key| keys + key.as_str() + "\n");
    files::make_dir(&paths.run_ssh(), 0o755)?;
    files::write(
        &paths.run_ssh().join("admin"),
        keys.as_bytes(),
        Access::Everybody,
    )
}

#[cfg(test)]
mod tests;
