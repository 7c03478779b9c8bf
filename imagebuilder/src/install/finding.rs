//! What stands in the way of an installation: where, what, and what a person does about it.

use std::fmt::{self, Write as _};

/// One reason to refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A path, a port, a NIC, or `machine`.
    pub place: String,
    pub what: String,
    pub next: String,
}

impl Finding {
    pub fn new(place: impl Into<String>, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
            next: next.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n      {}", self.place, self.what, self.next)
    }
}

/// All of them, and that nothing happened.
pub fn describe(findings: &[Finding]) -> String {
    let mut text = "nothing was changed, because of what is on this machine:".to_owned();
    for finding in findings {
        let _ = write!(text, "\n  - {finding}");
    }
    text
}
