//! What other programs of the box have found damaged and put aside, on the page until a person has seen to it.

use std::{fs, io::Read, path::Path, time::Duration};

use anyhow::Result;
use firstlight_api::status::Problem;
use tokio_util::sync::CancellationToken;

use crate::{paths::Paths, status::StatusSender};

const LOOK: Duration = Duration::from_secs(10);
/// Of a file that another program writes.
const LONGEST: u64 = 4096;

pub async fn run(paths: Paths, status: StatusSender, stop: CancellationToken) -> Result<()> {
    let mut told = Vec::new();
    loop {
        let problems: Vec<Problem> = [database(&paths), stick(&paths)]
            .into_iter()
            .flatten()
            .collect();
        if problems != told {
            status.problems("damage", problems.clone());
            told = problems;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Put aside by Ironic's `launch.py`.
fn database(paths: &Paths) -> Option<Problem> {
    let path = paths.damaged_ironic();
    path.exists().then(|| Problem {
        what: "Ironic's database was damaged and was made anew; the box has told Ironic again what is on the servers' disks".to_owned(),
        next: format!("the stick may be wearing out: write the image to another one soon; this is told until `sudo rm {}`", path.display()),
    })
}

/// Found by `scrub`.
fn stick(paths: &Paths) -> Option<Problem> {
    let damaged = read(&paths.damaged_layers())?;
    let parts: Vec<&str> = damaged.lines().collect();
    (!parts.is_empty()).then(|| Problem {
        what: format!("the stick is damaged: {}", parts.join(", ")),
        next: "write the image to another stick and move on to it before you restart the box: what runs now may not start again".to_owned(),
    })
}

/// What etcd was started with after its data were damaged, written by `etcd-data`. Until a person has looked, nothing may act on
/// the objects: they may say that a server is free which has been given away since.
pub fn restored_etcd(paths: &Paths) -> Option<Problem> {
    let path = paths.restored_etcd();
    let with = read(&path)?;
    Some(Problem {
        what: format!(
            "the data of the box's Kubernetes were damaged; it runs with {} now, and nothing is done to servers and clusters",
            with.trim()
        ),
        next: format!(
            "compare `kubectl get bmh,machines,clusters -A` with the servers: one that is in use and has no image in its spec would be erased. When all is right, run `sudo rm {}`",
            path.display()
        ),
    })
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::status;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_put_aside_is_told_until_a_person_has_removed_it() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let (sender, mut shown, owner) = status::channel("1");
        let stop = CancellationToken::new();
        tokio::spawn(status::own(owner, stop.clone()));
        tokio::spawn(run(paths.clone(), sender, stop.clone()));
        write(&paths.damaged_layers(), "");
        write(&paths.damaged_ironic(), "");
        let count = async |wanted: usize, shown: &mut tokio::sync::watch::Receiver<_>| {
            let told =
                |status: &firstlight_api::status::SiteStatus| status.problems.len() == wanted;
            let found = shown.wait_for(told).await.unwrap();
            found.problems.last().map(|problem| problem.what.clone())
        };
        assert!(
            count(1, &mut shown)
                .await
                .unwrap()
                .contains("Ironic's database")
        );
        write(&paths.damaged_layers(), "layer base\nlayer kube\n");
        assert_eq!(
            count(2, &mut shown).await.unwrap(),
            "the stick is damaged: layer base, layer kube"
        );
        fs::remove_file(paths.damaged_ironic()).unwrap();
        fs::remove_file(paths.damaged_layers()).unwrap();
        assert_eq!(count(0, &mut shown).await, None);
        stop.cancel();
    }
}
