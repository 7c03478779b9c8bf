//! What is told of the status value, made once for all who ask at about the same time: of a thousand hosts it is megabytes.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use firstlight_api::status::SiteStatus;
use tokio::sync::watch;

use crate::clock;

/// So many times as long as it took to make, a text is good enough: a twentieth of a processor, however many read.
const SHARE: u32 = 20;
/// Without news it differs by its `uptime` only.
const OLD: Duration = Duration::from_secs(1);

/// So many ways at a time have [`SHARE`] each; of more, all have less.
const FEW: usize = 4;

/// One way to tell it.
pub struct Latest {
    /// Held by all of its kind.
    kind: Arc<()>,
    render: Box<dyn Fn(&SiteStatus) -> String + Send + Sync>,
    made: Mutex<Option<Made>>,
}

#[derive(Debug)]
struct Made {
    /// Knows whether there is news since.
    of: watch::Receiver<SiteStatus>,
    at: Instant,
    took: Duration,
    text: Bytes,
}

impl Made {
    fn is_good(&self, share: u32) -> bool {
        let age = self.at.elapsed();
        age < self.took * share || !self.has_news() && age < OLD
    }

    fn has_news(&self) -> bool {
        self.of.has_changed().unwrap_or_default()
    }
}

impl Latest {
    pub fn new(render: impl Fn(&SiteStatus) -> String + Send + Sync + 'static) -> Self {
        Self::of(&Arc::default(), render)
    }

    /// One of many, which together take no more than a few do: strangers may choose what is told.
    pub fn of(
        kind: &Arc<()>,
        render: impl Fn(&SiteStatus) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            kind: Arc::clone(kind),
            render: Box::new(render),
            made: Mutex::default(),
        }
    }

    /// What is good enough, without making another.
    pub fn kept(&self) -> Option<Bytes> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let good = made.as_ref().filter(|made| made.is_good(SHARE))?;
        Some(good.text.clone())
    }

    pub fn text(&self, status: &watch::Receiver<SiteStatus>) -> Bytes {
        self.find(status).0
    }

    /// For who waits for news with `status`: what this text does not say yet is news still.
    pub fn follow(&self, status: &mut watch::Receiver<SiteStatus>) -> Bytes {
        status.mark_unchanged();
        let (text, has_news) = self.find(status);
        if has_news {
            status.mark_changed();
        }
        text
    }

    /// And whether there is news since.
    fn find(&self, status: &watch::Receiver<SiteStatus>) -> (Bytes, bool) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let many = Arc::strong_count(&self.kind) / FEW;
        let share = SHARE * u32::try_from(many).unwrap_or(u32::MAX / SHARE).max(1);
        if let Some(made) = made.as_ref().filter(|made| made.is_good(share)) {
            return (made.text.clone(), made.has_news());
        }
        let (mut of, began) = (status.clone(), Instant::now());
        let mut value = of.borrow_and_update().clone();
        value.uptime = clock::uptime().as_secs_f64();
        let text = Bytes::from((self.render)(&value));
        *made = Some(Made {
            of,
            at: Instant::now(),
            took: began.elapsed(),
            text: text.clone(),
        });
        (text, false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn of_many_that_strangers_choose_all_together_take_no_more() {
        let (sender, status) = watch::channel(SiteStatus::default());
        let (kind, made) = (Arc::new(()), Arc::new(AtomicU32::new(0)));
        let ways: Vec<_> = (0..64)
            .map(|_| {
                let made = Arc::clone(&made);
                Latest::of(&kind, move |_| {
                    std::thread::sleep(Duration::from_millis(2));
                    made.fetch_add(1, Ordering::Relaxed);
                    String::new()
                })
            })
            .collect();
        for way in ways.iter().chain(&ways) {
            way.text(&status);
        }
        // A share of one is over by now, that of 64 is not.
        std::thread::sleep(Duration::from_millis(100));
        sender.send_modify(|status| status.ready = true);
        for way in &ways {
            way.text(&status);
        }
        assert_eq!(made.load(Ordering::Relaxed), 64);
    }

    #[test]
    fn news_are_told_and_what_is_dear_is_made_once_for_many() {
        let (sender, status) = watch::channel(SiteStatus::default());
        let name = |name: &str| sender.send_modify(|status| name.clone_into(&mut status.site));
        let latest = Latest::new(|status| {
            if status.site == "large" {
                std::thread::sleep(Duration::from_millis(100));
            }
            status.site.clone()
        });
        name("small");
        assert_eq!(latest.text(&status), "small");
        let told = || {
            let until = Instant::now() + Duration::from_secs(20);
            while latest.text(&status) != "large" {
                assert!(Instant::now() < until, "the news are not told");
            }
        };
        name("large");
        told();
        let mut reader = status.clone();
        name("small");
        assert_eq!(latest.follow(&mut reader), "large", "for a moment");
        assert!(reader.has_changed().unwrap(), "the last news are not lost");
    }
}
