//! The northbound database, which says what OVN is to make: read, compared with what is wanted, and changed where it differs. It holds
//! nothing else than what is here, so that it is empty when no network is.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    acl::{self, Row},
    kinds::{Network, Port},
    program,
};

/// The end of the name of a port to a network of the site; no object is called so.
const PROVIDER: &str = "@provider";
const SOCKET: &str = "--db=unix:/run/ovn/nb.sock";
/// On each row: what it was made from.
const MADE_FROM: &str = "firstlight";
const NETWORK: &str = "network";
/// From whom answers come where a network has no gateway.
const DHCP_SERVER: &str = "169.254.254.1";
const DHCP_SERVER_MAC: &str = "0a:00:00:00:00:01";
const LEASE_SECONDS: u32 = 3600;
/// Of one transaction: arguments of a program have a limit.
const MOST_AT_ONCE: usize = 100;

/// Words of `ovn-nbctl` that belong together.
pub type Command = Vec<String>;

/// Of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of its network or its port.
    pub key: String,
    pub commands: Vec<Command>,
}

/// What the database holds, with what each row was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    switches: BTreeMap<String, String>,
    /// With their networks.
    ports: BTreeMap<String, (String, String)>,
    /// Options for DHCP, by network, with their identifiers.
    dhcp: BTreeMap<String, (String, String)>,
}

/// What is to be there.
#[derive(Debug, Default)]
pub struct Intent<'a> {
    pub networks: BTreeMap<String, Network>,
    /// Networks with a mistake in them: what is made of them stays until it is mended.
    pub kept: BTreeSet<String>,
    /// Those with an address, in a network that is there.
    pub ports: Vec<&'a Port>,
    /// Of pods that have ports, by namespace and name.
    pub labels: BTreeMap<String, BTreeMap<String, String>>,
}

/// Changes in the order in which they are made. Options for DHCP have identifiers once they are there, so ports have them a round later.
pub fn plan(rows: &Rows, wanted: &Intent<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    for network in wanted.networks.values() {
        changes.extend(plan_switch(rows, wanted, network));
        changes.extend(plan_dhcp(rows, network));
    }
    let mut ports = BTreeSet::new();
    for port in &wanted.ports {
        if let Some(network) = wanted.networks.get(&port.spec.network) {
            ports.insert(&port.key);
            changes.extend(plan_port(rows, network, port));
        }
    }
    // Those to the site's networks have no network of their own here, and go with their switch.
    let gone = rows.ports.iter().filter(|(name, (network, _))| {
        !ports.contains(name) && wanted.networks.contains_key(network)
    });
    changes
        .extend(gone.map(|(name, _)| change(name, vec![words(["--if-exists", "lsp-del", name])])));
    let gone = rows
        .switches
        .keys()
        .filter(|name| !wanted.networks.contains_key(*name) && !wanted.kept.contains(*name));
    // With its ports.
    changes.extend(gone.map(|name| change(name, vec![words(["--if-exists", "ls-del", name])])));
    let has_dhcp = |name: &String| {
        wanted
            .networks
            .get(name)
            .is_some_and(|network| network.dhcp.is_some())
    };
    let gone = rows
        .dhcp
        .iter()
        .filter(|(name, _)| !has_dhcp(name) && !wanted.kept.contains(*name));
    changes.extend(gone.map(|(name, (id, _))| change(name, vec![destroy(id)])));
    changes
}

fn plan_switch(rows: &Rows, wanted: &Intent<'_>, network: &Network) -> Option<Change> {
    let name = &network.key;
    let acls = network.acls.iter().enumerate();
    let acls: Vec<Row> = acls
        .filter_map(|(index, acl)| {
            let fits = |port: &&&Port| {
                let labels = wanted.labels.get(&port.pod_key());
                port.spec.network == *name
                    && acl.pods.iter().all(|(label, value)| {
                        labels.is_some_and(|labels| labels.get(label) == Some(value))
                    })
            };
            let of: Vec<&str> = wanted
                .ports
                .iter()
                .filter(fits)
                .map(|port| &*port.key)
                .collect();
            acl::row(acl, index, &of)
        })
        .collect();
    let mut acl_words: Vec<Command> = acls
        .into_iter()
        .map(|row| {
            let priority = row.priority.to_string();
            words([
                "acl-add",
                name,
                row.direction,
                &priority,
                &row.text,
                row.verdict,
            ])
        })
        .collect();
    if !acl_words.is_empty() {
        // What none of them fits passes, and is remembered, so that its answers pass as well.
        acl_words.extend(
            ["from-lport", "to-lport"]
                .map(|direction| words(["acl-add", name, direction, "1", "ip", "allow-related"])),
        );
    }
    let made_from = digest(&(&network.provider, &acl_words));
    if rows.switches.get(name) == Some(&made_from) {
        return None;
    }
    let port = format!("{name}{PROVIDER}");
    let mut commands = vec![
        words(["--may-exist", "ls-add", name]),
        words(["set", "Logical_Switch", name, &mark(&made_from)]),
        words(["acl-del", name]),
    ];
    commands.extend(acl_words);
    match &network.provider {
        Some(provider) => {
            let physical = format!("network_name={}", provider.physical_network);
            let tag = provider.vlan.map_or("[]".to_owned(), |tag| tag.to_string());
            commands.extend([
                words(["--may-exist", "lsp-add", name, &port]),
                words(["lsp-set-type", &port, "localnet"]),
                words(["lsp-set-addresses", &port, "unknown"]),
                words(["lsp-set-options", &port, &physical]),
                words(["set", "Logical_Switch_Port", &port, &format!("tag={tag}")]),
            ]);
        }
        None => commands.push(words(["--if-exists", "lsp-del", &port])),
    }
    Some(change(name, commands))
}

