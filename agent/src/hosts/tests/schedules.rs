//! The whole life of a host under seeded schedules: the box loses its power before or after anything that it does, its disk takes nothing
//! for a while, Ironic and the API server do not answer. At the end the host is where it should be, written and cleaned once each.

use firstlight_api::bmh::ProvisioningState;

use super::{
    life::{Machine, assert_has_its_key, claim, give_back, is_clean, is_in, let_go, shows},
    power::{DEAD, HOST, Racked, credentials, image, manifest, status},
    *,
};

/// In all, with those of `rack`.
const SCHEDULES: u64 = 250;
/// With a BMC.
const RACKED: u64 = 100;

/// splitmix64: a seed tells the whole run.
pub struct Dice {
    state: u64,
    /// So many more things go wrong.
    left: u32,
    rare: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut dice = Self {
            state: seed,
            left: 12,
            rare: 0,
        };
        dice.rare = 4 + dice.roll() % 16;
        dice
    }

    fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Luck for Dice {
    fn next(&mut self) -> Fate {
        if self.left == 0 || !self.roll().is_multiple_of(self.rare) {
            return Fate::Good;
        }
        self.left -= 1;
        match self.roll() % 4 {
            0 => Fate::CutBefore,
            1 => Fate::CutAfter,
            _ => Fate::Fails,
        }
    }
}

/// Rounds, with a person who does what the page asks for.
async fn until(
    what: &str,
    (site, machine): (&mut Site<Dice>, &mut Machine),
    reached: impl Fn(&Site<Dice>, &Machine) -> bool,
) {
    for _ in 0..ROUNDS {
        if reached(site, machine) {
            return;
        }
        machine.step(site).await;
        site.pass(ROUND).await;
        let problem = site.host().and_then(|host| host.problem);
        if problem.is_some_and(|problem| problem.next.contains("choose network boot")) {
            machine.server.power_cycle();
            machine.runs_disk = false;
        }
    }
    panic!("waited for {what}; {}", site.told());
}

/// How often the box lost its power in it.
async fn whole_life(seed: u64) -> usize {
    let mut site = Site::with(SitePolicy::Cluster, Dice::new(seed)).await;
    site.come_up();
    let mut machine = Machine::new(&site);
    let staged = |site: &Site<Dice>, _: &Machine| shows(site, HostState::Staged);
    until("staged", (&mut site, &mut machine), staged).await;
    claim(&site);
    let provisioned = |site: &Site<Dice>, machine: &Machine| {
        machine.data.is_some() && is_in(site, ProvisioningState::Provisioned)
    };
    until("provisioned", (&mut site, &mut machine), provisioned).await;
    assert_eq!(machine.writes, 1, "written once");
    if machine.given.is_some() {
        assert_has_its_key(&site, &machine);
    }
    let_go(&site);
    until("clean", (&mut site, &mut machine), is_clean).await;
    give_back(&site);
    let again = |site: &Site<Dice>, machine: &Machine| {
        machine.writes == 2 && shows(site, HostState::Staged)
    };
    until("staged again", (&mut site, &mut machine), again).await;
    assert_eq!(site.ironic.cleans(&node()), 1, "cleaned once");
    let state = site.ironic.state(&node());
    assert_eq!(state, Some(ProvisionState::Active));
    site.cuts
}

/// A server that is off until its BMC starts it; the BMC dies for a while now and then.
struct Rack {
    server: Racked,
    dice: Dice,
    /// So many rounds more nobody hears of its BMC.
    dead: u64,
}

impl Rack {
    /// Rounds until its object says so.
    async fn until(
        &mut self,
        what: &str,
        site: &mut Site<Dice>,
        reached: impl Fn(&Site<Dice>) -> bool,
    ) {
        // A BMC that was silent is asked again after a while.
        for _ in 0..3 * ROUNDS {
            if reached(site) {
                return;
            }
            self.bmc(site);
            self.server.step(site).await;
        }
        panic!("waited for {what}; {}", site.told());
    }

    fn bmc(&mut self, site: &Site<Dice>) {
        if self.dead > 0 {
            self.dead -= 1;
            if self.dead == 0 {
                site.ironic.set_bmc(&node(), None);
            }
        } else if site.ironic.state(&node()).is_some() && self.dice.next() != Fate::Good {
            self.dead = 1 + self.dice.roll() % 20;
            site.ironic.set_bmc(&node(), Some(DEAD));
        }
    }
}

/// As [`whole_life`], of a server with a BMC, whose owner switches it off and on meanwhile.
async fn racked_life(seed: u64) -> usize {
    let mut site = Site::with(SitePolicy::Cluster, Dice::new(seed)).await;
    site.come_up();
    let mut rack = Rack {
        server: Racked::new(&site),
        dice: Dice::new(!seed),
        dead: 0,
    };
    rack.dice.left = 4;
    credentials(&site.store, "hunter2");
    manifest(&site, image);
    let is = |state| {
        move |site: &Site<Dice>| {
            site.store.only().is_some() && status(site).provisioning.state == state
        }
    };
    rack.until("provisioned", &mut site, is(ProvisioningState::Provisioned))
        .await;
    for _ in 0..3 {
        let online = rack.dice.roll().is_multiple_of(2);
        site.store
            .change(HOST, |object| object.spec.online = online);
        let switched = |site: &Site<Dice>| status(site).powered_on == online;
        rack.until("switched", &mut site, switched).await;
    }
    assert_eq!(rack.server.machine.writes, 1, "written once");
    site.store.change(HOST, |object| {
        (object.spec.online, object.spec.image) = (true, None);
    });
    rack.until("available", &mut site, is(ProvisioningState::Available))
        .await;
    assert_eq!(site.ironic.cleans(&node()), 1, "cleaned once");
    // The site may have begun to stage it for whoever claims it next.
    assert!(rack.server.machine.writes <= 2, "written again");
    site.store.change(HOST, |object| {
        object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".into());
    });
    let gone = |site: &Site<Dice>| site.store.only().is_none();
    rack.until("gone", &mut site, gone).await;
    assert_eq!(site.ironic.state(&node()), None);
    site.cuts
}

/// Every seed, or the one that somebody wants to see again.
async fn play<F: Future<Output = usize> + Send + 'static>(schedules: u64, life: impl Fn(u64) -> F) {
    let seed = std::env::var("FIRSTLIGHT_SEED").ok();
    let seeds = match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..schedules,
    };
    let mut cuts = 0;
    for seed in seeds {
        cuts += tokio::spawn(life(seed))
            .await
            .unwrap_or_else(|error| panic!("FIRSTLIGHT_SEED={seed}: {error}"));
    }
    assert!(cuts > 0, "or this test shows nothing");
}

#[tokio::test]
async fn whatever_breaks_whenever_a_host_ends_where_it_should_be_written_and_cleaned_once() {
    play(SCHEDULES, whole_life).await;
}

#[tokio::test]
async fn whatever_breaks_whenever_a_host_with_a_bmc_is_where_its_owner_wants_it() {
    play(RACKED, racked_life).await;
}
