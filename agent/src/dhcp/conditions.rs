//! What is wrong with addresses and network boots, as the page shows it: what happened in, sentences out. Pure; each list is
//! bounded, for strangers choose what is in it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::Ipv4Addr,
    time::Duration,
};

use firstlight_api::status::Problem;
use firstlight_netboot::{AddressRange, ClientArch, MacAddr, Now, Reason};

use super::tell;

/// Of one kind, that the page names.
const NAMED: usize = 8;
/// A relay agent that asks no more was taken away, or its network was written down.
const RELAY_HOLDS: Duration = Duration::from_mins(10);
/// As long as nobody gets the address.
const DUPLICATE_HOLDS: Duration = Duration::from_hours(1);
/// A machine that waits for an answer asks again within minutes.
const IPV6_HOLDS: Duration = Duration::from_mins(5);
/// So many boots by the firmware within [`LOOP`] are no installation, which takes two or three.
const BOOTS: usize = 6;
const LOOP: Duration = Duration::from_mins(30);
/// Machines whose boots are counted.
const COUNTED: usize = 1024;

/// Where the page keeps a list.
pub type Source = &'static str;
const FULL: Source = "dhcp-range";
const FIRMWARE: Source = "dhcp-firmware";
const RELAYS: Source = "dhcp-relay";
const DUPLICATES: Source = "dhcp-duplicate";
const LOOPS: Source = "dhcp-loop";
const IPV6: Source = "dhcp-ipv6";
/// All of them; nothing is known of an earlier server's.
pub const SOURCES: [Source; 6] = [FULL, FIRMWARE, RELAYS, DUPLICATES, LOOPS, IPV6];

#[derive(Debug, Default)]
pub struct Conditions {
    /// By its first address: the client that got none.
    full: BTreeMap<Ipv4Addr, (AddressRange, Problem)>,
    unsupported: BTreeMap<MacAddr, ClientArch>,
    relays: BTreeMap<Ipv4Addr, (Problem, Now)>,
    duplicates: BTreeMap<Ipv4Addr, (Problem, Now)>,
    boots: BTreeMap<MacAddr, VecDeque<Now>>,
    looping: BTreeSet<MacAddr>,
    /// Firmware that asks for nothing else.
    ipv6: BTreeMap<MacAddr, (Problem, Now)>,
    changed: BTreeSet<Source>,
}

impl Conditions {
    /// A request that was not answered.
    pub fn ignored(&mut self, mac: MacAddr, reason: &Reason, now: Now) {
        match reason {
            Reason::Exhausted { range } => {
                let told = || (*range, tell::exhausted(mac, reason));
                let first = range.first();
                if !self.full.contains_key(&first) && self.full.len() < NAMED {
                    self.full.insert(first, told());
                    self.changed.insert(FULL);
                }
            }
            Reason::Unsupported(arch) => self.firmware(mac, Some(*arch)),
            Reason::UnknownRelay { relay, .. } => {
                let until = now.plus(RELAY_HOLDS);
                let told = tell::unknown_relay(reason);
                hold(&mut self.relays, *relay, told, until).then(|| self.changed.insert(RELAYS));
            }
            _ => {}
        }
    }

    /// What a machine's firmware is, if the stick has nothing for it; `None`: it boots, for example with other settings.
    pub fn firmware(&mut self, mac: MacAddr, arch: Option<ClientArch>) {
        if self.ipv6.remove(&mac).is_some() {
            self.changed.insert(IPV6);
        }
        let before = match arch {
            Some(_) if self.unsupported.len() >= NAMED => return,
            Some(arch) => self.unsupported.insert(mac, arch),
            None => self.unsupported.remove(&mac),
        };
        if before != arch {
            self.changed.insert(FIRMWARE);
        }
    }

    /// Somebody else uses an address: `mac` found it so, or the box did.
    pub fn duplicate(&mut self, address: Ipv4Addr, mac: Option<MacAddr>, now: Now) {
        let (told, until) = (tell::duplicate(address, mac), now.plus(DUPLICATE_HOLDS));
        hold(&mut self.duplicates, address, told, until).then(|| self.changed.insert(DUPLICATES));
    }

