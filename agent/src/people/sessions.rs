//! Who is logged in. A browser has the secret; here is its digest. Sessions are in memory: they end with the agent.

use std::{collections::HashMap, time::Duration};

use firstlight_api::people::PersonName;

use super::secret::{Digest, Secret, digest};

/// Without a request for so long, a session ends.
const IDLE: Duration = Duration::from_hours(1);
/// However busy it is.
pub const LONGEST: Duration = Duration::from_hours(12);
const MOST_OF_PERSON: usize = 16;

#[derive(Debug)]
struct Session {
    name: PersonName,
    began: Duration,
    seen: Duration,
}

impl Session {
    fn lives(&self, now: Duration) -> bool {
        now.saturating_sub(self.seen) < IDLE && now.saturating_sub(self.began) < LONGEST
    }
}

#[derive(Debug, Default)]
pub struct Sessions {
    by_digest: HashMap<Digest, Session>,
}

impl Sessions {
    /// `now` is the box's uptime. Of many sessions of one person the oldest ends.
    pub fn begin(&mut self, name: PersonName, secret: &Secret, now: Duration) {
        self.by_digest.retain(|_, session| session.lives(now));
        let of_person = |session: &&Session| session.name == name;
        if self.by_digest.values().filter(of_person).count() >= MOST_OF_PERSON {
            let theirs = self
                .by_digest
                .iter()
                .filter(|(_, session)| session.name == name);
            let oldest = theirs.min_by_key(|(_, session)| session.seen);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                self.by_digest.remove(&oldest);
            }
        }
        let session = Session {
            name,
            began: now,
            seen: now,
        };
        self.by_digest.insert(secret.digest(), session);
    }

    /// Whose it is; it lives on for a while by this.
    pub fn find(&mut self, shown: &str, now: Duration) -> Option<PersonName> {
        let session = self.by_digest.get_mut(&digest(shown))?;
        if !session.lives(now) {
            return None;
        }
        session.seen = now;
        Some(session.name.clone())
    }

    pub fn end(&mut self, shown: &str) {
        self.by_digest.remove(&digest(shown));
    }

    /// All of this person.
    pub fn end_all(&mut self, name: &PersonName) {
        self.by_digest.retain(|_, session| session.name != *name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn begin(sessions: &mut Sessions, name: &str, now: Duration) -> String {
        let secret = Secret::new("").unwrap();
        sessions.begin(PersonName::parse(name).unwrap(), &secret, now);
        secret.shown().to_owned()
    }

    #[test]
    fn a_session_ends_when_it_is_idle_old_or_told_to() {
        let mut sessions = Sessions::default();
        let start = Duration::from_secs(10);
        let ada = begin(&mut sessions, "ada", start);
        let mut now = start;
        while now < start + LONGEST {
            let found = sessions.find(&ada, now);
            assert_eq!(found.unwrap().as_str(), "ada");
            now += IDLE / 2;
        }
        assert_eq!(sessions.find(&ada, now), None, "too old");
        let ben = begin(&mut sessions, "ben", now);
        assert_eq!(sessions.find(&ben, now + IDLE), None, "idle");
        for ended in [
            |sessions: &mut Sessions, shown: &str| sessions.end(shown),
            |sessions: &mut Sessions, _: &str| sessions.end_all(&PersonName::parse("cy").unwrap()),
        ] {
            let cy = begin(&mut sessions, "cy", now);
            assert!(sessions.find(&cy, now).is_some());
            ended(&mut sessions, &cy);
            assert_eq!(sessions.find(&cy, now), None);
        }
        assert_eq!(sessions.find("", now), None);
    }

    #[test]
    fn a_person_who_logs_in_again_and_again_has_a_few_sessions() {
        let mut sessions = Sessions::default();
        let all: Vec<String> = (0..40)
            .map(|second| begin(&mut sessions, "ada", Duration::from_secs(second)))
            .collect();
        assert_eq!(sessions.by_digest.len(), MOST_OF_PERSON);
        let now = Duration::from_secs(40);
        assert!(sessions.find(&all[39], now).is_some() && sessions.find(&all[0], now).is_none());
    }
}
