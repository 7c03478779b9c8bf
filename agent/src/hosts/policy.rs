//! May this machine be written to? The first safety rule: never wipe by surprise.

use firstlight_api::{
    order::{DeploymentId, DiskId, DiskOrder, DiskPolicy, DiskScope, Mark, RootDisk, is_free},
    report::{DiskSignatures, Report},
    site::{Clean, InstallPolicy},
    status::Problem,
};

use super::{
    ledger::Deployment,
    root_disk::{self, Choice, NoChoice, WantedDisks},
};

/// What the rule says of a machine as it reported itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Install(Box<Judgement>),
    LeaveAlone(Problem),
}

/// What the word to install rests on. The ramdisk gets it with the order, and looks whether it still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub policy: DiskPolicy,
    pub root: Choice,
    pub disks: Vec<DiskId>,
    /// Those with nothing on them that is worth keeping: what is there later came with the deployment.
    pub free: Vec<DiskId>,
}

impl Judgement {
    pub fn order(&self, deployment: Option<DeploymentId>) -> DiskOrder {
        let root = &self.root;
        DiskOrder {
            deployment,
            policy: self.policy,
            scope: root.scope,
            disks: match root.scope {
                DiskScope::Server => self.disks.clone(),
                DiskScope::Root => root.disks().map(|root| root.disk.clone()).collect(),
            },
            root: Some(root.disk.clone()),
            mirror: root.mirror.clone(),
        }
    }
}

/// What `deployment`, which is under way, has written is no reason to stop. Where `wanted` names disks, others may hold what they like.
/// `name` is the host's, for the sentence that says what to do.
pub fn judge(
    policy: InstallPolicy,
    report: &Report,
    wanted: &WantedDisks,
    deployment: Option<DeploymentId>,
    name: &str,
) -> Verdict {
    let is_free = |disk: &&DiskSignatures| is_free(disk, deployment);
    let policy = match policy {
        InstallPolicy::Never => return leave("the rule for this host is `install: never`", name),
        _ if report.disks.is_empty() => {
            return Verdict::LeaveAlone(Problem {
                what: "the ramdisk found no disk".to_owned(),
                next: "check that the server has a disk and that its controller is switched on in the firmware".to_owned(),
            });
        }
        InstallPolicy::Wipe => DiskPolicy::Wipe,
        InstallPolicy::Blank => DiskPolicy::Blank,
    };
    let used = report.disks.iter().find(|disk| !is_free(disk));
    if let (DiskPolicy::Blank, false, Some(disk)) = (policy, wanted.names_disks(), used) {
        let kinds = disk.signatures.join(", ");
        return leave(
            &format!("its disk {} is not blank: {kinds} found", disk.name),
            name,
        );
    }
    let root = match root_disk::choose(report, policy, wanted, deployment) {
        Ok(root) => root,
        Err(why @ NoChoice::Data { .. }) => return leave(&why.to_string(), name),
        Err(why) => return Verdict::LeaveAlone(unchosen(&why, name)),
    };
    Verdict::Install(Box::new(Judgement {
        policy,
        root,
        disks: report.disks.iter().map(DiskId::from).collect(),
        free: report
            .disks
            .iter()
            .filter(is_free)
            .map(DiskId::from)
            .collect(),
    }))
}

