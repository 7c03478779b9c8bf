#![allow(clippy::unwrap_used)]
use std::cell::Cell;

use firstlight_api::status::StepState;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::status;

/// A part that fails, answers, fails and answers again, seen by a person who looks all the time.
#[tokio::test(start_paused = true)]
async fn a_part_that_stops_answering_is_shown_as_failed_until_it_is_back() {
    let (sender, mut reader, owner) = status::channel("1");
    let stop = CancellationToken::new();
    let owner = tokio::spawn(status::own(owner, stop.clone()));
    let part = Part {
        step: StepName::Etcd,
        unit: "etcd",
        status: sender,
    };
    let asked = Cell::new(0);
    let probe = || {
        let count = asked.replace(asked.get() + 1);
        async move {
            match count {
                0..400 | 410..420 => Err(anyhow::anyhow!("refused")),
                _ => Ok(()),
            }
        }
    };
    let seen = async {
        let mut seen = Vec::new();
        while seen.len() < 5 {
            let state = reader.borrow_and_update().bring_up[StepName::Etcd as usize]
                .state
                .clone();
            let word = match state {
                StepState::Waiting => "waiting",
                StepState::Running { .. } => "running",
                StepState::Done { .. } => "done",
                StepState::Failed { .. } => "failed",
            };
            if seen.last() != Some(&word) {
                seen.push(word);
            }
            if reader.changed().await.is_err() {
                break;
            }
        }
        seen
    };
    let seen = tokio::select! {
        seen = seen => seen,
        () = part.comes_up_and_stays(probe) => vec!["ended"],
        () = tokio::time::sleep(Duration::from_hours(2)) => vec!["not all was seen"],
    };
    assert_eq!(seen, ["waiting", "running", "failed", "done", "failed"]);
    stop.cancel();
    assert!(owner.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn after_etcds_data_were_restored_nobody_acts_before_a_person_has_looked() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    let note = paths.restored_etcd();
    std::fs::create_dir_all(note.parent().unwrap()).unwrap();
    std::fs::write(&note, "the copy of 2026-11-22 03:00\n").unwrap();
    let (sender, mut shown, owner) = status::channel("1");
    let stop = CancellationToken::new();
    tokio::spawn(status::own(owner, stop.clone()));
    let waiting = tokio::spawn(async move { wait_until_accepted(&paths, &sender).await });
    let told = |status: &firstlight_api::status::SiteStatus| {
        status
            .problems
            .iter()
            .any(|problem| problem.what.contains("the copy of 2026-11-22 03:00 now"))
    };
    shown.wait_for(told).await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!waiting.is_finished());
    std::fs::remove_file(&note).unwrap();
    waiting.await.unwrap();
    shown
        .wait_for(|status| status.problems.is_empty())
        .await
        .unwrap();
    stop.cancel();
}
