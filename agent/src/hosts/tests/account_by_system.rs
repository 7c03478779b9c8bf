//! The box's account in a server's BMC, which the server's running system makes over SSH.

use firstlight_api::account::{Ask, Bmc, Outcome, Password, Told};

use super::{
    account::{AT, SECRET, bmc, honoured, is_marked, kept_password, says, with_rules},
    rules,
    schedules::Dice,
    *,
};
use crate::hosts::{account::WORD, event::Call};

const CREATE: &str = "rules: [{match: any, bmc: {account: create}}]";
const PLAIN: &str = "- match: any";

/// What an installed system and its BMC answer over SSH.
pub struct System {
    pub address: Option<Ipv4Addr>,
    pub password: Option<String>,
    /// How often it was asked, and how often it made the account.
    pub asked: usize,
    pub made: usize,
    /// It cannot, and why.
    pub refuses: Option<SshError>,
    pub fails: Option<&'static str>,
    pub has_bmc: bool,
    /// The connection is lost before it has said what it did.
    pub loses: bool,
    /// Nothing is answered yet.
    pub is_slow: bool,
    pub calls: Vec<(Ask, Call)>,
}

impl Default for System {
    fn default() -> Self {
        Self {
            address: Some([10, 0, 0, 9].into()),
            password: None,
            asked: 0,
            made: 0,
            refuses: None,
            fails: None,
            has_bmc: true,
            loses: false,
            is_slow: false,
            calls: Vec::new(),
        }
    }
}

impl System {
    pub fn answer(&mut self, ask: Ask) -> Result<Told, SshError> {
        self.asked += 1;
        if let Some(error) = &self.refuses {
            return Err(error.clone());
        }
        let mut outcome = Outcome::Ready;
        if let Some(reason) = self.fails {
            let reason = reason.to_owned();
            outcome = Outcome::Failed { reason };
        } else if ask == Ask::Make {
            self.made += 1;
            let text = format!("Password-{}", self.made);
            let password = Password::try_from(text.clone()).unwrap();
            self.password = Some(text);
            outcome = Outcome::Made { password };
        } else if ask == Ask::Remove {
            self.password = None;
            outcome = Outcome::Removed;
        }
        let bmc = Bmc {
            address: self.address,
            account: self.password.is_some(),
        };
        if self.loses {
            return Err(lost());
        }
        Ok(Told {
            bmc: self.has_bmc.then_some(bmc),
            outcome,
        })
    }
}

fn lost() -> SshError {
    SshError::Unreachable("the connection was lost".into())
}

/// A server that runs the system which the box has installed on it, and whose SSH answers.
async fn installed<L: Luck>(site: &mut Site<L>) {
    let mut server = Server::new(site.ironic.client());
    server.until_ironic(site, ProvisionState::DeployWait).await;
    server.finish(site).await;
    until("it runs", site, |site| {
        site.state() == Some(HostState::Running)
    })
    .await;
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
        round(site, ROUND).await;
    }
    panic!("waited for {what}; {}", site.told());
}

async fn hours<L: Luck>(site: &mut Site<L>, hours: u32) {
    for _ in 0..hours * 60 {
        round(site, Duration::from_mins(1)).await;
    }
}

/// Within the hours that something may take that has gone wrong again and again.
async fn in_time<L: Luck>(what: &str, site: &mut Site<L>, is: impl Fn(&Site<L>) -> bool) {
    for _ in 0..20 * 60 {
        if is(site) {
            return;
        }
        round(site, Duration::from_mins(1)).await;
    }
    panic!("waited for {what}; {}", site.told());
}

/// The account works, and Ironic has been told of it.
fn has_power<L>(site: &Site<L>) -> bool {
    let named = bmc(site).is_some_and(|bmc| bmc.address == AT && bmc.credentials_name == SECRET);
    let driver = site.ironic.driver(&node());
    let told = driver.is_some_and(|(name, info)| {
        name == "ipmi" && info["ipmi_password"].as_str() == site.system.password.as_deref()
    });
    named && told && site.system.password.is_some() && kept_password(site) == site.system.password
}

fn is_gone<L>(site: &Site<L>) -> bool {
    site.system.password.is_none() && !is_marked(site) && kept_password(site).is_none()
}

