//! Reads `site.yaml`, once: a change needs a reboot, because the stick is then in another machine. On an installed machine
//! the agent is restarted.

use std::{fs, io, sync::Arc, time::Duration};

use anyhow::Result;
use firstlight_api::{
    site::{SiteConfig, SiteProblems, parse_site},
    status::Problem,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    files::{self, Access},
    paths::Paths,
    state::{is_mounted, wait_until},
    status::{StatusSender, StepName, Update},
};

/// The partition is on the stick that the box has just booted from.
const PATIENCE: Duration = Duration::from_mins(1);

pub async fn load(
    paths: &Paths,
    status: &StatusSender,
    publish: &watch::Sender<Option<Arc<SiteConfig>>>,
    stop: &CancellationToken,
) -> Result<()> {
    status.running(StepName::Site);
    wait_until(
        || is_mounted(paths, &paths.site_partition()),
        PATIENCE,
        stop,
    )
    .await;
    let (site, problems) = judge(fs::read(paths.site_yaml()));
    for problem in &problems {
        tracing::warn!(reason = problem.what, "site.yaml is not used");
    }
    status.send(Update::Site(site.name.to_string()));
    status.problems("site.yaml", problems);
    write_admin_keys(paths, &site)?;
    status.done(StepName::Site);
    publish.send_replace(Some(Arc::new(site)));
    Ok(())
}

/// Whatever the file is, the box comes up; without a good one it installs nothing.
fn judge(read: io::Result<Vec<u8>>) -> (SiteConfig, Vec<Problem>) {
    let refused = |problems| (SiteConfig::for_a_refused_file(), problems);
    let mend = "mend site.yaml on the stick's FIRSTLIGHT partition, or in /etc/firstlight/site of an installed machine (`firstlight check site.yaml` explains it), and start the box again";
    match read.map(parse_site) {
        Ok(Ok(site)) => (site, vec![]),
        Ok(Err(SiteProblems(problems))) => refused(
            problems
                .iter()
                .map(|problem| Problem { what: format!("site.yaml is not used, and no server is installed: {problem}"), next: mend.to_owned() })
                .collect(),
        ),
        Err(error) => refused(vec![Problem {
            what: format!("site.yaml cannot be read, and no server is installed: {error}"),
            next: "put a site.yaml on the stick's FIRSTLIGHT partition, or into /etc/firstlight/site of an installed machine, and start the box again".to_owned(),
        }]),
    }
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
mod tests {
    use firstlight_api::site::InstallPolicy;

    use super::*;

    #[test]
    fn a_bad_or_missing_file_installs_nothing_and_says_why() {
        for read in [
            Ok(b"nmae: lab\n".to_vec()),
            Err(io::ErrorKind::NotFound.into()),
        ] {
            let (site, problems) = judge(read);
            assert_eq!(site.install, InstallPolicy::Never);
            assert!(
                problems.len() == 1 && problems[0].what.contains("no server is installed"),
                "{problems:?}"
            );
        }
        assert_eq!(judge(Ok(vec![])), (SiteConfig::default(), vec![]));
    }
}
