//! The box's account in a server's BMC, which the server's ramdisk makes.

use firstlight_api::{
    account::{Bmc, Order, Outcome, Password, Post},
    bmh::{BmcDetails, ConditionStatus, SPEC_HONOURED},
};

use super::{rules, schedules::Dice, *};
use crate::hosts::{
    account::{MADE, WORD},
    made,
};

const CREATE: &str = "- {match: any, install: never, bmc: {account: create}}";
/// The same for a server that is installed meanwhile.
const INSTALL: &str = "- {match: any, bmc: {account: create}}";
pub const AT: &str = "ipmi://10.0.0.9";
pub const SECRET: &str = "host-525400000001-bmc-account";

/// A server in its ramdisk, and what is in its BMC.
struct Kept {
    server: Server,
    address: Option<Ipv4Addr>,
    /// Of the account.
    password: Option<String>,
    said: Outcome,
    /// How often it was made.
    made: usize,
    order: Option<Order>,
}

impl Kept {
    fn new<L: Luck>(site: &Site<L>) -> Self {
        Self {
            server: Server::new(site.ironic.client()),
            address: Some(Ipv4Addr::new(10, 0, 0, 9)),
            password: None,
            said: Outcome::Ready,
            made: 0,
            order: None,
        }
    }

    fn post(&self) -> Post {
        Post {
            boot_mac: MAC.into(),
            boot_id: self.server.boot_id.clone(),
            bmc: Bmc {
                address: self.address,
                account: self.password.is_some(),
            },
            outcome: self.said.clone(),
            fresh: Fresh::default(),
        }
    }

    async fn step<L: Luck>(&mut self, site: &mut Site<L>) {
        self.server.step(site).await;
        self.order = said(site, self.server.speaker(), self.post()).await;
        match self.order {
            Some(Order::Rest { .. }) => self.said = Outcome::Ready,
            Some(Order::Make) => {
                self.made += 1;
                let password = format!("Password-{}", self.made);
                let told = Password::try_from(password.clone()).unwrap();
                self.password = Some(password);
                self.said = Outcome::Made { password: told };
            }
            Some(Order::Remove) => {
                self.password = None;
                self.said = Outcome::Removed;
            }
            Some(Order::Repeat { .. } | Order::Again) | None => {}
        }
        site.pass(ROUND).await;
    }

    async fn until<L: Luck>(
        &mut self,
        what: &str,
        site: &mut Site<L>,
        is: impl Fn(&Site<L>, &Self) -> bool,
    ) {
        for _ in 0..ROUNDS {
            if is(site, self) {
                return;
            }
            self.step(site).await;
        }
        panic!("waited for {what}; {:?}; {}", self.order, site.told());
    }

    async fn rounds(&mut self, site: &mut Site, rounds: usize) {
        for _ in 0..rounds {
            self.step(site).await;
        }
    }
}

/// `None`: it was not believed, or the box lost its power over it.
async fn said<L: Luck>(site: &mut Site<L>, from: Speaker, post: Post) -> Option<Order> {
    let ticket = site.ask();
    let post = Box::new(post);
    site.take(Event::Bmc { ticket, from, post }).await;
    match site.replies.remove(&ticket)? {
        Reply::Account(order) => order,
        other => panic!("{other:?}"),
    }
}

pub fn bmc<L>(site: &Site<L>) -> Option<BmcDetails> {
    site.store.only()?.spec.bmc
}

pub fn is_marked<L>(site: &Site<L>) -> bool {
    let object = site.store.only();
    object.is_some_and(|object| object.metadata.annotations.contains_key(MADE))
}

pub fn kept_password<L>(site: &Site<L>) -> Option<String> {
    let secrets = site.store.secrets.lock().unwrap();
    let password = secrets.get(SECRET)?.get("password")?;
    Some(String::from_utf8(password.clone()).unwrap())
}

/// The account works, and Ironic has been told of it.
fn has_power<L>(site: &Site<L>, kept: &Kept) -> bool {
    let named = bmc(site).is_some_and(|bmc| bmc.address == AT && bmc.credentials_name == SECRET);
    let driver = site.ironic.driver(&node());
    let told = driver.is_some_and(|(name, info)| {
        name == "ipmi" && info["ipmi_password"].as_str() == kept.password.as_deref()
    });
    named && told && kept_password(site) == kept.password && kept.password.is_some()
}

