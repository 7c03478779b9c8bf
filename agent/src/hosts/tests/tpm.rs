//! Which machine a host is: the ramdisk's own reports, with real (emulated) TPMs, over HTTP to the box's own server.

use std::{collections::BTreeSet, path::PathBuf};

use firstlight_api::{
    bmh::APPROVE_ANNOTATION,
    site::{JoinPolicy, MeasuredBoot},
    status::TpmStatus,
    tpm::{Fingerprint, Proof},
};
use firstlight_client::{key::Key, tls::BoxClock};
use firstlight_efi::vars::EfiVars;
use firstlight_ramdisk::{
    deploy::device::BlockDevice,
    inventory::sys::SysTree,
    ipa::{
        boxlink::BoxLink,
        machine::{Access, Machine},
        prover::{self, Prover},
    },
    tpm::Channel,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use tokio::{sync::watch, task::JoinHandle};

use super::{
    measured,
    running::{IMPATIENT, Running},
    *,
};
use crate::{
    boot_files::{BootFiles, Loaders},
    doors::Known,
    hosts::{
        host::Host,
        ledger::Ledgers,
        who::{Claim, Patience, Refused},
    },
    paths::Paths,
    web::{self, Web},
};

#[path = "../../../ramdisk/tests/support/swtpm.rs"]
pub mod swtpm;
use swtpm::{Swtpm, connect};

/// The box's HTTP server in front of the controller that runs now.
pub struct Front {
    port: u16,
    stop: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Front {
    pub async fn of(site: &Running) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        Self::at(port, site).await
    }

    /// In front of the controller that was started again.
    async fn restart(&mut self, site: &Running) {
        self.stop.cancel();
        (&mut self.serving).await.unwrap().unwrap();
        *self = Self::at(self.port, site).await;
    }

    async fn at(port: u16, site: &Running) -> Self {
        let (status, reader, _owner) = crate::status::channel("0.1.0");
        let boot_files = BootFiles {
            site: watch::channel(Some(measured::boot_site())).1,
            fleet: site.controller.fleet.clone(),
            paths: Paths::new(site.state.path()),
            loaders: Loaders::default(),
        };
        let known = Known::new(watch::channel(Arc::<BTreeSet<_>>::default()).1);
        let site_state = site.state.path().to_owned();
        let people = crate::people::People::new(site_state.join("people"));
        let web = Web::new(reader, boot_files, known, people, web::Facts::default());
        let stop = CancellationToken::new();
        let address = ([127, 0, 0, 1], port).into();
        let known = web.known.clone();
        let serving = web::serve_address(web, known, address, status, stop.clone());
        let serving = tokio::spawn(serving);
        while tokio::net::TcpStream::connect(address).await.is_err() {
            tokio::task::yield_now().await;
        }
        Self {
            port,
            stop,
            serving,
        }
    }
}

/// What of a machine has to do with its TPM.
#[derive(Clone)]
pub enum Board {
    With(PathBuf),
    /// And what its firmware has started.
    Started(PathBuf, Arc<Vec<u8>>),
    Bare,
    Broken,
}

impl Machine for Board {
    fn sys(&self) -> SysTree {
        SysTree::new("/nowhere")
    }
    fn open(&self, _: &str, _: Access) -> std::io::Result<Box<dyn BlockDevice>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
    fn efi_vars(&self) -> Option<EfiVars> {
        None
    }
    fn tpm(&self) -> std::io::Result<Box<dyn Channel>> {
        match self {
            Self::With(way) | Self::Started(way, _) => Ok(Box::new(connect(way)?)),
            Self::Bare => Err(std::io::ErrorKind::NotFound.into()),
            Self::Broken => Err(std::io::Error::other("broken")),
        }
    }
    fn start_log(&self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Started(_, log) => Ok(log.to_vec()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        }
    }
    fn log(&self) -> Vec<u8> {
        Vec::new()
    }
    fn sync(&self) {}
}

/// The board ends with its TPM.
pub fn board(tpm: &Swtpm) -> Board {
    Board::With(tpm.way())
}

/// One boot of a ramdisk. Nothing of it comes from a disk.
pub struct Boot {
    link: Arc<(BoxLink, Prover)>,
    pub key: PublicKey,
}

impl Boot {
    pub fn on(board: &Board, front: &Front) -> Self {
        let key = Key::new().unwrap();
        Self {
            key: key.public(),
            link: Arc::new((
                BoxLink::new(
                    &format!("http://127.0.0.1:{}", front.port),
                    Arc::new(BoxClock::default()),
                    key,
                ),
                Prover::start(
                    Arc::new(board.clone()),
                    prover::Patience {
                        first: Duration::from_secs(20),
                        ..prover::Patience::default()
                    },
                ),
            )),
        }
    }

    async fn report(&self) -> Directive {
        let report = Report::<Value> {
            boot_mac: MAC.into(),
            boot_id: format!("boot-{}", &self.key.code()),
            address: "127.0.0.1".into(),
            inventory: json!({"boot": {"current_boot_mode": "uefi"}}),
            disks: vec![],
            lookup: LookupState::NotAsked,
            tpm: Tpm::default(),
            follows: Vec::new(),
            fresh: Fresh::default(),
        };
        let link = Arc::clone(&self.link);
        let sent = tokio::task::spawn_blocking(move || link.0.report(report, &link.1));
        sent.await.unwrap().unwrap()
    }

    fn proof(&self) -> Option<Proof> {
        match self.link.1.said() {
            Tpm::Key { proof, .. } => proof,
            other => panic!("{other:?}"),
        }
    }

    /// Reports once; the page shows that it is believed.
    pub async fn is_believed(&self, site: &mut Running) -> HostStatus {
        self.report().await;
        let code = self.key.code();
        site.wait_for("its code on the page", |host| host.code == code)
            .await
    }

    pub async fn refusal(&self) -> String {
        match self.report().await {
            Directive::Wait { reason, .. } => reason,
            other => panic!("believed: {other:?}"),
        }
    }

    /// Not believed, and told with `lack`.
    async fn is_a_stranger(&self, site: &mut Running, lack: &str) {
        let refusal = self.refusal().await;
        assert!(refusal.contains("knows another TPM"), "{refusal}");
        let code = self.key.code();
        let told = site
            .wait_for("the stranger on the page", |host| host.other_code == code)
            .await;
        assert_ne!(told.code, code);
        let what = told.problem.unwrap().what;
        assert!(what.contains(lack), "{what}");
    }
}

fn status_of(host: &HostStatus) -> TpmStatus {
    host.hardware.as_ref().unwrap().tpm.clone()
}

/// What the disk says of its TPM, once that is as expected.
async fn pinned(
    site: &Running,
    expected: impl Fn(Option<Fingerprint>) -> bool,
) -> Option<Fingerprint> {
    let ledgers = Ledgers::new(site.state.path().join("hosts"));
    let read = || ledgers.load().unwrap().get(&mac()).and_then(|it| it.tpm);
    let reached = async {
        while !expected(read()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(in_time.is_ok(), "on the disk is {:?}", read());
    read()
}

pub fn approve(site: &Running, code: &str) {
    let name = site.host().unwrap().name;
    site.store.change(&name, |object| {
        let word = (APPROVE_ANNOTATION.to_owned(), code.to_owned());
        object.metadata.annotations.extend([word]);
    });
}

#[tokio::test]
async fn a_machine_is_known_by_its_tpm_whatever_is_on_its_disk() {
    let mut site = Running::start(Patience::default()).await;
    let front = Front::of(&site).await;
    let tpm = Swtpm::new();
    let board = board(&tpm);
    let shown = Boot::on(&board, &front).is_believed(&mut site).await;
    assert_eq!(status_of(&shown), TpmStatus::Bound);
    let first = pinned(&site, |tpm| tpm.is_some()).await;
    // Its power failed, its disk went: the same machine is believed at once, with another key.
    tpm.power_cycle();
    let again = Boot::on(&board, &front);
    let shown = again.is_believed(&mut site).await;
    assert_eq!(status_of(&shown), TpmStatus::Bound);
    pinned(&site, |tpm| tpm == first).await;
    again.is_believed(&mut site).await;
}

#[tokio::test]
async fn who_cannot_show_the_tpm_of_a_host_is_not_believed_and_is_told() {
    let mut site = Running::start(Patience::default()).await;
    site.ironic_comes_up();
    site.kubernetes_comes_up();
    let front = Front::of(&site).await;
    let (mine, other) = (Swtpm::new(), Swtpm::new());
    Boot::on(&board(&mine), &front).is_believed(&mut site).await;
    let first = pinned(&site, |tpm| tpm.is_some()).await;
    // The first is off for long, and the box has forgotten who spoke.
    site.restart_controller();
    let front = Front::of(&site).await;
    for (board, lack) in [
        (board(&other), "has another TPM"),
        (Board::Bare, "has no TPM"),
        (
            Board::Broken,
            "does not answer (it cannot be spoken to: broken)",
        ),
    ] {
        let other = Boot::on(&board, &front);
        other.is_a_stranger(&mut site, lack).await;
        site.wait_for_object(|object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| status.error_message.contains(lack))
        })
        .await;
        let progress = Progress {
            boot_mac: MAC.into(),
            boot_id: "b".into(),
            phase: Phase::REBOOTING,
            fresh: Fresh::default(),
        };
        let from = Speaker {
            peer: [127, 0, 0, 1].into(),
            key: other.key,
            follows: Vec::new(),
            tpm: None,
            boot: None,
        };
        assert!(!site.controller.fleet.progress(from, progress).await);
    }
    pinned(&site, |tpm| tpm == first).await;
    assert_eq!(
        site.host().unwrap().hardware,
        None,
        "nothing of what they say is kept"
    );
}

#[tokio::test]
async fn a_person_puts_another_machine_in_the_place_of_a_broken_one() {
    let mut site = Running::start(Patience::default()).await;
    site.kubernetes_comes_up();
    let front = Front::of(&site).await;
    let (broken, replaced) = (Swtpm::new(), Swtpm::new());
    let old = Boot::on(&board(&broken), &front);
    old.is_believed(&mut site).await;
    site.wait_for_object(|object| object.spec.boot_mac_address == MAC)
        .await;
    let first = pinned(&site, |tpm| tpm.is_some()).await;
    // A new mainboard, whose TPM is another one.
    let board = board(&replaced);
    let new = Boot::on(&board, &front);
    new.is_a_stranger(&mut site, "has another TPM").await;
    approve(&site, &new.key.code());
    site.wait_for("the approval", |host| host.other_code.is_empty())
        .await;
    pinned(&site, |tpm| tpm.is_some() && tpm != first).await;
    new.is_believed(&mut site).await;
    // The old one goes on speaking: it is the stranger now.
    old.is_a_stranger(&mut site, "has another TPM").await;
    site.restart_controller();
    let front = Front::of(&site).await;
    let restarted = Boot::on(&board, &front).is_believed(&mut site).await;
    assert_eq!(status_of(&restarted), TpmStatus::Bound);
}

#[tokio::test]
async fn a_person_may_take_a_machine_whose_tpm_is_gone() {
    let mut site = Running::start(IMPATIENT).await;
    site.kubernetes_comes_up();
    let front = Front::of(&site).await;
    let tpm = Swtpm::new();
    Boot::on(&board(&tpm), &front).is_believed(&mut site).await;
    site.wait_for_object(|object| object.spec.boot_mac_address == MAC)
        .await;
    let bare = Boot::on(&Board::Bare, &front);
    bare.is_a_stranger(&mut site, "has no TPM").await;
    approve(&site, &bare.key.code());
    site.wait_for("the approval", |host| host.other_code.is_empty())
        .await;
    let shown = bare.is_believed(&mut site).await;
    assert_eq!(status_of(&shown), TpmStatus::Absent);
    pinned(&site, |tpm| tpm.is_none()).await;
}

#[tokio::test]
async fn a_host_without_a_tpm_goes_on_and_is_bound_when_one_answers() {
    let mut site = Running::start(IMPATIENT).await;
    let front = Front::of(&site).await;
    for (board, status) in [
        (Board::Bare, TpmStatus::Absent),
        (
            Board::Broken,
            TpmStatus::Silent {
                reason: "it cannot be spoken to: broken".into(),
            },
        ),
    ] {
        // Every one of them is heard once the one before is silent for a moment.
        let shown = until_believed(&Boot::on(&board, &front), &mut site).await;
        assert_eq!(status_of(&shown), status);
        pinned(&site, |tpm| tpm.is_none()).await;
    }
    let tpm = Swtpm::new();
    let shown = until_believed(&Boot::on(&board(&tpm), &front), &mut site).await;
    assert_eq!(status_of(&shown), TpmStatus::Bound);
}

async fn until_believed(boot: &Boot, site: &mut Running) -> HostStatus {
    while matches!(boot.report().await, Directive::Wait { reason, .. } if reason.contains("another machine speaks"))
    {
        tokio::task::yield_now().await;
    }
    boot.is_believed(site).await
}

#[tokio::test]
async fn a_box_that_restarted_asks_again_and_believes_the_same_boot() {
    let mut site = Running::start(Patience::default()).await;
    let mut front = Front::of(&site).await;
    let tpm = Swtpm::new();
    let boot = Boot::on(&board(&tpm), &front);
    boot.is_believed(&mut site).await;
    let before = boot.proof();
    boot.is_believed(&mut site).await;
    assert_eq!(boot.proof(), before, "once a boot is enough");
    site.restart_controller();
    front.restart(&site).await;
    boot.is_believed(&mut site).await;
    assert_ne!(boot.proof(), before);
}

#[test]
fn an_approval_outlives_a_restart_with_the_tpm_and_not_without() {
    let one = Fingerprint::new([1; 32]);
    let mut host = a_host(Ledger::default());
    let mut minutes = 0;
    let mut speak = |host: &mut Host, key: u8, tpm| {
        minutes += 10;
        let now = Duration::from_mins(minutes);
        let claim = Claim {
            key: PublicKey::new([key; 32]),
            boot_id: "b",
            address: Ipv4Addr::LOCALHOST,
            sequence: 1,
            tpm,
            boot: None,
        };
        host.recognise(&claim, &Tpm::Absent, MeasuredBoot::Compare, now)?;
        host.who.report(&claim, now, Patience::default()).unwrap();
        host.saw_tpm(JoinPolicy::Approve, None);
        Ok::<(), Refused>(())
    };
    let waits = |host: &Host| host.candidate().barred(JoinPolicy::Approve).is_some();
    speak(&mut host, 1, Some(one)).unwrap();
    assert!(waits(&host));
    assert_eq!(host.ledger().tpm, None, "who waits is bound to nothing");
    host.approve(Some(&PublicKey::new([1; 32]).code()));
    assert!(!waits(&host));
    speak(&mut host, 2, Some(one)).unwrap();
    assert!(!waits(&host), "nobody is asked again");
    assert!(speak(&mut host, 3, Some(Fingerprint::new([2; 32]))).is_err());
    assert!(speak(&mut host, 4, None).is_err());
}

#[test]
fn a_disk_with_the_key_that_was_approved_makes_no_machine_that_server() {
    let key = PublicKey::new([1; 32]);
    let mut ledger = Ledger::default();
    ledger.approve(key, Some(Fingerprint::new([1; 32])));
    let mut host = a_host(ledger);
    let mut object = BareMetalHost::default();
    let word = (APPROVE_ANNOTATION.to_owned(), key.code());
    object.metadata.annotations.extend([word]);
    host.object = Some(object.into());
    let before = host.ledger().clone();
    let claim = Claim {
        key,
        boot_id: "b",
        address: Ipv4Addr::LOCALHOST,
        sequence: 1,
        tpm: None,
        boot: None,
    };
    for _ in 0..2 {
        let found = host.recognise(&claim, &Tpm::Absent, MeasuredBoot::Compare, Duration::ZERO);
        assert_eq!(found, Err(Refused::Stranger));
        host.approve(Some(&key.code()));
        assert_eq!(host.status().other_code, key.code(), "it stays told");
    }
    assert_eq!(*host.ledger(), before);
}