fn plan_dhcp(rows: &Rows, network: &Network) -> Option<Change> {
    let dhcp = network.dhcp.as_ref()?;
    let made_from = digest(&(
        network.subnet,
        network.gateway,
        network.mtu,
        &network.routes,
        dhcp,
    ));
    let found = rows.dhcp.get(&network.key);
    if found.is_some_and(|(_, of)| *of == made_from) {
        return None;
    }
    let server = network
        .gateway
        .map_or(DHCP_SERVER.to_owned(), |address| address.to_string());
    let mut options = vec![
        (
            "lease_time",
            dhcp.lease_seconds.unwrap_or(LEASE_SECONDS).to_string(),
        ),
        ("mtu", network.mtu.to_string()),
        ("server_id", server),
        ("server_mac", DHCP_SERVER_MAC.to_owned()),
    ];
    options.extend(
        network
            .gateway
            .map(|gateway| ("router", gateway.to_string())),
    );
    if !dhcp.dns.is_empty() {
        let all: Vec<String> = dhcp.dns.iter().map(ToString::to_string).collect();
        options.push(("dns_server", format!("{{{}}}", all.join(", "))));
    }
    options.extend(
        dhcp.domain
            .as_ref()
            .map(|domain| ("domain_name", format!("\"{domain}\""))),
    );
    let options: Vec<String> = options
        .into_iter()
        .map(|(name, value)| format!("options:{name}={}", Value::from(value)))
        .collect();
    let mut create = words([
        "create",
        "DHCP_Options",
        &format!("cidr=\"{}\"", network.subnet),
        &format!("external_ids:{NETWORK}=\"{}\"", network.key),
        &mark(&made_from),
    ]);
    create.extend(options);
    let mut commands: Vec<Command> = found.map(|(id, _)| destroy(id)).into_iter().collect();
    commands.push(create);
    Some(change(&network.key, commands))
}

fn plan_port(rows: &Rows, network: &Network, port: &Port) -> Option<Change> {
    let (address, mac) = (port.status.address?.addr(), port.status.mac.as_ref()?);
    let addresses = format!("{mac} {address}");
    let dhcp = rows.dhcp.get(&network.key).map(|(id, _)| id.as_str());
    let name = &port.key;
    let made_from = digest(&(&network.key, &addresses, dhcp));
    let found = rows.ports.get(name);
    if found.is_some_and(|(_, of)| *of == made_from) {
        return None;
    }
    let mut commands = Vec::new();
    if found.is_some_and(|(of, _)| *of != network.key) {
        commands.push(words(["lsp-del", name]));
    }
    let mut options = words(["lsp-set-dhcpv4-options", name]);
    options.extend(dhcp.map(str::to_owned));
    commands.extend([
        words(["--may-exist", "lsp-add", &network.key, name]),
        words(["lsp-set-addresses", name, &addresses]),
        // A pod speaks for itself only.
        words(["lsp-set-port-security", name, &addresses]),
        options,
        words([
            "set",
            "Logical_Switch_Port",
            name,
            &mark(&made_from),
            &format!("external_ids:{NETWORK}=\"{}\"", network.key),
        ]),
    ]);
    Some(change(name, commands))
}

fn change(key: &str, commands: Vec<Command>) -> Change {
    Change {
        key: key.to_owned(),
        commands,
    }
}

fn words<const N: usize>(words: [&str; N]) -> Command {
    words.map(str::to_owned).into()
}

fn destroy(id: &str) -> Command {
    words(["--if-exists", "destroy", "DHCP_Options", id])
}

