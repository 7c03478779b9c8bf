#![allow(clippy::unwrap_used)]
use firstlight_api::{
    boot_choice::SystemSlot,
    status::{HostState, HostStatus},
    update::StickSystems,
};
use proptest::prelude::*;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixListener,
};

use super::*;
use crate::status;

/// A box that runs from a stick.
fn paths(dir: &tempfile::TempDir, word: &str) -> Paths {
    let paths = Paths::new(dir.path());
    for folder in [
        paths.agent_state(),
        paths.run(),
        paths.root().join("proc"),
        paths.trial().parent().unwrap().to_owned(),
        paths.state_prepared().parent().unwrap().to_owned(),
    ] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(
        paths.kernel_line(),
        format!("BOOT_IMAGE=/x firstlight.slot=PARTUUID=1 {word} quiet\n"),
    )
    .unwrap();
    paths
}

/// A site.yaml that is not read yet.
fn nobody() -> watch::Receiver<Option<Arc<SiteConfig>>> {
    watch::Sender::new(None).subscribe()
}

/// Answers `orders` in turn with lines, and returns what was ordered and what came after it.
fn helper(
    paths: &Paths,
    answers: Vec<String>,
) -> tokio::task::JoinHandle<Vec<(HelperOrder, Vec<u8>)>> {
    let listener = UnixListener::bind(paths.update_socket()).unwrap();
    tokio::spawn(async move {
        let mut heard = Vec::new();
        for answer in answers {
            let (stream, _) = listener.accept().await.unwrap();
            let (read, mut write) = stream.into_split();
            let mut read = BufReader::new(read);
            let mut line = Vec::new();
            read.read_until(b'\n', &mut line).await.unwrap();
            let mut rest = Vec::new();
            read.read_to_end(&mut rest).await.unwrap();
            heard.push((serde_json::from_slice(&line).unwrap(), rest));
            write.write_all(answer.as_bytes()).await.unwrap();
        }
        heard
    })
}

fn line(reply: &HelperReply) -> String {
    format!("{}\n", serde_json::to_string(reply).unwrap())
}

fn seen(kubernetes: &str) -> String {
    line(&HelperReply::Seen(StickSystems {
        running: SystemSlot::A,
        trial: false,
        layers: Vec::new(),
        boot: Vec::new(),
        signature: None,
        room: 1,
        other: Some(Vec::new()),
        versions: Some(serde_json::json!({"firstlight": "0.2.0", "kubernetes": kubernetes})),
        keys: Vec::new(),
    }))
}

fn running(state: HostState) -> SiteStatus {
    SiteStatus {
        ready: true,
        hosts: vec![HostStatus {
            name: "n1".to_owned(),
            state,
            ..HostStatus::default()
        }],
        ..SiteStatus::default()
    }
}

#[tokio::test]
async fn an_older_system_is_not_started_and_a_newer_one_has_something_to_live_up_to() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(&dir, "");
    fs::write(paths.state_versions(), r#"{"kubernetes": "v1.36.1"}"#).unwrap();
    let updater = Updater::new(paths.clone(), nobody());
    let heard = helper(
        &paths,
        vec![seen("v1.35.9"), seen("v1.37.0"), line(&HelperReply::Done)],
    );
    let refused = updater
        .start(&running(HostState::Running))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("kubernetes v1.35.9, and the data are of v1.36.1"),
        "{refused}"
    );
    updater.start(&running(HostState::Running)).await.unwrap();
    let before: Wellness =
        serde_json::from_slice(&fs::read(paths.before_update()).unwrap()).unwrap();
    assert_eq!(before.missing(&running(HostState::Failed)).len(), 1);
    let orders: Vec<HelperOrder> = heard
        .await
        .unwrap()
        .into_iter()
        .map(|(order, _)| order)
        .collect();
    assert_eq!(
        orders,
        [HelperOrder::Look, HelperOrder::Look, HelperOrder::Try]
    );
}

