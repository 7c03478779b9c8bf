//! The whole life of a host under seeded schedules: the box loses its power before or after anything that it does, its disk takes nothing
//! for a while, Ironic and the API server do not answer. At the end the host is where it should be, written and cleaned once each.

use firstlight_api::bmh::ProvisioningState;

use super::{
    life::{Machine, assert_has_its_key, claim, give_back, is_clean, is_in, let_go, shows},
    *,
};

/// In all, with those of `rack`.
const SCHEDULES: u64 = 250;

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

#[tokio::test]
async fn whatever_breaks_whenever_a_host_ends_where_it_should_be_written_and_cleaned_once() {
    let seed = std::env::var("FIRSTLIGHT_SEED").ok();
    let seeds = match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..SCHEDULES,
    };
    let mut cuts = 0;
    for seed in seeds {
        let life = tokio::spawn(whole_life(seed));
        cuts += life
            .await
            .unwrap_or_else(|error| panic!("FIRSTLIGHT_SEED={seed}: {error}"));
    }
    assert!(cuts > 0, "or this test shows nothing");
}
