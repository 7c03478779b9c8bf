//! Known servers, for which the firewall keeps places at the ports of upstream's programs.

use std::{
    collections::{BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// A rack that is switched on changes many times a second what is known.
const APART: Duration = Duration::from_secs(1);

/// Who has a lease, and who was believed lately.
#[derive(Debug)]
pub struct Servers {
    leased: watch::Receiver<Arc<BTreeSet<Ipv4Addr>>>,
    believed: watch::Receiver<VecDeque<IpAddr>>,
    has_news: bool,
    told: Instant,
}

impl Servers {
    pub fn new(
        leased: watch::Receiver<Arc<BTreeSet<Ipv4Addr>>>,
        believed: watch::Receiver<VecDeque<IpAddr>>,
    ) -> Self {
        Self {
            leased,
            believed,
            has_news: false,
            told: Instant::now(),
        }
    }

    /// Returns when they are others than [`Self::now`] said, a second later at the earliest. May be dropped meanwhile.
    pub(super) async fn changed(&mut self) {
        if !self.has_news {
            tokio::select! {
                Ok(()) = self.leased.changed() => {}
                Ok(()) = self.believed.changed() => {}
                // The agent ends.
                else => std::future::pending().await,
            }
            self.has_news = true;
        }
        tokio::time::sleep_until(self.told + APART).await;
    }

    pub(super) fn now(&mut self) -> BTreeSet<Ipv4Addr> {
        (self.has_news, self.told) = (false, Instant::now());
        let mut servers = BTreeSet::clone(&self.leased.borrow_and_update());
        let believed = self.believed.borrow_and_update();
        servers.extend(believed.iter().filter_map(|peer| match peer {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        }));
        servers
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn address(last: u8) -> Ipv4Addr {
        [172, 22, 0, last].into()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_a_second_are_told_together() {
        let leased = watch::Sender::new(Arc::new(BTreeSet::from([address(1)])));
        let believed = watch::Sender::<VecDeque<IpAddr>>::default();
        let mut servers = Servers::new(leased.subscribe(), believed.subscribe());
        assert_eq!(servers.now(), [address(1)].into());
        let began = Instant::now();
        leased.send_replace(Arc::new([address(1), address(2)].into()));
        // Somebody else's turn in between loses nothing.
        let early = tokio::time::timeout(Duration::from_millis(400), servers.changed()).await;
        assert!(early.is_err());
        believed.send_modify(|believed| believed.push_back(address(3).into()));
        servers.changed().await;
        assert_eq!(began.elapsed(), APART);
        assert_eq!(servers.now(), [1, 2, 3].map(address).into());
        let quiet = tokio::time::timeout(Duration::from_hours(1), servers.changed()).await;
        assert!(quiet.is_err(), "nothing changed since");
    }
}
