//! May this machine be written to? The first safety rule: never wipe by surprise.

use firstlight_api::{
    report::{DiskSignatures, Inventory, Report},
    site::InstallPolicy,
    status::Problem,
};

/// What the rule says of a machine as it reported itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Install,
    LeaveAlone(Problem),
}

/// The word in the annotation of a `BareMetalHost`; another one means nothing.
pub fn parse(word: &str) -> Option<InstallPolicy> {
    match word {
        "blank" => Some(InstallPolicy::Blank),
        "wipe" => Some(InstallPolicy::Wipe),
        "never" => Some(InstallPolicy::Never),
        _ => None,
    }
}

/// `name` is the host's, for the sentence that says what to do.
pub fn judge(policy: InstallPolicy, report: &Report, name: &str) -> Verdict {
    match policy {
        InstallPolicy::Never => leave("the rule for this host is `install: never`", name),
        _ if report.disks.is_empty() => Verdict::LeaveAlone(Problem {
            what: "the ramdisk found no disk".to_owned(),
            next: "check that the server has a disk and that its controller is switched on in the firmware".to_owned(),
        }),
        InstallPolicy::Wipe => Verdict::Install,
        InstallPolicy::Blank => match report.disks.iter().find(|disk| !disk.signatures.is_empty()) {
            None => Verdict::Install,
            Some(disk) => {
                leave(&format!("its disk {} is not blank: {} found", disk.name, disk.signatures.join(", ")), name)
            }
        },
    }
}

fn leave(why: &str, name: &str) -> Verdict {
    Verdict::LeaveAlone(Problem {
        what: why.to_owned(),
        next: format!(
            "nothing, if its data matters; otherwise give it `install: wipe` in site.yaml and restart the box, or run \
             `kubectl annotate bmh {name} firstlight.internal/install=wipe`"
        ),
    })
}

/// Tells whether the disks are still those that were judged: a retry may overwrite its own half-written image, and
/// nothing that came in its place.
pub fn fingerprint(disks: &[DiskSignatures], inventory: &Inventory) -> String {
    let serial = |name: &str| {
        let disks = &inventory.hardware.storage;
        let disk = disks.iter().find(|disk| disk.name == name);
        disk.map_or("", |disk| &disk.serial_number)
    };
    let mut parts: Vec<String> = disks
        .iter()
        .map(|disk| format!("{}:{}:{}", disk.name, disk.size_bytes, serial(&disk.name)))
        .collect();
    parts.sort();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use firstlight_api::report::{Fresh, LookupState};

    fn report(disks: &[(&str, &[&str])]) -> Report {
        let disk = |(name, found): &(&str, &[&str])| DiskSignatures {
            name: (*name).to_owned(),
            size_bytes: 8 << 30,
            signatures: found.iter().map(|kind| (*kind).to_owned()).collect(),
        };
        Report {
            boot_mac: "52:54:00:00:00:01".into(),
            boot_id: "1".into(),
            address: String::new(),
            inventory: Inventory::default(),
            disks: disks.iter().map(disk).collect(),
            lookup: LookupState::NotAsked,
            fresh: Fresh::default(),
        }
    }

    #[test]
    fn the_table_of_rules() {
        use InstallPolicy::{Blank, Never, Wipe};
        let blank: &[(&str, &[&str])] = &[("/dev/vda", &[]), ("/dev/vdb", &[])];
        let data: &[(&str, &[&str])] = &[("/dev/vda", &[]), ("/dev/vdb", &["gpt", "ext4"])];
        let cases = [
            (Blank, blank, true),
            (Blank, data, false),
            (Blank, &[], false),
            (Wipe, blank, true),
            (Wipe, data, true),
            (Wipe, &[], false),
            (Never, blank, false),
            (Never, data, false),
        ];
        for (policy, disks, install) in cases {
            let verdict = judge(policy, &report(disks), "n1");
            assert_eq!(verdict == Verdict::Install, install, "{policy:?} {disks:?}");
        }
    }

    #[test]
    fn the_reason_names_the_disk_what_is_on_it_and_the_way_out() {
        let Verdict::LeaveAlone(problem) = judge(
            InstallPolicy::Blank,
            &report(&[("/dev/vdb", &["dos", "ntfs"])]),
            "n1",
        ) else {
            panic!("a disk with data is left alone");
        };
        assert_eq!(
            problem.what,
            "its disk /dev/vdb is not blank: dos, ntfs found"
        );
        assert!(
            problem
                .next
                .contains("kubectl annotate bmh n1 firstlight.internal/install=wipe"),
            "{}",
            problem.next
        );
    }

    #[test]
    fn another_disk_is_another_fingerprint_and_new_signatures_are_not() {
        let inventory = |serial: &str| {
            Inventory::from_json(
                &serde_json::json!({"disks": [{"name": "/dev/vda", "serial": serial}]}),
            )
            .unwrap()
        };
        let of = |found: &[&str], serial: &str| {
            fingerprint(&report(&[("/dev/vda", found)]).disks, &inventory(serial))
        };
        assert_eq!(of(&[], "S1"), of(&["gpt"], "S1"));
        assert_ne!(of(&[], "S1"), of(&[], "S2"));
    }
}