pub fn honoured<L>(site: &Site<L>) -> Option<String> {
    let status = site.store.only()?.status?;
    let mut conditions = status.conditions.into_iter();
    let said = conditions.find(|it| it.kind == SPEC_HONOURED)?;
    (said.status == ConditionStatus::False).then_some(said.message)
}

pub fn says(site: &Site, part: &str) -> bool {
    honoured(site).is_some_and(|said| said.contains(part))
}

pub fn with_rules(site: &mut Site, rules: &str) {
    let file = firstlight_api::site::parse_site(format!("cluster: none\n{rules}")).unwrap();
    site.settings.site = Arc::new(file);
    site.restart_controller();
}

#[tokio::test]
async fn a_server_that_nobody_named_a_bmc_of_gets_remote_power_and_loses_it_when_it_shall() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.until("power", &mut site, has_power).await;
    let object = site.store.only().unwrap();
    assert!(made::is_as_made(&object), "no person has written anything");
    assert!(!object.spec.disable_power_off, "somebody can switch it on");
    assert_eq!((kept.made, honoured(&site)), (1, None));
    kept.rounds(&mut site, 40).await;
    assert_eq!(kept.made, 1, "it is made once");

    // A start of the box, during which nobody knows what the server is made of, takes nothing away.
    site.restart_controller();
    for _ in 0..5 {
        site.pass(ROUND).await;
    }
    assert!(has_power(&site, &kept));
    kept.rounds(&mut site, 10).await;
    assert_eq!(kept.made, 1);

    with_rules(&mut site, "rules: [{match: any, install: never}]");
    kept.rounds(&mut site, 2).await;
    kept.until("gone", &mut site, |site, kept| {
        kept.password.is_none() && !is_marked(site) && kept_password(site).is_none()
    })
    .await;
    let object = site.store.only().unwrap();
    assert_eq!(object.spec.bmc, None);
    assert!(object.spec.disable_power_off && made::is_as_made(&object));
    assert_eq!(site.ironic.driver(&node()).unwrap().0, "manual-management");
    kept.rounds(&mut site, 10).await;
    assert_eq!((kept.made, honoured(&site)), (1, None));
}

#[tokio::test]
async fn an_account_in_a_server_that_is_away_is_named_no_more_and_taken_away_when_it_comes() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.until("power", &mut site, has_power).await;
    site.store.change(NAME, |object| {
        let word = (WORD.to_owned(), "remove".to_owned());
        object.metadata.annotations.extend([word]);
    });
    site.wait_for("its power is gone", |site| bmc(site).is_none())
        .await;
    site.wait_for("told", |site| says(site, "still in its BMC"))
        .await;
    assert!(is_marked(&site) && kept_password(&site).is_some());
    kept.until("gone", &mut site, |site, kept| {
        kept.password.is_none() && !is_marked(site) && kept_password(site).is_none()
    })
    .await;
    kept.rounds(&mut site, 10).await;
    assert_eq!(kept.made, 1, "the word is stronger than the rule");
}

#[tokio::test]
async fn what_a_person_names_is_never_written_over() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.until("made", &mut site, |_, kept| kept.made == 1)
        .await;
    // While the ramdisk makes it.
    super::power::credentials(&site.store, "theirs");
    let theirs = BmcDetails {
        address: "ipmi://10.0.0.77".into(),
        credentials_name: super::power::SECRET.into(),
        ..BmcDetails::default()
    };
    site.store
        .change(NAME, |object| object.spec.bmc = Some(theirs.clone()));
    site.pass(ROUND).await;
    kept.rounds(&mut site, 20).await;
    assert_eq!(bmc(&site), Some(theirs.clone()));
    assert_eq!((kept.password, kept.made), (None, 1), "it went again");
    assert!(kept_password(&site).is_none() && !is_marked(&site));

    // Over the box's own.
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.until("power", &mut site, has_power).await;
    super::power::credentials(&site.store, "theirs");
    site.store
        .change(NAME, |object| object.spec.bmc = Some(theirs.clone()));
    site.pass(ROUND).await;
    kept.rounds(&mut site, 20).await;
    assert_eq!((bmc(&site), kept.made), (Some(theirs), 1));
}