fn word<L>(site: &Site<L>, word: &str) {
    site.store.change(NAME, |object| {
        let word = (WORD.to_owned(), word.to_owned());
        object.metadata.annotations.extend([word]);
    });
}

async fn running() -> Site {
    let mut site = rules::site(PLAIN).await;
    installed(&mut site).await;
    site
}

#[tokio::test]
async fn a_server_that_runs_its_system_gets_remote_power_and_loses_it_when_it_shall() {
    let mut site = running().await;
    hours(&mut site, 1).await;
    assert_eq!(site.system.asked, 0, "nobody wants an account");
    with_rules(&mut site, CREATE);
    until("power", &mut site, has_power).await;
    hours(&mut site, 10).await;
    let said = (site.system.made, honoured(&site), site.problem());
    assert_eq!(said, (1, None, String::new()));
    assert!(site.system.asked < 20, "{} logins", site.system.asked);
    assert_eq!(site.ironic.state(&node()), Some(ProvisionState::Active));
    assert_eq!(site.ironic.deploys(&node()), 1);

    // A BMC that got another address is found within the hour, and one that lost the account gets it again.
    site.system.address = Some([10, 0, 0, 10].into());
    hours(&mut site, 2).await;
    assert_eq!(bmc(&site).unwrap().address, "ipmi://10.0.0.10");
    site.system.address = Some([10, 0, 0, 9].into());
    site.system.password = None;
    hours(&mut site, 2).await;
    assert!(has_power(&site), "{}", site.told());

    with_rules(&mut site, "rules: [{match: any}]");
    until("gone", &mut site, is_gone).await;
    assert_eq!(bmc(&site), None);
    assert_eq!(site.ironic.driver(&node()).unwrap().0, "manual-management");
    let asked = site.system.asked;
    hours(&mut site, 3).await;
    assert_eq!((site.system.asked, honoured(&site)), (asked, None));
}

#[tokio::test]
async fn a_password_that_nobody_heard_is_replaced() {
    let mut site = running().await;
    with_rules(&mut site, CREATE);
    until("power", &mut site, has_power).await;
    // The BMC was set back, and the next password is lost on its way to a box that is restarted over it.
    site.system.password = None;
    site.system.is_slow = true;
    let asked_to_make = |site: &Site| site.system.calls.iter().any(|(ask, _)| *ask == Ask::Make);
    for _ in 0..200 {
        round(&mut site, Duration::from_mins(1)).await;
        if asked_to_make(&site) {
            break;
        }
        if let Some((ask, call)) = site.system.calls.pop() {
            let (mac, result) = (mac(), site.system.answer(ask));
            site.take(Event::SystemTold { mac, call, result }).await;
        }
    }
    assert!(asked_to_make(&site));
    drop(site.system.answer(Ask::Make));
    site.system.is_slow = false;
    site.restart_controller();
    until("power", &mut site, has_power).await;
    assert_eq!(site.system.made, 3);

    site.system.password = None;
    site.system.loses = true;
    hours(&mut site, 2).await;
    assert!(!has_power(&site));
    site.system.loses = false;
    in_time("power", &mut site, has_power).await;
}

#[tokio::test]
async fn what_an_older_call_says_counts_for_nothing_once_a_ramdisk_has_come() {
    let mut site = running().await;
    site.system.is_slow = true;
    with_rules(&mut site, CREATE);
    until("it is asked", &mut site, |site| {
        !site.system.calls.is_empty()
    })
    .await;
    hours(&mut site, 1).await;
    assert_eq!(site.system.calls.len(), 1, "one call at a time");
    let mut server = Server::new(site.ironic.client());
    server.power_cycle();
    server.step(&mut site).await;
    site.pass(ROUND).await;
    assert_eq!(site.state(), Some(HostState::Provisioned), "it is believed");
    let (_, call) = site.system.calls[0];
    let (mac, result) = (mac(), site.system.answer(Ask::Make));
    site.take(Event::SystemTold { mac, call, result }).await;
    assert_eq!((bmc(&site), kept_password(&site)), (None, None));
}

