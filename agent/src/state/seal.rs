//! What keeps the key of the box's state, and whether somebody is asked for its recovery key: told by `firstlight-update`, which opens the
//! state partition.

use std::{fs::File, io::Read, time::Duration};

use anyhow::Result;
use firstlight_api::{seal::SealStatus, status::Problem};
use tokio_util::sync::CancellationToken;

use crate::{
    paths::Paths,
    status::{StatusSender, Update},
};

const LOOK: Duration = Duration::from_secs(2);
const LONGEST: u64 = 4096;

pub async fn run(paths: Paths, status: StatusSender, stop: CancellationToken) -> Result<()> {
    let mut told = None;
    loop {
        let seal = read(&paths);
        if seal != told {
            let problem = seal.as_ref().and_then(|seal| seal.problem.clone());
            status.problems("seal", problem.into_iter().collect());
            if let Some(seal) = seal.clone() {
                status.send(Update::Seal(seal));
            }
            told = seal;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Why the state partition does not open, if that is why it is not there.
pub fn problem(paths: &Paths) -> Option<Problem> {
    read(paths)?.problem
}

/// `None` before it is known, and on a box that does not run from a stick.
fn read(paths: &Paths) -> Option<SealStatus> {
    let mut text = Vec::new();
    let file = File::open(paths.seal()).ok()?;
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use firstlight_api::seal::{Bound, RootOfTrust};

    use super::*;
    use crate::status;

    #[tokio::test(start_paused = true)]
    async fn a_state_that_does_not_open_is_told_until_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let (sender, mut shown, owner) = status::channel("1");
        let stop = CancellationToken::new();
        tokio::spawn(status::own(owner, stop.clone()));
        tokio::spawn(run(paths.clone(), sender, stop.clone()));
        assert_eq!(problem(&paths), None);
        let mut seal = SealStatus {
            root_of_trust: RootOfTrust::Tpm,
            bound: Some(Bound::Start),
            recovery_key: true,
            reason: String::new(),
            problem: Some(Problem {
                what: "the TPM does not open it".to_owned(),
                next: "type the recovery key".to_owned(),
            }),
        };
        let write = |seal: &SealStatus| {
            fs::create_dir_all(paths.seal().parent().unwrap()).unwrap();
            fs::write(paths.seal(), serde_json::to_vec(seal).unwrap()).unwrap();
        };
        write(&seal);
        shown
            .wait_for(|it| it.seal.as_ref() == Some(&seal) && it.problems.len() == 1)
            .await
            .unwrap();
        assert_eq!(problem(&paths), seal.problem);
        seal.problem = None;
        write(&seal);
        shown
            .wait_for(|it| it.seal.as_ref() == Some(&seal) && it.problems.is_empty())
            .await
            .unwrap();
        stop.cancel();
    }
}
