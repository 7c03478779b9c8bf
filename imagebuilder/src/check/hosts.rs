//! `firstlight check --hosts`: which rule each known server would take, and why not the ones before.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};
use firstlight_api::{
    site::{MacAddr, Rule, SiteConfig, rules::NamePattern},
    status::{HardwareSummary, HostStatus, SiteStatus},
};

use crate::UsageError;

/// Of a status that somebody saved: `curl http://BOX/api/v1/status`.
const LARGEST: u64 = 64 << 20;

/// A line for each server of the saved status.
///
/// # Errors
/// The file cannot be read, or two servers would have one name.
pub fn table(site: &SiteConfig, status: &Path) -> Result<String> {
    let place = || format!("reading {}", status.display());
    let length = fs::metadata(status).with_context(place)?.len();
    if length > LARGEST {
        let what = format!("{} is larger than any status", status.display());
        return Err(UsageError(what).into());
    }
    let text = fs::read(status).with_context(place)?;
    let known: SiteStatus = serde_json::from_slice(&text).map_err(|error| {
        UsageError(format!(
            "{} is no status of a box ({error}); save one with `curl -o status.json http://BOX/api/v1/status`",
            status.display()
        ))
    })?;
    let mut text = String::new();
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for host in &known.hosts {
        let told = told(site, host);
        let _ = writeln!(text, "  {} ({}): {}", host.name, host.mac, told.line);
        for why in told.passed {
            let _ = writeln!(text, "      {why}");
        }
        if let Some(name) = told.name {
            names.entry(name).or_default().push(host.mac.clone());
        }
    }
    let twice = names.into_iter().filter(|(_, macs)| macs.len() > 1);
    let twice: Vec<String> = twice
        .map(|(name, macs)| format!("`{name}` would be the name of {}", macs.join(" and ")))
        .collect();
    if twice.is_empty() {
        return Ok(text);
    }
    let what = format!(
        "{text}two servers cannot have one name:\n  {}",
        twice.join("\n  ")
    );
    Err(UsageError(what).into())
}

struct Told {
    /// As it would be called if it were new.
    name: Option<String>,
    line: String,
    /// Why not the rules before.
    passed: Vec<String>,
}

fn told(site: &SiteConfig, host: &HostStatus) -> Told {
    let line = |line: &str| Told {
        name: None,
        line: line.to_owned(),
        passed: Vec::new(),
    };
    let Ok(mac) = host.mac.parse::<MacAddr>() else {
        return line("its MAC address cannot be read");
    };
    let Some(hardware) = &host.hardware else {
        return line("its ramdisk has not reported, so nobody knows what it is made of");
    };
    let refusals = site.rules.iter().enumerate().map(|(index, rule)| {
        let why = rule.fits(mac, hardware).err();
        why.map(|why| format!("not rule {}: {why}", index + 1))
    });
    let passed = refusals.map_while(|why| why).collect();
    let entry = site.host(mac);
    let Some((index, rule)) = site.rule_of(mac, hardware) else {
        let line = match entry {
            Some(_) => format!(
                "no rule, but a line in `hosts`: {}",
                gives(site, mac, hardware, None)
            ),
            None if site.rules.is_empty() => "there are no rules".to_owned(),
            None => "no rule fits: it is listed and left alone".to_owned(),
        };
        let name = entry.and_then(|entry| entry.name.as_ref());
        return Told {
            name: name.map(ToString::to_string),
            line,
            passed,
        };
    };
    let named = entry.and_then(|entry| entry.name.clone());
    let pattern = rule.gives.name.as_ref();
    let is_numbered = named.is_none() && pattern.is_some_and(NamePattern::is_numbered);
    let name = match (&named, pattern) {
        (Some(name), _) => Ok(name.to_string()),
        (None, Some(pattern)) if is_numbered => {
            let sample = pattern.fill(mac, hardware, 1);
            sample.map(|_| format!("{pattern} with the lowest number that is free"))
        }
        (None, Some(pattern)) => {
            let name = pattern.fill(mac, hardware, 1);
            name.map(|name| name.to_string())
        }
        (None, None) => Ok(site.host_name(mac).to_string()),
    };
    let gives = gives(site, mac, hardware, Some(rule));
    Told {
        line: match &name {
            Ok(name) => format!("rule {}: {name}, {gives}", index + 1),
            Err(why) => format!("rule {}: left alone, for {why}", index + 1),
        },
        name: name.ok().filter(|_| !is_numbered),
        passed,
    }
}

