//! The pages, rendered from the status value alone: pure, whole without JavaScript, nothing loaded from elsewhere.
//!
//! `address` says which page a path is; `frame` is what all have, `front` answers what a person wants to know first, `hosts` the table of
//! servers, `host` one of them, `timeline` their ways as bars, `clusters`, `software`, `store` and `the_box` the rest; `parts` are words
//! and shapes of all. What is written by `html!` is escaped, because names and reasons come from machines on the network.
//!
//! To add a page: a variant of [`Page`], its path in `address`, and a module that renders it.

mod address;
mod assets;
mod clusters;
mod frame;
mod front;
mod host;
mod hosts;
mod parts;
mod people;
mod software;
mod store;
#[cfg(test)]
pub mod tests;
mod the_box;
mod timeline;

use std::time::{SystemTime, UNIX_EPOCH};

use firstlight_api::{health::health, people::Role, status::SiteStatus};

pub use address::{Filter, Page};
pub use assets::{ASSETS, Asset};
pub use frame::of_form;
pub use parts::wide;

/// Who a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reader {
    /// Everybody, while nobody could log in.
    Anybody,
    /// Somebody who may look.
    Viewer,
    /// Somebody who may ask for something.
    Operator,
    /// And say who else may, and change the box.
    Admin,
}

impl Reader {
    pub fn of(role: Option<Role>) -> Self {
        match role {
            None => Self::Anybody,
            Some(Role::Viewer) => Self::Viewer,
            Some(Role::Operator) => Self::Operator,
            Some(Role::Admin) => Self::Admin,
        }
    }
}

/// How a page is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manner {
    /// Once, with its clocks as they are now.
    Whole,
    /// What is in it without its clocks, which a browser lets run by itself: two are the same while nothing happens.
    Still,
}

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
struct View<'a> {
    site: &'a SiteStatus,
    reader: Reader,
    /// Seconds from 1970 to the start of the box's kernel; `None`: clocks are left out.
    booted: Option<f64>,
}

/// One page as a text.
pub fn render(site: &SiteStatus, page: &Page, reader: Reader, manner: Manner) -> String {
    let view = View {
        site,
        reader,
        booted: (manner == Manner::Whole).then(|| unix_time() - site.uptime),
    };
    let health = health(site);
    let shown = match manner {
        Manner::Whole => frame::whole(view, page, &health),
        Manner::Still => frame::live(view, page, &health),
    };
    shown.into_string()
}

/// Seconds since 1970.
pub fn unix_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