#[tokio::test]
async fn what_is_in_the_way_is_told_and_the_system_is_asked_less_and_less_often() {
    type Change = fn(&mut System);
    let cases: [(Change, &str, usize); 6] = [
        (
            |it| it.fails = Some("its system's kernel has no module ipmi_si"),
            "no module ipmi_si",
            16,
        ),
        (|it| it.address = None, "has no address on a network", 16),
        (
            |it| it.refuses = Some(SshError::Refused("Sorry, user box is not allowed".into())),
            "Sorry, user box is not allowed; its image has no login of the box that may do this",
            6,
        ),
        (
            |it| it.refuses = Some(SshError::NoKey),
            "the box has no key for it",
            6,
        ),
        (
            |it| it.refuses = Some(lost()),
            "the connection was lost; the box asks again by itself",
            16,
        ),
        (|it| it.has_bmc = false, "", 16),
    ];
    for (change, sentence, most) in cases {
        let mut site = running().await;
        change(&mut site.system);
        with_rules(&mut site, CREATE);
        hours(&mut site, 24).await;
        let said = honoured(&site).unwrap_or_default();
        assert!(said.contains(sentence), "{sentence}: {said}");
        assert_eq!(said.is_empty(), sentence.is_empty(), "{said}");
        let asked = site.system.asked;
        assert!((2..=most).contains(&asked), "{sentence}: {asked} logins");
        assert_eq!((bmc(&site), site.system.made), (None, 0), "{sentence}");
        assert_eq!(site.state(), Some(HostState::Running));

        // A person who says so does not wait for the next time.
        site.system = System::default();
        word(&site, "remove");
        hours(&mut site, 1).await;
        word(&site, "create");
        until("power", &mut site, has_power).await;
    }
}

#[tokio::test]
async fn whoever_means_this_server_is_told_that_it_has_no_bmc() {
    let mut site = running().await;
    site.system.has_bmc = false;
    word(&site, "create");
    until("told", &mut site, |site| {
        says(site, "its system sees no BMC")
    })
    .await;
    assert!(says(&site, "or name it in `spec.bmc`"));
}

#[tokio::test]
async fn a_bmc_that_does_not_answer_the_box_loses_the_account_again() {
    let mut site = running().await;
    site.is_bmc_silent = true;
    with_rules(&mut site, CREATE);
    until("told", &mut site, |site| {
        says(site, "does not answer the box")
    })
    .await;
    until("it went again", &mut site, |site| {
        site.system.password.is_none()
    })
    .await;
    hours(&mut site, 1).await;
    assert!(site.system.made <= 3 && bmc(&site).is_none());
    site.is_bmc_silent = false;
    in_time("power", &mut site, has_power).await;
}

#[tokio::test]
async fn a_server_whose_bmc_a_person_named_is_not_asked_and_keeps_it() {
    let mut site = running().await;
    super::power::credentials(&site.store, "theirs");
    site.store.change(NAME, |object| {
        object.spec.bmc = Some(firstlight_api::bmh::BmcDetails {
            address: "ipmi://10.0.0.77".into(),
            credentials_name: super::power::SECRET.into(),
            ..Default::default()
        });
    });
    site.pass(ROUND).await;
    with_rules(&mut site, CREATE);
    hours(&mut site, 3).await;
    let named = bmc(&site).unwrap().address;
    assert_eq!((named.as_str(), site.system.asked), ("ipmi://10.0.0.77", 0));
}

#[tokio::test]
async fn whatever_breaks_whenever_the_account_is_the_one_that_is_written_down() {
    let (mut cuts, mut lost) = (0, 0);
    for seed in 0..60 {
        let mut site = Site::with(SitePolicy::Plain, Dice::new(seed)).await;
        site.come_up();
        let file = firstlight_api::site::parse_site("cluster: none\nrules: [{match: any}]");
        site.settings.site = Arc::new(file.unwrap());
        site.restart_controller();
        installed(&mut site).await;
        let file = firstlight_api::site::parse_site(format!("cluster: none\n{CREATE}"));
        site.settings.site = Arc::new(file.unwrap());
        site.restart_controller();
        in_time(&format!("power, seed {seed}"), &mut site, has_power).await;
        lost += usize::from(site.system.made > 1);
        word(&site, "remove");
        in_time(&format!("gone, seed {seed}"), &mut site, is_gone).await;
        cuts += site.cuts;
    }
    assert!(cuts > 0 && lost > 0, "or this test shows nothing");
}