#[tokio::test]
async fn a_bmc_that_the_box_cannot_reach_is_told_and_its_server_is_installed_as_ever() {
    type Change = fn(&mut Site, &mut Kept);
    let cases: [(Change, &str); 3] = [
        (|_, kept| kept.address = None, "has no address"),
        (
            |_, kept| kept.address = Some(Ipv4Addr::new(169, 254, 0, 17)),
            "169.254.0.17, where no BMC can be",
        ),
        (
            |site, _| site.is_bmc_silent = true,
            "does not answer the box",
        ),
    ];
    for (change, sentence) in cases {
        let mut site = rules::site(INSTALL).await;
        let mut kept = Kept::new(&site);
        change(&mut site, &mut kept);
        kept.until("told", &mut site, |site, _| says(site, sentence))
            .await;
        let deploys =
            |site: &Site, _: &Kept| site.ironic.state(&node()) == Some(ProvisionState::DeployWait);
        kept.until("installed", &mut site, deploys).await;
        kept.rounds(&mut site, 30).await;
        assert!(kept.made <= 1 && kept.password.is_none(), "{sentence}");
        assert_eq!((bmc(&site), site.problem().as_str()), (None, ""));
        assert!(says(&site, sentence), "{:?}", honoured(&site));
    }
}

#[tokio::test]
async fn a_bmc_that_ironic_cannot_use_is_named_no_more() {
    let mut site = rules::site("- {match: any}").await;
    let mut kept = Kept::new(&site);
    let deploys =
        |site: &Site, _: &Kept| site.ironic.state(&node()) == Some(ProvisionState::DeployWait);
    kept.until("installed", &mut site, deploys).await;
    kept.server.finish(&mut site).await;
    site.ironic
        .set_bmc(&node(), Some("no cipher suite in common"));
    site.store.change(NAME, |object| {
        let word = (WORD.to_owned(), "create".to_owned());
        object.metadata.annotations.extend([word]);
    });
    kept.until("named", &mut site, |site, _| bmc(site).is_some())
        .await;
    kept.until("gone", &mut site, |site, kept| {
        bmc(site).is_none() && kept.password.is_none()
    })
    .await;
    kept.rounds(&mut site, 40).await;
    assert!(says(&site, "no cipher suite"), "{:?}", honoured(&site));
    assert_eq!((kept.made, site.problem().as_str()), (1, ""));
    assert_eq!(site.ironic.driver(&node()).unwrap().0, "manual-management");
    site.ironic.set_bmc(&node(), None);
    site.now += Duration::from_mins(30);
    kept.until("power", &mut site, has_power).await;
}

fn is_deleted(site: &Site) {
    site.store.change(NAME, |object| {
        object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".to_owned());
    });
}

fn is_gone<L>(site: &Site<L>) -> bool {
    site.store.only().is_none()
}

#[tokio::test]
async fn a_deleted_host_goes_without_its_account() {
    for rule in [CREATE, INSTALL] {
        let mut site = rules::site(rule).await;
        let mut kept = Kept::new(&site);
        kept.until("power", &mut site, has_power).await;
        is_deleted(&site);
        kept.until("gone", &mut site, |site, _| is_gone(site)).await;
        assert_eq!((kept.password.as_deref(), kept.made), (None, 1), "{rule}");
        assert_eq!(kept_password(&site), None);
    }
}

#[tokio::test]
async fn who_cannot_be_reached_is_told_and_waited_for_no_longer_than_half_an_hour() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.until("power", &mut site, has_power).await;
    is_deleted(&site);
    let (end, mut told) = (site.now + Duration::from_mins(30), false);
    while !is_gone(&site) {
        site.pass(ROUND * 5).await;
        told |= site
            .problem()
            .contains("the box's account is still in its BMC");
        let late = end + Duration::from_mins(10);
        assert!(site.now < late, "{}", site.told());
    }
    assert!(told && site.now >= end);
    let events = site.store.told.lock().unwrap().join("; ");
    assert!(events.contains("stays in the BMC"), "{events}");
}

#[tokio::test]
async fn nobody_waits_for_an_account_that_may_be_left() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.until("power", &mut site, has_power).await;
    is_deleted(&site);
    for _ in 0..10 {
        site.pass(ROUND * 10).await;
    }
    assert!(!is_gone(&site));
    site.store.change(NAME, |object| {
        let word = (WORD.to_owned(), "leave".to_owned());
        object.metadata.annotations.extend([word]);
    });
    for _ in 0..10 {
        site.pass(ROUND).await;
    }
    assert!(is_gone(&site) && kept.password.is_some(), "{}", site.told());
}

