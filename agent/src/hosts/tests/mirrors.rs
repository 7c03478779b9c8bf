//! A mirror that loses a disk while its system runs.

use firstlight_api::{
    bmh::{ConditionStatus, MIRROR},
    mirror::{Mirror, Told},
    order::DiskId,
    report::DiskSignatures,
    status::RootDiskState,
};

use super::{rules, schedules::Dice, *};

const SITE: &str = "- {match: any, rootDisk: {mirror: true}}\n";
const PAUSE: Duration = Duration::from_mins(10);

/// Of two disks; a third is smaller.
const SIZE: u64 = 16 << 30;

/// Of the running system: what it knows of its mirror, and when it was asked.
#[derive(Default)]
pub struct Kernel {
    told: Told,
    refuses: Option<SshError>,
    /// Nothing is answered.
    is_slow: bool,
    asked: Vec<Duration>,
}

impl Kernel {
    pub fn answer(&mut self, now: Duration) -> Option<Result<Told, SshError>> {
        self.asked.push(now);
        let told = self
            .refuses
            .clone()
            .map_or_else(|| Ok(self.told.clone()), Err);
        (!self.is_slow).then_some(told)
    }

    fn has(&mut self, serials: &[&str], filled: Option<u8>) {
        let disk = |serial: &&str| DiskId::new(Some(serial), None, SIZE);
        let whole = serials.iter().map(disk).collect();
        self.told.mirror = Some(Mirror { whole, filled });
    }
}

fn disk(name: &str, serial: &str) -> DiskSignatures {
    DiskSignatures {
        name: name.into(),
        size_bytes: SIZE,
        serial: Some(serial.into()),
        ..DiskSignatures::default()
    }
}

/// With a system on the disks A and B that answers SSH.
async fn runs<L: Luck>(site: &mut Site<L>) {
    let mut server = Server::new(site.ironic.client());
    server.others = vec![disk("/dev/vdb", "A"), disk("/dev/vdc", "B")];
    server.until_ironic(site, ProvisionState::DeployWait).await;
    server.finish(site).await;
    let running = |site: &Site<L>| site.state() == Some(HostState::Running);
    until("running", site, running).await;
}

async fn round<L: Luck>(site: &mut Site<L>, time: Duration) {
    let (mac, answers) = (mac(), true);
    site.take(Event::Ssh { mac, answers }).await;
    site.pass(time).await;
}

async fn until<L: Luck>(what: &str, site: &mut Site<L>, is: impl Fn(&Site<L>) -> bool) {
    for _ in 0..ROUNDS {
        if is(site) {
            return;
        }
        round(site, ROUND * 10).await;
    }
    panic!("waited for {what}; {}", site.told());
}

/// Status, reason and message.
fn condition<L>(site: &Site<L>) -> Option<(ConditionStatus, String, String)> {
    let conditions = site.store.only()?.status?.conditions;
    let found = conditions.into_iter().find(|one| one.kind == MIRROR)?;
    Some((found.status, found.reason, found.message))
}

fn is<L>(reason: &'static str) -> impl Fn(&Site<L>) -> bool {
    move |site| condition(site).is_some_and(|(_, found, _)| found == reason)
}

#[tokio::test]
async fn a_lost_disk_is_told_by_its_serial_number_until_another_one_is_filled() {
    let mut site = rules::site(SITE).await;
    site.mirror.has(&["A", "B"], None);
    runs(&mut site).await;
    until("whole", &mut site, is("Whole")).await;
    let root = |site: &Site| site.host().unwrap().root_disk.unwrap();
    assert_eq!(root(&site).problem, None);

    site.mirror.has(&["B"], None);
    until("lost", &mut site, is("DiskLost")).await;
    let (status, _, says) = condition(&site).unwrap();
    assert_eq!(status, ConditionStatus::False);
    assert!(
        says.contains("has lost /dev/vdb (17 GB, serial A)"),
        "{says}"
    );
    assert!(says.contains("mdadm /dev/md127 --add"), "{says}");
    let shown = root(&site);
    assert_eq!(shown.state, RootDiskState::Wrote);
    assert!(says.starts_with(&shown.problem.unwrap().what), "{says}");
    // Its system works, and is nobody's to take away for that.
    assert_eq!(site.problem(), "");

    // What was seen is known after a restart of the box, also while nobody answers.
    site.mirror.refuses = Some(SshError::Unreachable("no route".into()));
    site.restart_controller();
    for _ in 0..30 {
        round(&mut site, ROUND).await;
        assert!(is("DiskLost")(&site), "{:?}", condition(&site));
    }
    site.mirror.refuses = None;
    site.mirror.has(&["B"], Some(42));
    until("filling", &mut site, is("Filling")).await;
    let says = condition(&site).unwrap().2;
    assert!(says.contains("42 %") && says.contains("serial A"), "{says}");
    site.mirror.has(&["B", "C"], None);
    until("whole again", &mut site, is("Whole")).await;
    assert_eq!(root(&site).problem, None);
}