fn mark(made_from: &str) -> String {
    format!("external_ids:{MADE_FROM}={made_from}")
}

fn digest(of: &impl Serialize) -> String {
    let text = serde_json::to_string(of).unwrap_or_default();
    let digest = Sha256::digest(text);
    let short = digest.iter().take(12);
    // No identifier of a row, which are of another form.
    short.fold("f".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

pub async fn read() -> Result<Rows> {
    let switches = list("Logical_Switch", "name,external_ids").await?;
    let ports = list("Logical_Switch_Port", "name,external_ids").await?;
    let dhcp = list("DHCP_Options", "_uuid,external_ids").await?;
    Ok(parse(&switches, &ports, &dhcp))
}

async fn list(table: &str, columns: &str) -> Result<Value> {
    let columns = format!("--columns={columns}");
    let text = program::run(
        "ovn-nbctl",
        [SOCKET, "--format=json", &columns, "list", table],
    )
    .await?;
    serde_json::from_str(&text).context("what ovn-nbctl said")
}

fn parse(switches: &Value, ports: &Value, dhcp: &Value) -> Rows {
    let rows = |table: &Value| -> Vec<(String, BTreeMap<String, String>)> {
        let rows = table["data"].as_array().into_iter().flatten();
        rows.map(|row| {
            let first = row[0].as_str().or(row[0][1].as_str());
            let ids = row[1][1].as_array().into_iter().flatten();
            let ids = ids.filter_map(|pair| {
                Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()))
            });
            (first.unwrap_or_default().to_owned(), ids.collect())
        })
        .collect()
    };
    let said =
        |ids: &BTreeMap<String, String>, key: &str| ids.get(key).cloned().unwrap_or_default();
    let both = |ids: &BTreeMap<String, String>| (said(ids, NETWORK), said(ids, MADE_FROM));
    Rows {
        switches: rows(switches)
            .into_iter()
            .map(|(name, ids)| (name, said(&ids, MADE_FROM)))
            .collect(),
        ports: rows(ports)
            .into_iter()
            .map(|(name, ids)| {
                let of = both(&ids);
                (name, of)
            })
            .collect(),
        dhcp: rows(dhcp)
            .into_iter()
            .map(|(id, ids)| {
                let (network, of) = both(&ids);
                (network, (id, of))
            })
            .collect(),
    }
}

/// Returns a sentence for each object that OVN did not take; the others are as they are to be.
pub async fn apply(changes: &[Change]) -> BTreeMap<String, String> {
    let mut refused = BTreeMap::new();
    for some in changes.chunks(MOST_AT_ONCE) {
        if transact(some).await.is_ok() {
            continue;
        }
        for one in some {
            if let Err(error) = transact(std::slice::from_ref(one)).await {
                let error = format!("{error:#}");
                tracing::warn!(of = one.key, error, "OVN refused it");
                refused.insert(one.key.clone(), error);
            }
        }
    }
    refused
}

async fn transact(changes: &[Change]) -> Result<()> {
    let mut all = vec![SOCKET.to_owned()];
    for command in changes.iter().flat_map(|change| &change.commands) {
        all.push("--".to_owned());
        all.extend(command.iter().cloned());
    }
    program::run("ovn-nbctl", all).await.map(drop)
}

