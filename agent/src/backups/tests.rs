#![allow(clippy::unwrap_used)]
use firstlight_api::{backup::BackupPlan, update::HelperReply};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixListener,
};

use super::*;
use crate::status;

const RECIPIENT: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

fn site() -> SiteConfig {
    SiteConfig {
        backup: Some(BackupPlan {
            recipients: vec![RECIPIENT.to_owned().try_into().unwrap()],
            count: 3,
            outside: None,
        }),
        ..SiteConfig::default()
    }
}

/// Makes what it is ordered to make, or says why not; returns when it has done both once.
async fn helper(paths: Paths) {
    let listener = UnixListener::bind(paths.update_socket()).unwrap();
    for refuses in [true, false] {
        let (stream, _) = listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut line = String::new();
        BufReader::new(read).read_line(&mut line).await.unwrap();
        let HelperOrder::Backup { name, count, .. } = serde_json::from_str(&line).unwrap() else {
            panic!("{line}");
        };
        assert_eq!(count, 3);
        let reply = if refuses {
            HelperReply::Refused(Problem {
                what: "the stick is full".to_owned(),
                next: "delete uploads".to_owned(),
            })
        } else {
            fs::write(paths.backups().join(&name), "sealed").unwrap();
            HelperReply::Backup(BackupFile { name, bytes: 6 })
        };
        let text = format!("{}\n", serde_json::to_string(&reply).unwrap());
        write.write_all(text.as_bytes()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_cannot_be_made_is_told_and_one_that_is_made_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    for folder in [paths.backups(), paths.agent_state(), paths.run()] {
        fs::create_dir_all(folder).unwrap();
    }
    let (sender, mut page, owner) = status::channel("1");
    let stop = CancellationToken::new();
    tokio::spawn(status::own(owner, stop.clone()));
    let helper = tokio::spawn(helper(paths.clone()));
    let file = watch::Sender::new(Some(Arc::new(site())));
    let state = watch::Sender::new(SiteStatus::default());
    let keys = Keys::new(dir.path().join("keys"), 9);
    let (config, view) = (file.subscribe(), state.subscribe());
    tokio::spawn(run(paths.clone(), keys, config, view, sender, stop.clone()));
    // A box that is not up yet has something else to do.
    let shows = |wanted: fn(&SiteStatus) -> bool| move |status: &SiteStatus| wanted(status);
    let none = shows(|status| status.backup == Some(BackupStatus::default()));
    page.wait_for(none).await.unwrap();
    assert!(page.borrow().problems.is_empty());
    state.send_modify(|status| status.ready = true);
    let told = shows(|status| !status.problems.is_empty());
    let what = page.wait_for(told).await.unwrap().problems[0].what.clone();
    assert!(what.contains("the stick is full"), "{what}");

    // `firstlight backup --now`, or the next hour.
    let made = make(&paths, &site()).await.unwrap();
    helper.await.unwrap();
    let there = shows(|status| {
        let last = status
            .backup
            .as_ref()
            .and_then(|backup| backup.last.as_ref());
        status.problems.is_empty() && last.is_some_and(|last| last.bytes == 6)
    });
    let status = page.wait_for(there).await.unwrap().clone();
    assert!(status.backup.unwrap().sentence().contains(&made.name));
    file.send_replace(Some(Arc::default()));
    let gone = shows(|status| status.backup.is_none() && status.problems.is_empty());
    page.wait_for(gone).await.unwrap();
    assert!(make(&paths, &SiteConfig::default()).await.is_err());
    stop.cancel();
}
