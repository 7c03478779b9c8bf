//! Who has guessed passwords too often, and waits: each address for itself, so that nobody makes somebody else wait; and each name, for
//! all addresses that this person has not come from before.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    net::IpAddr,
    time::Duration,
};

use firstlight_api::people::PersonName;

/// Wrong answers of one address before it waits; people mistype.
const FREE: u32 = 5;
/// Of all addresses, for one name.
const FREE_OF_NAME: u32 = 30;
const LONGEST: Duration = Duration::from_mins(5);
/// Without another wrong answer for so long, all is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(10);
const MOST: usize = 4096;
/// Addresses that a person is remembered to have come from.
const MOST_PLACES: usize = 8;

#[derive(Debug, Default)]
pub struct Attempts {
    by_address: Failures<IpAddr>,
    by_name: Failures<PersonName>,
    places: HashMap<PersonName, VecDeque<IpAddr>>,
}

impl Attempts {
    /// How long this one has to wait; `now` is the box's uptime.
    pub fn wait(&self, peer: IpAddr, name: &PersonName, now: Duration) -> Option<Duration> {
        let is_known = self.places.get(name).is_some_and(|at| at.contains(&peer));
        let of_name = self.by_name.wait(name, FREE_OF_NAME, now);
        let of_address = self.by_address.wait(&peer, FREE, now);
        of_address.max(of_name.filter(|_| !is_known))
    }

    pub fn wrong(&mut self, peer: IpAddr, name: &PersonName, now: Duration) {
        self.by_address.count(peer, now);
        self.by_name.count(name.clone(), now);
    }

    /// `name` is somebody of this site.
    pub fn right(&mut self, peer: IpAddr, name: &PersonName) {
        self.by_address.of.remove(&peer);
        let places = self.places.entry(name.clone()).or_default();
        places.retain(|place| *place != peer);
        places.push_back(peer);
        if places.len() > MOST_PLACES {
            places.pop_front();
        }
    }
}

#[derive(Debug)]
struct Failures<K> {
    of: HashMap<K, (u32, Duration)>,
}

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Self { of: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Failures<K> {
    fn wait(&self, key: &K, free: u32, now: Duration) -> Option<Duration> {
        let (count, last) = self.of.get(key)?;
        let over = count.checked_sub(free)?;
        let wait = Duration::from_secs(1 << over.min(9)).min(LONGEST);
        (*last + wait)
            .checked_sub(now)
            .filter(|wait| !wait.is_zero())
    }

    fn count(&mut self, key: K, now: Duration) {
        self.of
            .retain(|_, (_, last)| now.saturating_sub(*last) < FORGOTTEN);
        if !self.of.contains_key(&key) && self.of.len() >= MOST {
            let oldest = self.of.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.of.remove(&oldest);
            }
        }
        let entry = self.of.entry(key).or_insert((0, now));
        *entry = (entry.0.saturating_add(1), now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use super::*;

    fn at(last: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + last))
    }

    fn name(text: &str) -> PersonName {
        PersonName::parse(text).unwrap()
    }

    #[test]
    fn an_address_that_guesses_waits_ever_longer_and_nobody_else_does() {
        let mut attempts = Attempts::default();
        let mut now = Duration::from_secs(100);
        let ada = name("ada");
        let mut waits = Vec::new();
        for _ in 0..16 {
            assert_eq!(attempts.wait(at(2), &ada, now), None);
            if let Some(wait) = attempts.wait(at(1), &ada, now) {
                waits.push(wait.as_secs());
                now += wait;
            }
            attempts.wrong(at(1), &ada, now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(attempts.wait(at(1), &ada, now + FORGOTTEN), None);
    }

    #[test]
    fn many_addresses_that_guess_one_name_do_not_keep_its_owner_out() {
        let mut attempts = Attempts::default();
        let (now, ada) = (Duration::from_secs(100), name("ada"));
        attempts.right(at(1), &ada);
        for peer in 10..100 {
            attempts.wrong(at(peer), &ada, now);
        }
        assert_eq!(attempts.wait(at(9), &ada, now), Some(LONGEST));
        assert_eq!(attempts.wait(at(1), &ada, now), None);
        assert_eq!(attempts.wait(at(9), &name("ben"), now), None);
    }

    #[test]
    fn a_crowd_takes_no_room() {
        let mut attempts = Attempts::default();
        for peer in 0..20_000 {
            attempts.wrong(at(peer), &name(&format!("n{peer}")), Duration::from_secs(1));
        }
        assert!(attempts.by_address.of.len() <= MOST && attempts.by_name.of.len() <= MOST);
        for peer in 0..20 {
            attempts.right(at(peer), &name("ada"));
        }
        assert_eq!(attempts.places[&name("ada")].len(), MOST_PLACES);
    }
}