/// Waits until what was written is in the southbound database.
pub async fn settle() -> Result<()> {
    program::run("ovn-nbctl", [SOCKET, "--timeout=60", "--wait=sb", "sync"])
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::testing::{network, port};

    fn with_address(key: &str, address: &str) -> Port {
        let mut port = port(key, "a/blue");
        port.status.address = Some(address.parse().unwrap());
        port.status.mac = Some("0a:00:00:00:00:07".to_owned());
        port
    }

    /// As the database is after these changes.
    fn applied(rows: &Rows, changes: &[Change]) -> Rows {
        let mut rows = rows.clone();
        for command in changes.iter().flat_map(|change| &change.commands) {
            let said = |key: &str| {
                let key = format!("external_ids:{key}=");
                let found = command.iter().find_map(|word| word.strip_prefix(&key));
                found.unwrap_or_default().trim_matches('"').to_owned()
            };
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            match command[..] {
                ["set", "Logical_Switch", name, ..] => {
                    rows.switches.insert(name.to_owned(), said(MADE_FROM));
                }
                ["set", "Logical_Switch_Port", name, ..] => {
                    rows.ports
                        .insert(name.to_owned(), (said(NETWORK), said(MADE_FROM)));
                }
                ["create", "DHCP_Options", ..] => {
                    rows.dhcp
                        .insert(said(NETWORK), ("id".to_owned(), said(MADE_FROM)));
                }
                [.., "ls-del", name] => {
                    rows.switches.remove(name);
                    rows.ports.retain(|port, (network, _)| {
                        network != name && *port != format!("{name}{PROVIDER}")
                    });
                }
                [.., "lsp-del", name] => drop(rows.ports.remove(name)),
                [.., "destroy", "DHCP_Options", id] => {
                    rows.dhcp.retain(|_, (known, _)| known != id);
                }
                _ => {}
            }
        }
        rows
    }

    fn settled(rows: &Rows, wanted: &Intent<'_>) -> Rows {
        let mut rows = rows.clone();
        for _ in 0..3 {
            let changes = plan(&rows, wanted);
            if changes.is_empty() {
                return rows;
            }
            rows = applied(&rows, &changes);
        }
        panic!("there is always something left: {:?}", plan(&rows, wanted));
    }

    #[test]
    fn what_is_wanted_is_made_once_changed_where_it_differs_and_leaves_nothing() {
        let spec = json!({
            "subnet": "10.20.0.0/24", "gateway": "10.20.0.1", "dhcp": {"dns": ["10.20.0.1"], "domain": "lab"},
            "acls": [{"action": "drop", "direction": "in", "pods": {"app": "db"}}],
        });
        let blue = network("a/blue", &spec).unwrap();
        let ports = [
            with_address("a/p.net1", "10.20.0.2/24"),
            with_address("a/q.net1", "10.20.0.3/24"),
        ];
        let mut wanted = Intent {
            networks: [(blue.key.clone(), blue)].into(),
            ports: ports.iter().collect(),
            ..Intent::default()
        };
        let first = plan(&Rows::default(), &wanted);
        let keys: Vec<&str> = first.iter().map(|change| &*change.key).collect();
        assert_eq!(keys, ["a/blue", "a/blue", "a/p.net1", "a/q.net1"]);
        let rows = settled(&Rows::default(), &wanted);
        let with_a_mistake = Intent {
            kept: ["a/blue".to_owned()].into(),
            ..Intent::default()
        };
        assert_eq!(settled(&rows, &with_a_mistake), rows);

        // Labels of a pod make the rule about it.
        wanted.labels.insert(
            "a/pod".to_owned(),
            [("app".to_owned(), "db".to_owned())].into(),
        );
        let changes = plan(&rows, &wanted);
        let told = changes[0]
            .commands
            .iter()
            .find(|command| command[0] == "acl-add")
            .unwrap();
        assert!(
            changes.len() == 1 && told[4].contains(r#""a/p.net1", "a/q.net1""#),
            "{changes:?}"
        );
        let rows = settled(&rows, &wanted);

        // Other options of DHCP reach the ports by their new identifier.
        let spec = json!({"subnet": "10.20.0.0/24", "provider": {"physicalNetwork": "storage", "vlan": 7}});
        wanted
            .networks
            .insert("a/blue".to_owned(), network("a/blue", &spec).unwrap());
        let changes = plan(&rows, &wanted);
        let switch = changes[0].commands.join(&"--".to_owned()).join(" ");
        assert!(
            switch.contains("network_name=storage") && switch.contains("tag=7"),
            "{switch}"
        );
        let rows = settled(&rows, &wanted);
        let names = |rows: &Rows| rows.ports.keys().cloned().collect::<Vec<_>>();
        assert!(rows.dhcp.is_empty());
        assert_eq!(names(&rows), ["a/blue@provider", "a/p.net1", "a/q.net1"]);

        wanted.ports.pop();
        let rows = settled(&rows, &wanted);
        assert_eq!(names(&rows), ["a/blue@provider", "a/p.net1"]);
        assert_eq!(settled(&rows, &Intent::default()), Rows::default());
    }

    #[test]
    fn rows_are_read_as_ovn_nbctl_prints_them() {
        let table = |data: Value| json!({"data": data, "headings": ["name", "external_ids"]});
        let ids = |pairs: Value| json!(["map", pairs]);
        let rows = parse(
            &table(json!([["a/blue", ids(json!([["firstlight", "f1"]]))]])),
            &table(json!([[
                "a/p.net1",
                ids(json!([["firstlight", "f2"], ["network", "a/blue"]]))
            ]])),
            &table(json!([[
                ["uuid", "77"],
                ids(json!([["firstlight", "f3"], ["network", "a/blue"]]))
            ]])),
        );
        let pair = |one: &str, two: &str| (one.to_owned(), two.to_owned());
        assert_eq!(rows.switches, [pair("a/blue", "f1")].into());
        assert_eq!(rows.ports["a/p.net1"], pair("a/blue", "f2"));
        assert_eq!(rows.dhcp["a/blue"], pair("77", "f3"));
    }
}