#[tokio::test]
async fn a_system_is_looked_at_once_in_ten_minutes_and_one_without_a_mirror_never() {
    let mut site = rules::site(SITE).await;
    site.mirror.has(&["A", "B"], None);
    runs(&mut site).await;
    for _ in 0..200 {
        round(&mut site, ROUND * 10).await;
    }
    let asked = &site.mirror.asked;
    assert!((6..=7).contains(&asked.len()), "{asked:?}");
    assert!(
        asked.windows(2).all(|pair| pair[0] + PAUSE <= pair[1]),
        "{asked:?}"
    );
    // Nobody is asked a second time while the first is not answered.
    site.mirror.asked.clear();
    site.mirror.is_slow = true;
    for _ in 0..200 {
        round(&mut site, ROUND * 10).await;
    }
    assert_eq!(site.mirror.asked.len(), 1);

    let mut site = rules::site("- match: any\n").await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    server.finish(&mut site).await;
    let running = |site: &Site| site.state() == Some(HostState::Running);
    until("running", &mut site, running).await;
    for _ in 0..60 {
        round(&mut site, ROUND * 10).await;
    }
    assert_eq!((site.mirror.asked.len(), condition(&site)), (0, None));
}

#[tokio::test]
async fn no_answer_is_no_news_and_a_lie_says_nothing_of_other_disks() {
    let mut site = rules::site(SITE).await;
    site.mirror.refuses = Some(SshError::Failed {
        code: 2,
        text: "usage".into(),
    });
    runs(&mut site).await;
    for _ in 0..60 {
        round(&mut site, ROUND * 10).await;
    }
    let (status, reason, _) = condition(&site).unwrap();
    assert_eq!(
        (status, reason.as_str()),
        (ConditionStatus::Unknown, "NotSeen")
    );
    assert_eq!(site.mirror.asked.len(), 1, "not each ten minutes");
    // It says what its system cannot know, and is quoted with nothing.
    site.mirror.refuses = None;
    site.mirror.has(&["<b>", "evil"], Some(3));
    site.mirror.told.mirror.as_mut().unwrap().whole.pop();
    for _ in 0..200 {
        round(&mut site, ROUND * 10).await;
    }
    let (_, reason, says) = condition(&site).unwrap();
    assert_eq!(reason, "Filling");
    assert!(
        says.contains("one of its disks") && !says.contains("<b>"),
        "{says}"
    );
}

#[tokio::test]
async fn whatever_breaks_whenever_the_condition_is_what_the_system_said_last() {
    let mut cuts = 0;
    for seed in 0..40 {
        let mut site = Site::with(SitePolicy::Plain, Dice::new(seed)).await;
        site.come_up();
        let file = firstlight_api::site::parse_site(format!("cluster: none\nrules:\n{SITE}"));
        site.settings.site = Arc::new(file.unwrap());
        site.restart_controller();
        site.mirror.has(&["A", "B"], None);
        runs(&mut site).await;
        for (serials, reason) in [
            (&["A"][..], "DiskLost"),
            (&["A", "C"], "Whole"),
            (&["C"], "DiskLost"),
        ] {
            site.mirror.has(serials, None);
            for _ in 0..ROUNDS {
                if is(reason)(&site) {
                    break;
                }
                // SSH is asked again before it counts as gone.
                for _ in 0..5 {
                    round(&mut site, ROUND * 30).await;
                }
            }
            assert!(is(reason)(&site), "seed {seed}: {}", site.told());
        }
        cuts += site.cuts;
    }
    assert!(cuts > 0, "or this test shows nothing");
}