#[tokio::test]
async fn what_is_sent_arrives_and_what_is_said_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(&dir, "");
    let updater = Updater::new(paths.clone(), nobody());
    let progress = line(&HelperReply::Progress { done: 1, of: 2 });
    let refused = HelperReply::Refused(Problem {
        what: "the stick is worn out".to_owned(),
        next: "take another".to_owned(),
    });
    let heard = helper(&paths, vec![format!("{progress}{}", line(&refused))]);
    let mut stage = updater.stage.subscribe();
    let (pieces, inbox) = mpsc::channel(4);
    pieces.send(Bytes::from_static(b"layer")).await.unwrap();
    drop(pieces);
    let header = UpdateHeader {
        system: SystemContent::default(),
        sent: vec!["agent".to_owned()],
    };
    let said = updater.write(header, inbox).await.unwrap_err().to_string();
    assert_eq!(said, "the stick is worn out; take another");
    assert_eq!(heard.await.unwrap()[0].1, b"layer");
    assert!(stage.has_changed().unwrap());
    assert_eq!(
        *stage.borrow_and_update(),
        None,
        "nothing is written any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_system_that_is_tried_stays_once_all_is_well_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(&dir, firstlight_api::boot_choice::TRIAL_WORD);
    fs::write(paths.state_prepared(), "").unwrap();
    fs::write(paths.trial(), "{}").unwrap();
    assert!(start_line::is_tried(&paths));
    let before = Wellness::of(&running(HostState::Running));
    fs::write(paths.before_update(), serde_json::to_vec(&before).unwrap()).unwrap();
    let (sender, shown, owner) = status::channel("1");
    let stop = CancellationToken::new();
    tokio::spawn(status::own(owner, stop.clone()));
    let (site, seen) = watch::channel(SiteStatus::default());
    let task = tokio::spawn(run(
        Updater::new(paths.clone(), nobody()),
        seen,
        sender,
        stop,
    ));
    let mut shown = shown;
    let waits = |status: &SiteStatus| matches!(&status.update, Some(UpdateStage::Tried { waits }) if waits.len() == 1);
    shown.wait_for(waits).await.unwrap();
    let why = fs::read_to_string(paths.run_trial()).unwrap();
    assert!(why.contains("server n1 ran before"), "{why}");

    // Well, but not for long enough.
    site.send_replace(running(HostState::Running));
    tokio::time::sleep(SETTLED / 2).await;
    site.send_replace(running(HostState::Failed));
    tokio::time::sleep(SETTLED * 3).await;
    assert!(!task.is_finished());
    let heard = helper(&paths, vec![line(&HelperReply::Done)]);
    site.send_replace(running(HostState::Running));
    let ended = task.await.unwrap().unwrap_err().to_string();
    assert!(ended.contains("this system is kept"), "{ended}");
    assert_eq!(heard.await.unwrap()[0].0, HelperOrder::Keep);
}

#[tokio::test]
async fn who_went_back_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(&dir, "");
    fs::write(paths.state_prepared(), "").unwrap();
    fs::write(
        paths.update_outcome(),
        r#"{"kept": false, "version": "0.2.0", "why": "server n1 ran before"}"#,
    )
    .unwrap();
    let (sender, mut shown, owner) = status::channel("1");
    let stop = CancellationToken::new();
    tokio::spawn(status::own(owner, stop.clone()));
    let (_site, seen) = watch::channel(SiteStatus::default());
    tokio::spawn(run(
        Updater::new(paths, nobody()),
        seen,
        sender,
        stop.clone(),
    ));
    let told = |status: &SiteStatus| {
        status.problems.iter().any(|problem| {
            problem.what.contains("0.2.0 was taken back") && problem.what.contains("n1")
        })
    };
    shown.wait_for(told).await.unwrap();
    stop.cancel();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The other end of the socket has more rights, and is no friend for that.
    #[test]
    fn whatever_is_answered_is_an_error_or_a_view(noise in "(\\{\"reply\":\"(seen|send|done|progress)\"[^\n]{0,40}\\}?\n?){0,3}|\\PC{0,40}\n?") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let paths = paths(&dir, "");
            let heard = helper(&paths, vec![noise]);
            drop(Updater::new(paths, nobody()).view().await);
            heard.await.unwrap();
        });
    }
}