/// What it gets besides a name.
fn gives(
    site: &SiteConfig,
    mac: MacAddr,
    hardware: &HardwareSummary,
    rule: Option<&Rule>,
) -> String {
    let policy = site.install_policy(mac, rule);
    let mut words = vec![format!("install {}", policy.word())];
    let given = &site.gives(mac, rule);
    words.extend(given.role.map(|it| format!("role {}", it.word())));
    words.extend(
        given
            .cluster
            .as_ref()
            .map(|it| format!("for the cluster {it}")),
    );
    words.extend(given.failure_domain.as_ref().map(|it| format!("in {it}")));
    words.extend(given.image.as_ref().map(|it| format!("image {it}")));
    let labels = given.labels.iter();
    words.extend(labels.map(|(key, value)| format!("{key}={value}")));
    let root = given.root_disk.clone().unwrap_or_default();
    let which = match (root.mirror, root.hints.is_some()) {
        (true, true) => "two disks by its hints as a mirror",
        (true, false) => "two disks as a mirror",
        (false, true) => "a disk by its hints",
        (false, false) => "",
    };
    if !which.is_empty() {
        words.push(format!("{which} out of {}", hardware.disks_line()));
    }
    words.extend(given.clean.map(|it| format!("clean {}", it.word())));
    words.extend(given.start.map(|it| format!("start {}", it.word())));
    let arguments = given.kernel_arguments.as_ref();
    words.extend(arguments.map(|it| format!("kernel arguments {it}")));
    words.extend(given.account.map(|it| format!("BMC account {}", it.word())));
    let links = given.layout.iter().flat_map(|layout| &layout.links);
    words.extend(links.map(ToString::to_string));
    let addresses = site.host(mac).into_iter().flat_map(|host| &host.addresses);
    words.extend(addresses.map(|(network, address)| format!("{address} on {network}")));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::{site::parse_site, status::DiskSummary};

    use super::*;

    const RULES: &str = "
clusters: {edge: {}}
rules:
- {match: {cpus: 16+}, name: 'big-{serial}', install: wipe, role: worker, cluster: edge, labels: {size: big}}
- {match: {vendor: 'Lenovo'}, name: 'node-{n}'}
- {match: {vendor: 'Dell*'}, name: 'dell-{serial}', rootDisk: {minSizeGigabytes: 100}}
";

    fn host(number: u8, vendor: &str, cpus: u32) -> HostStatus {
        HostStatus {
            name: format!("host-{number}"),
            mac: format!("52:54:00:00:00:{number:02x}"),
            hardware: Some(HardwareSummary {
                vendor: vendor.to_owned(),
                serial: "S1".to_owned(),
                cpus,
                disks: vec![DiskSummary {
                    name: "/dev/sda".to_owned(),
                    size_bytes: 480_000_000_000,
                    ..DiskSummary::default()
                }],
                ..HardwareSummary::default()
            }),
            ..HostStatus::default()
        }
    }

    #[test]
    fn what_its_nics_carry_is_said() {
        let site = parse_site(
            "networks: {storage: {subnet: 10.30.0.0/24, vlan: 30}}
rules:
- match: any
  links: [{bond: active-backup, nics: [boot, eno2], networks: [provisioning, storage]}]
hosts: [{mac: '52:54:00:00:00:01', addresses: {storage: 10.30.0.9}}]
",
        )
        .unwrap();
        let told = told(&site, &host(1, "Dell", 4));
        assert!(
            told.line.ends_with(
                "provisioning+storage by the bond active-backup of boot and eno2, 10.30.0.9 on storage"
            ),
            "{}",
            told.line
        );
    }

    fn told_of(hosts: Vec<HostStatus>) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        let status = SiteStatus {
            hosts,
            ..SiteStatus::default()
        };
        fs::write(&path, serde_json::to_vec(&status).unwrap()).unwrap();
        table(&parse_site(RULES).unwrap(), &path)
    }

    #[test]
    fn a_line_in_hosts_is_stronger_than_a_rule_and_enough_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        let status = SiteStatus {
            hosts: vec![host(2, "Dell Inc.", 8), host(3, "HPE", 8)],
            ..SiteStatus::default()
        };
        fs::write(&path, serde_json::to_vec(&status).unwrap()).unwrap();
        let lines = "hosts:\n- {mac: '52:54:00:00:00:02', clean: all}\n- {mac: '52:54:00:00:00:03', rootDisk: {wwn: a}}\n";
        let site = parse_site(format!("{lines}{RULES}")).unwrap();
        let text = table(&site, &path).unwrap();
        for line in [
            "rule 3: dell-s1, install blank, a disk by its hints out of /dev/sda 480 GB, clean all\n",
            "no rule, but a line in `hosts`: install blank, a disk by its hints out of /dev/sda 480 GB\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn each_server_has_its_rule_and_the_reason_against_those_before() {
        let silent = HostStatus {
            hardware: None,
            ..host(4, "", 0)
        };
        let hosts = vec![
            host(1, "HPE", 32),
            host(2, "Dell Inc.", 8),
            host(3, "HPE", 8),
            silent,
            host(5, "Lenovo", 8),
            host(6, "Lenovo", 8),
        ];
        let text = told_of(hosts).unwrap();
        let expected = "  host-1 (52:54:00:00:00:01): rule 1: big-s1, install wipe, role worker, for the cluster edge, size=big
  host-2 (52:54:00:00:00:02): rule 3: dell-s1, install blank, a disk by its hints out of /dev/sda 480 GB
      not rule 1: cpus is 8, not 16+
      not rule 2: vendor is `Dell Inc.`, not lenovo
  host-3 (52:54:00:00:00:03): no rule fits: it is listed and left alone
      not rule 1: cpus is 8, not 16+
      not rule 2: vendor is `HPE`, not lenovo
      not rule 3: vendor is `HPE`, not dell*
  host-4 (52:54:00:00:00:04): its ramdisk has not reported, so nobody knows what it is made of
  host-5 (52:54:00:00:00:05): rule 2: node-{n} with the lowest number that is free, install blank
      not rule 1: cpus is 8, not 16+
  host-6 (52:54:00:00:00:06): rule 2: node-{n} with the lowest number that is free, install blank
      not rule 1: cpus is 8, not 16+
";
        assert_eq!(text, expected);
    }

    #[test]
    fn two_servers_of_one_name_are_both_named() {
        let error = told_of(vec![host(1, "HPE", 32), host(2, "HPE", 64)]).unwrap_err();
        let text = error.to_string();
        assert!(error.downcast_ref::<UsageError>().is_some());
        assert!(
            text.contains("`big-s1` would be the name of 52:54:00:00:00:01 and 52:54:00:00:00:02"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_status_is_refused_with_the_way_to_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        fs::write(&path, "{}").unwrap();
        let error = table(&SiteConfig::default(), &path)
            .unwrap_err()
            .to_string();
        assert!(error.contains("curl -o status.json"), "{error}");
    }
}
