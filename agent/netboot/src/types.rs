//! Time as leases count it, and where the box's HTTP server is.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The time, as seconds since the Unix epoch: leases outlive a restart of the box, so they need a clock that does too.
///
/// A clock that jumps is tolerated: backwards, leases last longer; forwards, they look expired, and an expired address
/// stays with its MAC until somebody else needs it and a conflict probe finds it unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Now(u64);

impl Now {
    /// Whole seconds, UTC.
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// For files and the page.
    pub const fn unix_seconds(self) -> u64 {
        self.0
    }

    /// Later by `duration`, whole seconds, never overflowing.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_secs()))
    }
}

/// Where the box's HTTP server answers. Shown as a URL without a trailing slash; port 80 stays unsaid, because shim and
/// some firmware handle a URL without port best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxHttp {
    address: Ipv4Addr,
    port: u16,
}

impl BoxHttp {
    /// `address`: on the provisioning network.
    pub fn new(address: Ipv4Addr, port: u16) -> Self {
        Self { address, port }
    }

    /// Without the port.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// `172.22.0.1`, or `172.22.0.1:8080`.
    pub fn authority(self) -> String {
        match self.port {
            80 => self.address.to_string(),
            port => format!("{}:{port}", self.address),
        }
    }
}

impl fmt::Display for BoxHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}