    /// A firmware that boots from the network got its address.
    pub fn boots(&mut self, mac: MacAddr, now: Now) {
        if self.boots.len() >= COUNTED && !self.boots.contains_key(&mac) {
            return;
        }
        let times = self.boots.entry(mac).or_default();
        // One boot asks twice where it takes its boot server from elsewhere.
        if times.back() != Some(&now) {
            times.push_back(now);
        }
        if times.len() > BOOTS {
            times.pop_front();
        }
        let since_first = times.front().map(|first| first.plus(LOOP));
        let loops = times.len() == BOOTS && since_first.is_some_and(|end| now < end);
        if loops && self.looping.len() < NAMED && self.looping.insert(mac) {
            self.changed.insert(LOOPS);
        }
    }

    /// A firmware asks for its network boot by IPv6.
    pub fn by_ipv6(&mut self, mac: MacAddr, now: Now) {
        let (told, until) = (tell::by_ipv6(mac), now.plus(IPV6_HOLDS));
        hold(&mut self.ipv6, mac, told, until).then(|| self.changed.insert(IPV6));
    }

    /// What is over goes. `has_room`: of a range.
    pub fn tick(&mut self, has_room: impl Fn(AddressRange) -> bool, now: Now) {
        let before = self.full.len();
        self.full.retain(|_, (range, _)| !has_room(*range));
        if self.full.len() != before {
            self.changed.insert(FULL);
        }
        if expire(&mut self.relays, now) {
            self.changed.insert(RELAYS);
        }
        if expire(&mut self.duplicates, now) {
            self.changed.insert(DUPLICATES);
        }
        self.boots
            .retain(|_, times| times.back().is_some_and(|last| now < last.plus(LOOP)));
        if expire(&mut self.ipv6, now) {
            self.changed.insert(IPV6);
        }
        let before = self.looping.len();
        self.looping.retain(|mac| self.boots.contains_key(mac));
        if self.looping.len() != before {
            self.changed.insert(LOOPS);
        }
    }

    /// The lists that changed since they were asked for.
    pub fn news(&mut self) -> Vec<(Source, Vec<Problem>)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|source| (source, self.list(source)))
            .collect()
    }

    fn list(&self, source: Source) -> Vec<Problem> {
        match source {
            FULL => self.full.values().map(|(_, told)| told.clone()).collect(),
            FIRMWARE => {
                let all = self.unsupported.iter();
                all.map(|(mac, arch)| tell::unsupported(*mac, *arch))
                    .collect()
            }
            RELAYS => told(&self.relays),
            DUPLICATES => told(&self.duplicates),
            IPV6 => told(&self.ipv6),
            _ => self
                .looping
                .iter()
                .map(|mac| tell::loops(*mac, BOOTS))
                .collect(),
        }
    }
}

/// True if something was over.
fn expire<K: Ord>(map: &mut BTreeMap<K, (Problem, Now)>, now: Now) -> bool {
    let before = map.len();
    map.retain(|_, (_, until)| now < *until);
    map.len() != before
}

fn told<K>(map: &BTreeMap<K, (Problem, Now)>) -> Vec<Problem> {
    map.values().map(|(problem, _)| problem.clone()).collect()
}

