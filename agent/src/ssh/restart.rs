//! Telling an installed system to restart, whichever system it is.

use std::{net::Ipv4Addr, process::Output, time::Duration};

use anyhow::{Result, bail};
use firstlight_api::ramdisk_order::RamdiskOrder;
use firstlight_netboot::MacAddr;

use super::{
    Keys, Node, SshError,
    call::{Call, LOST},
    user,
};

/// An emulated host on a busy machine takes a minute for a login.
const TIME: Duration = Duration::from_mins(2);
/// The same, and a hundred megabytes that it fetches from the box.
const FETCH_TIME: Duration = Duration::from_mins(6);
/// Said by a host that restarts now. Its network may go before ssh has heard how the order ended.
const TAKEN: &str = "restarting";
/// The operator's login, and the one that Debian's cloud-init makes where user data says nothing else: a system that an older
/// box installed, or that is not ours, has no user for the box.
const OTHERS: [&str; 2] = ["admin", "debian"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    Network,
    Disk,
}

impl Keys {
    /// Returns when the host has taken the order.
    pub async fn restart(&self, mac: MacAddr, address: Ipv4Addr, into: Towards) -> Result<()> {
        let dir = self.of(mac);
        let mut reasons = Vec::new();
        for (user, command, input) in attempts(mac, into) {
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            let call = self.call(&dir, &user, address, &command)?;
            let Err(error) = order(&call, &input, TIME).await else {
                return Ok(());
            };
            reasons.push(error.to_string());
            if !matches!(error, SshError::Refused(_)) {
                break;
            }
        }
        bail!("SSH to {address}: {}", reasons.join("; "))
    }
}

impl Keys {
    /// Returns when the node has the ramdisk in its memory, and ends its system to start it.
    pub async fn start_ramdisk(&self, node: &Node, what: &RamdiskOrder) -> Result<(), SshError> {
        let (user, dir, mac) = (user(node.mac), self.of(node.mac), node.mac.to_string());
        let command = ["sudo", "-n", "firstlight-bootstrap", "kexec", &mac];
        let call = self.call(&dir, &user, node.address, &command)?;
        let input = serde_json::to_string(what).expect("an order is plain JSON");
        order(&call, &input, FETCH_TIME).await
    }
}

/// Login, command, and its input, in the order in which they are tried.
fn attempts(mac: MacAddr, into: Towards) -> Vec<(String, Vec<String>, String)> {
    let program = "firstlight-bootstrap restart";
    let (own, others) = match into {
        Towards::Network => {
            let order = format!("{program} {mac}");
            (order.clone(), order)
        }
        // Any system understands this.
        Towards::Disk => (program.to_owned(), "systemctl reboot --no-block".to_owned()),
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    let own = (user(mac), words(&format!("sudo -n {own}")), String::new());
    let others = OTHERS.map(|user| {
        let script = format!("echo {TAKEN}; {others}");
        (user.to_owned(), words("sudo -n sh -s"), script)
    });
    std::iter::once(own).chain(others).collect()
}

async fn order(call: &Call<'_>, input: &str, time: Duration) -> Result<(), SshError> {
    let output = call.output(input.as_bytes(), time).await?;
    if is_taken(&output) {
        return Ok(());
    }
    call.outcome(output).map(drop)
}

fn is_taken(output: &Output) -> bool {
    output.status.code() == Some(LOST) && output.stdout.starts_with(TAKEN.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    use super::*;

    #[test]
    fn a_host_that_takes_the_order_may_be_gone_before_it_ends() {
        for (says, code, expected) in [
            ("restarting\n", LOST, true),
            ("", LOST, false),
            ("restarting\n", 1, false),
        ] {
            let output = Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: says.into(),
                stderr: vec![],
            };
            assert_eq!(is_taken(&output), expected, "{says:?} {code}");
        }
    }

    #[test]
    fn the_boxs_own_user_comes_first_and_only_the_others_have_a_shell() {
        let mac = "52:54:00:00:00:01".parse().unwrap();
        for (into, own, script) in [
            (
                Towards::Network,
                "sudo -n firstlight-bootstrap restart 52:54:00:00:00:01",
                "echo restarting; firstlight-bootstrap restart 52:54:00:00:00:01",
            ),
            (
                Towards::Disk,
                "sudo -n firstlight-bootstrap restart",
                "echo restarting; systemctl reboot --no-block",
            ),
        ] {
            let told: Vec<(String, String, String)> = attempts(mac, into)
                .into_iter()
                .map(|(user, command, input)| (user, command.join(" "), input))
                .collect();
            let expected = [
                ("box-525400000001", own, ""),
                ("admin", "sudo -n sh -s", script),
                ("debian", "sudo -n sh -s", script),
            ];
            let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
            assert_eq!(told, expected);
        }
    }
}