fn unchosen(why: &NoChoice, name: &str) -> Problem {
    let next = match why {
        NoChoice::Unclear(_) => "erase the other disk by hand, or take it out".to_owned(),
        NoChoice::Firmware(_) => {
            "switch its firmware to UEFI and start it from the network again, or put another disk in".to_owned()
        }
        NoChoice::Unfit(_) => format!(
            "put a disk of 8 GB or more into the server, or name one of these by `rootDeviceHints` in its BareMetalHost: `kubectl \
             edit bmh {name}`"
        ),
        NoChoice::NoPair(_) => format!(
            "put another disk in, or let the image go to one disk: take `raid` out of its BareMetalHost (`kubectl edit bmh {name}`), \
             and `mirror` out of its rule in site.yaml"
        ),
        _ => format!(
            "correct `rootDeviceHints` in its BareMetalHost (`kubectl edit bmh {name}`), or put the disk in"
        ),
    };
    Problem {
        what: why.to_string(),
        next,
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

/// Which disks are erased when a server is given back: what `deployment` wrote, and, unless `clean` or a disk that somebody named keeps
/// it to that, those that were free when it began. Whoever has put another system on the server since is asked first.
pub fn give_back(
    policy: InstallPolicy,
    report: &Report,
    deployment: Option<&Deployment>,
    clean: Option<Clean>,
    name: &str,
) -> Result<DiskOrder, Problem> {
    let id = deployment.and_then(|deployment| deployment.id);
    let root = deployment.and_then(|deployment| deployment.root.as_ref());
    let scope = root.map(|root| root.scope).unwrap_or_default();
    let clean = clean.unwrap_or(match scope {
        DiskScope::Server => Clean::All,
        DiskScope::Root => Clean::Root,
    });
    // A half of a mirror that is not there any more keeps the other from nothing.
    let found = root.into_iter().flat_map(Choice::disks);
    let found = found.filter_map(|root| Some((root, root_disk::find(root, report)?)));
    let (mut roots, written): (Vec<&RootDisk>, Vec<&DiskSignatures>) = found.unzip();
    if written.is_empty() {
        roots.extend(root.map(|root| &root.disk));
    }
    let order = |policy, scope, disks| DiskOrder {
        deployment: id,
        policy,
        scope,
        disks,
        root: roots.first().map(|root| (*root).clone()),
        mirror: roots.get(1).map(|root| Box::new((*root).clone())),
    };
    let wipes = policy == InstallPolicy::Wipe;
    match clean {
        Clean::All if wipes => {
            let all = report.disks.iter().map(DiskId::from).collect();
            return Ok(order(DiskPolicy::Wipe, DiskScope::Server, all));
        }
        Clean::Root if wipes && !written.is_empty() => {
            let disks = written.iter().copied().map(DiskId::from).collect();
            return Ok(order(DiskPolicy::Wipe, DiskScope::Root, disks));
        }
        _ => {}
    }
    let was_free = |disk: &DiskSignatures| {
        let disk = DiskId::from(disk);
        // A size alone tells no disk from another that was put in its place.
        disk.is_told_apart() && deployment.is_some_and(|it| it.disks.contains(&disk))
    };
    let is_ours = |disk: &DiskSignatures| disk.mark.map(Mark::deployment) == Some(id);
    let goes = |disk: &&DiskSignatures| {
        is_ours(disk)
            || written.iter().any(|written| written.name == disk.name)
            || clean == Clean::All && was_free(disk)
    };
    let ours: Vec<&DiskSignatures> = report.disks.iter().filter(goes).collect();
    let all = report.disks.iter().filter(|_| scope == DiskScope::Server);
    let counted = all.chain(ours.iter().copied());
    let used = counted.into_iter().find(|disk| !disk.signatures.is_empty());
    if let Some(disk) = used
        && !report.disks.iter().any(is_ours)
    {
        return Err(Problem {
            what: format!(
                "its disk {} holds {}, and nothing on its disks is what this box has installed",
                disk.name,
                disk.signatures.join(", ")
            ),
            next: format!(
                "if its data matters, set `automatedCleaningMode: disabled`; otherwise run `kubectl annotate bmh {name} \
                 firstlight.internal/install=wipe`"
            ),
        });
    }
    let ours = ours.into_iter().map(DiskId::from).collect();
    Ok(order(DiskPolicy::GiveBack, scope, ours))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use firstlight_api::bmh::{BareMetalHostSpec, RaidConfig, RootDeviceHints};
    use firstlight_api::report::{Fresh, Inventory, LookupState};

    fn report(disks: &[(&str, &[&str])]) -> Report {
        let disk = |(name, found): &(&str, &[&str])| DiskSignatures {
            name: (*name).to_owned(),
            size_bytes: 8 << 30,
            signatures: found.iter().map(|kind| (*kind).to_owned()).collect(),
            ..DiskSignatures::default()
        };
        Report {
            boot_mac: "52:54:00:00:00:01".into(),
            boot_id: "1".into(),
            address: String::new(),
            inventory: Inventory::default(),
            disks: disks.iter().map(disk).collect(),
            lookup: LookupState::NotAsked,
            tpm: firstlight_api::tpm::Tpm::default(),
            follows: Vec::new(),
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
            let verdict = judge(policy, &report(disks), &WantedDisks::default(), None, "n1");
            assert_eq!(
                matches!(verdict, Verdict::Install(_)),
                install,
                "{policy:?} {disks:?}"
            );
        }
    }

    #[test]
    fn the_reason_names_the_disk_what_is_on_it_and_the_way_out() {
        let Verdict::LeaveAlone(problem) = judge(
            InstallPolicy::Blank,
            &report(&[("/dev/vdb", &["dos", "ntfs"])]),
            &WantedDisks::default(),
            None,
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
    fn what_the_deployment_under_way_has_written_is_judged_as_blank() {
        let (id, other) = (DeploymentId::new([7; 16]), DeploymentId::new([8; 16]));
        let mut report = report(&[("/dev/vda", &["firstlight-unfinished"])]);
        let deployment = id;
        report.disks[0].mark = Some(Mark::Unfinished { deployment });
        let installs = |deployment| {
            let verdict = judge(
                InstallPolicy::Blank,
                &report,
                &WantedDisks::default(),
                deployment,
                "n1",
            );
            matches!(verdict, Verdict::Install(_))
        };
        assert!(installs(Some(id)));
        assert!(!installs(Some(other)) && !installs(None));
    }

    fn held(id: Option<DeploymentId>, disks: Vec<DiskId>) -> Deployment {
        Deployment {
            id,
            disks,
            ..Deployment::default()
        }
    }

    #[test]
    fn a_server_that_is_given_back_is_cleaned_of_what_came_with_its_system() {
        let id = Some(DeploymentId::new([7; 16]));
        let mut report = report(&[("a", &["gpt"]), ("b", &["LVM2_member"]), ("c", &["ntfs"])]);
        for (index, disk) in report.disks.iter_mut().enumerate() {
            disk.serial = Some(format!("S{index}"));
        }
        let ids: Vec<DiskId> = report.disks.iter().map(DiskId::from).collect();
        let held = held(id, vec![ids[1].clone()]);
        let back = |policy, report: &Report| give_back(policy, report, Some(&held), None, "n1");
        let other = back(InstallPolicy::Blank, &report).unwrap_err();
        assert!(other.what.contains("disk a holds gpt"), "{other:?}");
        report.disks[0].mark = Some(Mark::Installed { deployment: id });
        let order = back(InstallPolicy::Never, &report).unwrap();
        assert_eq!(
            (order.policy, order.deployment, &order.disks[..]),
            (DiskPolicy::GiveBack, id, &ids[..2])
        );
        let order = back(InstallPolicy::Wipe, &report).unwrap();
        assert_eq!((order.policy, order.disks), (DiskPolicy::Wipe, ids));
    }

    #[test]
    fn a_disk_that_only_its_size_tells_from_others_is_not_erased_for_having_been_blank_once() {
        let id = Some(DeploymentId::new([7; 16]));
        let mut report = report(&[("a", &["gpt"]), ("b", &["ext4"])]);
        report.disks[0].size_bytes += 1;
        report.disks[0].mark = Some(Mark::Installed { deployment: id });
        let ids: Vec<DiskId> = report.disks.iter().map(DiskId::from).collect();
        let held = held(id, ids.clone());
        let order = give_back(InstallPolicy::Blank, &report, Some(&held), None, "n1").unwrap();
        assert_eq!(order.disks, ids[..1], "the other may be another by now");
    }

    #[test]
    fn a_system_of_an_earlier_version_is_known_by_its_config_drive_and_only_its_disk_is_cleaned() {
        let mut report = report(&[("a", &["gpt"]), ("b", &["ext4"])]);
        report.disks[0].size_bytes += 1;
        let held = held(None, vec![]);
        let back =
            |report: &Report| give_back(InstallPolicy::Blank, report, Some(&held), None, "n1");
        assert!(back(&report).is_err());
        report.disks[0].mark = Some(Mark::Installed { deployment: None });
        let disks = vec![DiskId::from(&report.disks[0])];
        assert_eq!(back(&report).unwrap().disks, disks);
        let deployment = Some(DeploymentId::new([7; 16]));
        report.disks[0].mark = Some(Mark::Installed { deployment });
        assert!(back(&report).is_err(), "somebody else's");
    }

    /// The second of four disks got the image; the third was blank then.
    fn given_back(scope: DiskScope, clean: Option<Clean>, policy: InstallPolicy) -> DiskOrder {
        let id = Some(DeploymentId::new([7; 16]));
        let mut report = report(&[
            ("a", &["ntfs"]),
            ("b", &["gpt"]),
            ("c", &["LVM2_member"]),
            ("d", &["ext4"]),
        ]);
        for (index, disk) in report.disks.iter_mut().enumerate() {
            disk.serial = Some(index.to_string());
        }
        let [_, b, c, _] = &mut report.disks[..] else {
            panic!("four disks");
        };
        b.mark = Some(Mark::Installed { deployment: id });
        let mut held = held(id, vec![DiskId::from(&*b), DiskId::from(&*c)]);
        held.root = Some(Choice {
            disk: RootDisk {
                disk: DiskId::from(&*b),
                name: "of another day".into(),
                by_path: None,
            },
            mirror: None,
            scope,
            why: String::new(),
        });
        give_back(policy, &report, Some(&held), clean, "n1").unwrap()
    }

    fn root_disk(disk: &DiskSignatures) -> RootDisk {
        RootDisk {
            disk: DiskId::from(disk),
            name: disk.name.clone(),
            by_path: None,
        }
    }

    #[test]
    fn the_order_for_a_mirror_names_both_disks_as_they_were_judged() {
        let mut report = report(&[("a", &[]), ("b", &[]), ("c", &[])]);
        for (index, disk) in report.disks.iter_mut().enumerate() {
            disk.serial = Some(index.to_string());
            disk.size_bytes += index as u64;
        }
        let ids: Vec<DiskId> = report.disks.iter().map(DiskId::from).collect();
        let wanted = |hints: Option<RootDeviceHints>| {
            let mut spec = BareMetalHostSpec {
                raid: Some(RaidConfig::mirror()),
                ..BareMetalHostSpec::default()
            };
            spec.root_device_hints = hints;
            WantedDisks::of(&spec)
        };
        let order = |report: &Report, wanted: &WantedDisks| match judge(
            InstallPolicy::Blank,
            report,
            wanted,
            None,
            "n1",
        ) {
            Verdict::Install(judgement) => Ok(judgement.order(None)),
            Verdict::LeaveAlone(problem) => Err(problem),
        };
        let both = order(&report, &wanted(None)).unwrap();
        assert_eq!(both.root, Some(root_disk(&report.disks[0])));
        assert_eq!(both.mirror.as_deref(), Some(&root_disk(&report.disks[1])));
        assert_eq!((both.scope, &both.disks), (DiskScope::Server, &ids));
        // Where somebody named them, the third is none of the order's business.
        report.disks[2].signatures = vec!["ext".to_owned()];
        let refused = order(&report, &wanted(None)).unwrap_err();
        assert!(refused.what.contains("disk c is not blank"), "{refused:?}");
        let small = RootDeviceHints {
            min_size_gigabytes: Some(8),
            ..RootDeviceHints::default()
        };
        let named = order(&report, &wanted(Some(small))).unwrap();
        assert_eq!(
            (named.scope, &named.disks[..]),
            (DiskScope::Root, &ids[..2])
        );
        report.disks.truncate(1);
        let alone = order(&report, &wanted(None)).unwrap_err();
        assert!(alone.what.contains("a mirror needs two disks"), "{alone:?}");
        assert!(alone.next.contains("take `raid` out"), "{alone:?}");
    }

    #[test]
    fn both_halves_of_a_mirror_are_cleaned_and_one_that_is_gone_keeps_the_other_from_nothing() {
        let id = Some(DeploymentId::new([7; 16]));
        let mut report = report(&[("a", &["gpt"]), ("b", &["gpt"]), ("c", &["ntfs"])]);
        for (index, disk) in report.disks.iter_mut().enumerate() {
            disk.serial = Some(index.to_string());
            disk.mark = (index < 2).then_some(Mark::Installed { deployment: id });
        }
        let ids: Vec<DiskId> = report.disks.iter().map(DiskId::from).collect();
        let roots: Vec<RootDisk> = report.disks.iter().map(root_disk).collect();
        let mut held = held(id, ids[..2].to_vec());
        held.root = Some(Choice {
            disk: roots[0].clone(),
            mirror: Some(Box::new(roots[1].clone())),
            scope: DiskScope::Root,
            why: String::new(),
        });
        let back = |policy, report: &Report| {
            give_back(policy, report, Some(&held), Some(Clean::Root), "n1").unwrap()
        };
        let named = |order: &DiskOrder| order.roots().cloned().collect::<Vec<_>>();
        for policy in [InstallPolicy::Blank, InstallPolicy::Wipe] {
            let order = back(policy, &report);
            assert_eq!(
                (&order.disks[..], named(&order)),
                (&ids[..2], roots[..2].to_vec())
            );
        }
        report.disks.remove(0);
        for policy in [InstallPolicy::Blank, InstallPolicy::Wipe] {
            let order = back(policy, &report);
            assert_eq!(
                (&order.disks[..], named(&order)),
                (&ids[1..2], roots[1..2].to_vec())
            );
        }
    }

    #[test]
    fn what_is_erased_follows_the_rule_and_who_named_the_disk() {
        use DiskScope::{Root, Server};
        use InstallPolicy::{Blank, Wipe};
        let (root, all) = (Some(Clean::Root), Some(Clean::All));
        for (scope, clean, policy, erased) in [
            (Server, None, Blank, "12"),
            (Server, all, Blank, "12"),
            (Server, root, Blank, "1"),
            (Root, None, Blank, "1"),
            (Root, root, Blank, "1"),
            (Root, all, Blank, "12"),
            (Server, None, Wipe, "0123"),
            (Root, all, Wipe, "0123"),
            (Server, root, Wipe, "1"),
            (Root, None, Wipe, "1"),
        ] {
            let order = given_back(scope, clean, policy);
            let serials: String = order
                .disks
                .iter()
                .filter_map(|disk| disk.serial.clone())
                .collect();
            assert_eq!(serials, erased, "{scope:?} {clean:?} {policy:?}");
            // With one disk of a server that was given up, others are none of the order's business.
            let alone = order.policy == DiskPolicy::Wipe && erased == "1";
            assert!(!alone || order.scope == Root, "{order:?}");
        }
    }
}
