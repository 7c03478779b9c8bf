//! Users of the machine, by their name.

use std::fs;

use anyhow::{Context, Result};
use nix::unistd::{getgid, getuid};

/// Read without the C library: the agent has it linked in, and there it loads the modules that the machine's nsswitch.conf names, whose
/// version is another one.
const ACCOUNTS: &str = "/etc/passwd";

/// A user with its group (overlays/box/usr/lib/sysusers.d).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
}

impl Account {
    /// Each box has the accounts of its services; where a test runs there are none, and they run as the test does.
    pub fn find(name: &str) -> Result<Self> {
        let all = fs::read_to_string(ACCOUNTS).with_context(|| format!("reading {ACCOUNTS}"))?;
        Ok(Self::in_accounts(&all, name).unwrap_or_else(|| Self {
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
        }))
    }

    /// As `passwd(5)` has it.
    fn in_accounts(all: &str, name: &str) -> Option<Self> {
        let mut lines = all.lines().map(|line| line.split(':').collect::<Vec<_>>());
        lines.find_map(|fields| match fields[..] {
            [found, _, uid, gid, ..] if found == name => Some(Self {
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            }),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_found_among_others() {
        let find = |all: &str| Account::in_accounts(all, "firstlight-ironic");
        let others = "root:x:0:0:root:/root:/bin/bash\nfirstlight-ironic2:x:1:1::/:/bin/false\n";
        let own = "firstlight-ironic:x:902:903:Ironic:/:/usr/sbin/nologin";
        let (uid, gid) = (902, 903);
        assert_eq!(find(&format!("{others}{own}")), Some(Account { uid, gid }));
        for none in [
            others,
            "",
            "firstlight-ironic:x:-1:903",
            "firstlight-ironic",
        ] {
            assert_eq!(find(none), None, "{none}");
        }
    }
}