#[tokio::test]
async fn a_bmc_that_refuses_or_is_another_hosts_is_told() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.rounds(&mut site, 3).await;
    kept.said = Outcome::Failed {
        reason: "it has no free place for a user; 10 are taken".into(),
    };
    kept.until("told", &mut site, |site, _| says(site, "no free place"))
        .await;

    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    site.store.change("rack-9", |object| {
        object.spec.boot_mac_address = "52:54:00:00:00:09".into();
        object.spec.bmc = Some(BmcDetails {
            address: "redfish://10.0.0.9".into(),
            credentials_name: super::power::SECRET.into(),
            ..BmcDetails::default()
        });
    });
    for _ in 0..20 {
        kept.step(&mut site).await;
    }
    let objects = site.store.objects.lock().unwrap();
    let made = objects.iter().find(|object| object.metadata.name == NAME);
    assert_eq!((made.unwrap().spec.bmc.clone(), kept.made), (None, 0));
}

#[tokio::test]
async fn a_bmc_that_moved_is_named_where_it_is_and_one_without_the_account_gets_it_again() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    kept.until("power", &mut site, has_power).await;
    kept.address = Some(Ipv4Addr::new(10, 0, 0, 10));
    kept.until("moved", &mut site, |site, _| {
        bmc(site).is_some_and(|bmc| bmc.address == "ipmi://10.0.0.10")
    })
    .await;
    kept.address = Some(Ipv4Addr::new(10, 0, 0, 9));
    kept.until("back", &mut site, has_power).await;
    // Somebody set the BMC back to what it was when it was new.
    (kept.password, kept.made) = (None, 7);
    kept.until("again", &mut site, has_power).await;
    assert_eq!(kept.made, 8);
}

#[tokio::test]
async fn who_is_not_believed_says_nothing_of_a_bmc() {
    let mut site = rules::site(CREATE).await;
    let mut kept = Kept::new(&site);
    assert_eq!(
        said(&mut site, kept.server.speaker(), kept.post()).await,
        None
    );
    kept.rounds(&mut site, 5).await;
    let other_key = Speaker {
        key: PublicKey::new([9; 32]),
        ..kept.server.speaker()
    };
    let elsewhere = Speaker {
        peer: [127, 0, 0, 9].into(),
        ..kept.server.speaker()
    };
    for liar in [other_key, elsewhere] {
        assert_eq!(said(&mut site, liar, kept.post()).await, None);
    }
    let earlier = Post {
        boot_id: "boot-0".into(),
        ..kept.post()
    };
    assert_eq!(said(&mut site, kept.server.speaker(), earlier).await, None);
    assert!(
        said(&mut site, kept.server.speaker(), kept.post())
            .await
            .is_some()
    );
}

#[tokio::test]
async fn without_a_rule_nobody_touches_a_bmc() {
    let mut site = rules::site("- {match: any}").await;
    let mut kept = Kept::new(&site);
    kept.password = Some("of an administrator who likes our name".into());
    kept.rounds(&mut site, 20).await;
    assert_eq!((kept.made, bmc(&site)), (0, None));
    assert!(kept.password.is_some());
}

#[tokio::test]
async fn whatever_breaks_whenever_the_account_is_the_one_that_is_written_down() {
    let mut cuts = 0;
    for seed in 0..60 {
        let mut site = Site::with(SitePolicy::Plain, Dice::new(seed)).await;
        let file = firstlight_api::site::parse_site(format!("cluster: none\nrules:\n{CREATE}"));
        site.settings.site = Arc::new(file.unwrap());
        site.restart_controller();
        site.come_up();
        let mut kept = Kept::new(&site);
        kept.until("power", &mut site, has_power).await;
        site.store.change(NAME, |object| {
            let word = (WORD.to_owned(), "remove".to_owned());
            object.metadata.annotations.extend([word]);
        });
        kept.until("gone", &mut site, |site, kept| {
            kept.password.is_none() && !is_marked(site) && kept_password(site).is_none()
        })
        .await;
        cuts += site.cuts;
    }
    assert!(cuts > 0, "or this test shows nothing");
}