/// True if that is news.
fn hold<K: Ord>(map: &mut BTreeMap<K, (Problem, Now)>, at: K, told: Problem, until: Now) -> bool {
    if let Some((known, end)) = map.get_mut(&at) {
        *end = until;
        return std::mem::replace(known, told.clone()) != told;
    }
    map.len() < NAMED && map.insert(at, (told, until)).is_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(minutes: u64) -> Now {
        Now::from_unix_seconds(1_795_219_200 + minutes * 60)
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr::new([2, 0, 0, 0, 0, last]).unwrap()
    }

    fn sentences(conditions: &mut Conditions, source: Source) -> Option<Vec<String>> {
        let mut news = conditions.news().into_iter();
        let (_, problems) = news.find(|(of, _)| *of == source)?;
        Some(problems.into_iter().map(|problem| problem.what).collect())
    }

    #[test]
    fn firmware_that_asks_by_ipv6_is_told_until_it_asks_otherwise_or_no_more() {
        let mut conditions = Conditions::default();
        conditions.by_ipv6(mac(1), at(0));
        let told = sentences(&mut conditions, IPV6).unwrap();
        assert!(told[0].contains("02:00:00:00:00:01 asks for its network boot by IPv6"));
        conditions.by_ipv6(mac(1), at(4));
        conditions.tick(|_| true, at(6));
        assert_eq!(sentences(&mut conditions, IPV6), None);
        conditions.firmware(mac(1), None);
        assert_eq!(sentences(&mut conditions, IPV6), Some(vec![]));
        for last in 0..200 {
            conditions.by_ipv6(mac(last), at(7));
        }
        assert_eq!(sentences(&mut conditions, IPV6).unwrap().len(), NAMED);
        conditions.tick(|_| true, at(12));
        assert_eq!(sentences(&mut conditions, IPV6), Some(vec![]));
    }

    #[test]
    fn a_full_pool_is_told_until_it_has_room() {
        let mut conditions = Conditions::default();
        let range: AddressRange = "10.9.0.100-10.9.0.103".parse().unwrap();
        let full = Reason::Exhausted { range };
        conditions.ignored(mac(1), &full, at(0));
        let told = sentences(&mut conditions, FULL).unwrap();
        assert!(told[0].contains("10.9.0.100-10.9.0.103"), "{told:?}");
        conditions.ignored(mac(2), &full, at(0));
        conditions.tick(|_| false, at(1));
        assert_eq!(conditions.news(), [], "once");
        conditions.tick(|_| true, at(2));
        assert_eq!(sentences(&mut conditions, FULL), Some(vec![]));
    }

    #[test]
    fn a_duplicate_address_is_told_as_long_as_nobody_gets_it() {
        let mut conditions = Conditions::default();
        conditions.duplicate([172, 22, 0, 100].into(), Some(mac(1)), at(0));
        let told = sentences(&mut conditions, DUPLICATES).unwrap();
        assert_eq!(
            told,
            [
                "two machines have the address 172.22.0.100: 02:00:00:00:00:01 was leased it and found it in use"
            ]
        );
        conditions.duplicate([172, 22, 0, 100].into(), Some(mac(1)), at(30));
        conditions.tick(|_| true, at(61));
        assert_eq!(conditions.news(), []);
        conditions.tick(|_| true, at(90));
        assert_eq!(sentences(&mut conditions, DUPLICATES), Some(vec![]));
    }

    #[test]
    fn a_machine_that_boots_again_and_again_is_told_and_one_that_is_installed_is_not() {
        let mut conditions = Conditions::default();
        for minute in [0, 10, 40, 41, 42] {
            conditions.boots(mac(1), at(minute));
        }
        for minute in [0, 3, 6, 9, 12] {
            conditions.boots(mac(2), at(minute));
            conditions.boots(mac(2), at(minute));
        }
        assert_eq!(conditions.news(), []);
        conditions.boots(mac(2), at(15));
        let told = sentences(&mut conditions, LOOPS).unwrap();
        assert_eq!(
            told,
            ["02:00:00:00:00:02 booted from the network 6 times within 30 minutes"]
        );
        conditions.tick(|_| true, at(44));
        assert_eq!(conditions.news(), []);
        conditions.tick(|_| true, at(45));
        assert_eq!(sentences(&mut conditions, LOOPS), Some(vec![]));
    }

    #[test]
    fn a_relay_agent_of_a_network_that_nobody_wrote_down_is_told() {
        let mut conditions = Conditions::default();
        let relay = Ipv4Addr::new(10, 7, 0, 1);
        let unknown = Reason::UnknownRelay { relay, link: relay };
        conditions.ignored(mac(1), &unknown, at(0));
        let told = sentences(&mut conditions, RELAYS).unwrap();
        assert!(told[0].contains("10.7.0.1"), "{told:?}");
        conditions.tick(|_| true, at(10));
        assert_eq!(sentences(&mut conditions, RELAYS), Some(vec![]));
    }

    #[test]
    fn whoever_invents_machines_fills_neither_the_page_nor_the_memory() {
        let mut conditions = Conditions::default();
        for number in 0..5000_u32 {
            let [a, b, c, d] = number.to_be_bytes();
            let of = MacAddr::new([2, 0, a, b, c, d]).unwrap();
            let address = Ipv4Addr::from_bits(0x0a00_0000 + number);
            conditions.duplicate(address, Some(of), at(0));
            conditions.ignored(
                of,
                &Reason::UnknownRelay {
                    relay: address,
                    link: address,
                },
                at(0),
            );
            for minute in 0..8 {
                conditions.boots(of, at(minute));
            }
        }
        for (source, problems) in conditions.news() {
            assert!(problems.len() <= NAMED, "{source}");
        }
        assert_eq!(conditions.boots.len(), COUNTED);
    }
}
