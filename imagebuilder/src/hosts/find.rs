//! Which host is meant.

use anyhow::Result;
use firstlight_api::status::HostStatus;

use crate::UsageError;

/// By its name, the beginning of it, or its MAC address.
pub fn find<'a>(hosts: &'a [HostStatus], wanted: &str) -> Result<&'a HostStatus> {
    let wanted = wanted.to_lowercase();
    let mac = wanted.replace('-', ":");
    let named: Vec<_> = hosts
        .iter()
        .filter(|host| host.name == wanted || host.mac == mac)
        .collect();
    let found = if named.is_empty() {
        let begins = |host: &&HostStatus| host.name.starts_with(&wanted);
        hosts.iter().filter(begins).collect()
    } else {
        named
    };
    match found[..] {
        [host] => Ok(host),
        [] => Err(UsageError(unknown(hosts, &wanted)).into()),
        _ => {
            let candidates: Vec<String> = found
                .iter()
                .map(|host| format!("{} ({})", host.name, host.mac))
                .collect();
            Err(UsageError(format!(
                "`{wanted}` may be {}; give the whole name or the MAC address",
                candidates.join(", ")
            ))
            .into())
        }
    }
}

fn unknown(hosts: &[HostStatus], wanted: &str) -> String {
    let distance = |host: &&HostStatus| strsim::damerau_levenshtein(wanted, &host.name);
    match hosts.iter().min_by_key(distance) {
        Some(nearest) => format!(
            "the box knows no server `{wanted}`; the nearest name is {} ({})",
            nearest.name, nearest.mac
        ),
        None => "the box has seen no server yet: start one from the network, on the box's segment"
            .to_owned(),
    }
}
