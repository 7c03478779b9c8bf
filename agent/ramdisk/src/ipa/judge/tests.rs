#![allow(clippy::unwrap_used)]

use firstlight_api::order::{DeploymentId, Mark};
use firstlight_api::report::DiskSignatures;

use super::*;

const ID: DeploymentId = DeploymentId::new([7; 16]);
const OTHER: DeploymentId = DeploymentId::new([8; 16]);

fn disk(serial: &str, kinds: &[&str], mark: Option<Mark>) -> Judged {
    let disk = Disk {
        name: format!("/dev/{serial}"),
        size: 8 << 30,
        serial: Some(serial.to_owned()),
        ..Disk::default()
    };
    Judged {
        found: DiskSignatures {
            name: disk.name.clone(),
            size_bytes: disk.size,
            signatures: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            mark,
            ..DiskSignatures::default()
        },
        disk,
    }
}

fn blank(serial: &str) -> Judged {
    disk(serial, &[], None)
}

fn unfinished(deployment: DeploymentId) -> Judged {
    let mark = Some(Mark::Unfinished { deployment });
    disk("a", &["firstlight-unfinished"], mark)
}

fn installed(deployment: Option<DeploymentId>) -> Judged {
    disk("a", &["gpt"], Some(Mark::Installed { deployment }))
}

fn order(policy: DiskPolicy, disks: &[&str]) -> DiskOrder {
    DiskOrder {
        deployment: Some(ID),
        policy,
        scope: DiskScope::Server,
        disks: disks.iter().map(|serial| blank(serial).disk.id()).collect(),
        root: disks.first().map(|serial| blank(serial).disk.named()),
        mirror: None,
    }
}

/// A person has named the first disk of `order`.
fn alone(order: DiskOrder) -> DiskOrder {
    DiskOrder {
        scope: DiskScope::Root,
        ..order
    }
}

fn data(name: &str, kinds: &str) -> Refusal {
    let (name, kinds) = (name.to_owned(), kinds.to_owned());
    Refusal::Data { name, kinds }
}

fn not_ours(name: &str, kinds: &str) -> Refusal {
    let (name, kinds) = (name.to_owned(), kinds.to_owned());
    Refusal::NotOurs { name, kinds }
}

fn names(disks: Vec<Disk>) -> Vec<String> {
    disks.into_iter().map(|disk| disk.name).collect()
}

#[test]
fn an_image_is_written_over_nothing_our_own_half_or_what_a_person_gave_up() {
    use DiskPolicy::{Blank, GiveBack, Wipe};
    let used = |serial| disk(serial, &["gpt", "ntfs"], None);
    let gone = |serial| Refusal::Gone(blank(serial).disk.id());
    let new = |serial| Refusal::New(blank(serial).disk.id());
    for (order, disks, verdict) in [
        (
            order(Blank, &["a", "b"]),
            vec![blank("b"), blank("a")],
            Ok(()),
        ),
        (order(Blank, &["a"]), vec![unfinished(ID)], Ok(())),
        (order(Blank, &["a"]), vec![installed(Some(ID))], Ok(())),
        (
            order(Blank, &["a"]),
            vec![used("a")],
            Err(data("/dev/a", "gpt, ntfs")),
        ),
        // Whichever disk gets the image, all were promised to be blank.
        (
            order(Blank, &["a", "b"]),
            vec![blank("a"), used("b")],
            Err(data("/dev/b", "gpt, ntfs")),
        ),
        (
            order(Blank, &["a"]),
            vec![unfinished(OTHER)],
            Err(data("/dev/a", "firstlight-unfinished")),
        ),
        (
            order(Blank, &["a"]),
            vec![installed(Some(OTHER))],
            Err(data("/dev/a", "gpt")),
        ),
        (
            order(Blank, &["a"]),
            vec![installed(None)],
            Err(data("/dev/a", "gpt")),
        ),
        (order(Wipe, &["a"]), vec![used("a")], Ok(())),
        (order(Wipe, &["a"]), vec![used("b")], Err(new("b"))),
        (
            order(Wipe, &["a"]),
            vec![used("a"), blank("b")],
            Err(new("b")),
        ),
        (order(Wipe, &["a", "b"]), vec![used("a")], Err(gone("b"))),
        (order(Blank, &["a"]), vec![blank("b")], Err(new("b"))),
        (order(Blank, &["a", "b"]), vec![blank("a")], Err(gone("b"))),
        (
            order(GiveBack, &["a"]),
            vec![blank("a")],
            Err(Refusal::OtherOrder("giving this server back")),
        ),
        // Where the disk was named, others may come, go, and hold what they like; it itself is judged as ever.
        (
            alone(order(Blank, &["a"])),
            vec![used("b"), blank("a"), used("c")],
            Ok(()),
        ),
        (
            alone(order(Blank, &["a"])),
            vec![used("a"), blank("b")],
            Err(data("/dev/a", "gpt, ntfs")),
        ),
        (
            alone(order(Wipe, &["a"])),
            vec![used("a"), used("b")],
            Ok(()),
        ),
        (alone(order(Wipe, &["a"])), vec![used("b")], Err(gone("a"))),
    ] {
        let chosen = may_install(Some(&order), disks.clone());
        let verdict = verdict.map(|()| vec!["/dev/a".to_owned()]);
        assert_eq!(chosen.map(names), verdict, "{order:?} {disks:?}");
    }
    let none = may_install(None, vec![blank("a")]);
    assert_eq!(none, Err(Refusal::NoOrder));
    let unchosen = DiskOrder {
        root: None,
        ..order(Wipe, &["a"])
    };
    let none = may_install(Some(&unchosen), vec![blank("a")]);
    assert_eq!(none, Err(Refusal::NoRoot));
}

/// Without serial numbers, in two slots.
fn twin(name: &str, by_path: Option<&str>, kinds: &[&str]) -> Judged {
    let mut twin = disk(name, kinds, None);
    twin.disk.serial = None;
    twin.disk.by_path = by_path.map(str::to_owned);
    twin
}

#[test]
fn of_two_disks_that_are_alike_the_one_in_its_position_is_written_and_erased_and_no_other() {
    let policy = DiskPolicy::Wipe;
    let chosen = twin("a", Some("p1"), &[]);
    let order = DiskOrder {
        disks: vec![chosen.disk.id(); 2],
        root: Some(chosen.disk.named()),
        ..order(policy, &[])
    };
    // The kernel has swapped the names.
    let now = || {
        vec![
            twin("b", Some("p1"), &["gpt"]),
            twin("a", Some("p2"), &["ext4"]),
        ]
    };
    for order in [order.clone(), alone(order.clone())] {
        let written = may_install(Some(&order), now()).unwrap();
        assert_eq!(names(written), ["/dev/b"], "{order:?}");
        let moved = vec![twin("a", Some("p3"), &[]), twin("b", Some("p2"), &[])];
        let unclear = may_install(Some(&order), moved);
        assert_eq!(unclear, Err(Refusal::Unclear(chosen.disk.named())));
    }
    let erased = |order: &DiskOrder, disks| {
        let erased = may_erase(Some(order), disks).unwrap();
        names(erased.into_iter().map(|judged| judged.disk).collect())
    };
    assert_eq!(erased(&alone(order.clone()), now()), ["/dev/b"]);
    let back = DiskOrder {
        policy: DiskPolicy::GiveBack,
        disks: vec![chosen.disk.id()],
        ..order
    };
    let mut now = now();
    let deployment = Some(ID);
    now[0].found.mark = Some(Mark::Installed { deployment });
    assert_eq!(erased(&back, now), ["/dev/b"]);
}

/// Its first two disks get the same.
fn mirrored(order: DiskOrder, second: &str) -> DiskOrder {
    DiskOrder {
        mirror: Some(Box::new(blank(second).disk.named())),
        ..order
    }
}

#[test]
fn both_halves_of_a_mirror_are_as_they_were_judged_or_neither_is_written() {
    use DiskPolicy::{Blank, GiveBack, Wipe};
    let pair = |policy| mirrored(order(policy, &["b", "a"]), "a");
    let begun = |serial: &str| {
        let mark = Some(Mark::Unfinished { deployment: ID });
        disk(serial, &["firstlight-unfinished"], mark)
    };
    let used = |serial| disk(serial, &["linux_raid_member"], None);
    let gone = |serial| Refusal::Gone(blank(serial).disk.id());
    let both = || Ok(vec!["/dev/b".to_owned(), "/dev/a".to_owned()]);
    for (order, disks, chosen) in [
        (pair(Blank), vec![blank("a"), blank("b")], both()),
        // Half of this very mirror, or both halves, half written.
        (pair(Blank), vec![begun("a"), blank("b")], both()),
        (pair(Blank), vec![begun("a"), begun("b")], both()),
        (
            pair(Blank),
            vec![used("a"), blank("b")],
            Err(data("/dev/a", "linux_raid_member")),
        ),
        (
            alone(pair(Blank)),
            vec![used("a"), blank("b"), used("c")],
            Err(data("/dev/a", "linux_raid_member")),
        ),
        (
            alone(pair(Blank)),
            vec![blank("a"), blank("b"), used("c")],
            both(),
        ),
        (alone(pair(Wipe)), vec![used("a"), used("b")], both()),
        (
            alone(pair(Wipe)),
            vec![blank("b"), blank("c")],
            Err(gone("a")),
        ),
        (
            alone(pair(Wipe)),
            vec![blank("a"), blank("c")],
            Err(gone("b")),
        ),
        // One disk is no mirror.
        (
            alone(mirrored(order(Wipe, &["a"]), "a")),
            vec![blank("a"), blank("b")],
            Err(Refusal::Unclear(blank("a").disk.named())),
        ),
    ] {
        let found = may_install(Some(&order), disks.clone());
        assert_eq!(found.map(names), chosen, "{order:?} {disks:?}");
    }
    let back = alone(mirrored(order(GiveBack, &["a", "b"]), "b"));
    let held = vec![installed(Some(ID)), used("b"), used("c")];
    let erased = may_erase(Some(&back), held).unwrap();
    let erased: Vec<Disk> = erased.into_iter().map(|judged| judged.disk).collect();
    assert_eq!(names(erased), ["/dev/b", "/dev/a"]);
}

#[test]
fn what_is_erased_is_ours_and_what_shows_that_goes_last() {
    use DiskPolicy::{Blank, GiveBack, Wipe};
    let lvm = || disk("b", &["LVM2_member"], None);
    let foreign = || disk("c", &["xfs"], None);
    for (order, disks, erased) in [
        (
            order(GiveBack, &["a", "b"]),
            vec![installed(Some(ID)), lvm(), foreign()],
            Ok(vec!["/dev/b", "/dev/a"]),
        ),
        (
            order(GiveBack, &["a", "b"]),
            vec![unfinished(ID), blank("b")],
            Ok(vec!["/dev/b", "/dev/a"]),
        ),
        (
            order(GiveBack, &["a"]),
            vec![blank("a"), foreign()],
            Ok(vec!["/dev/a"]),
        ),
        // Somebody has put another system there since.
        (
            order(GiveBack, &["a"]),
            vec![disk("a", &["gpt"], None)],
            Err(not_ours("/dev/a", "gpt")),
        ),
        (
            order(GiveBack, &["a", "b"]),
            vec![blank("a"), lvm()],
            Err(not_ours("/dev/b", "LVM2_member")),
        ),
        (
            order(GiveBack, &["a"]),
            vec![installed(None)],
            Err(not_ours("/dev/a", "gpt")),
        ),
        (
            order(GiveBack, &["b"]),
            vec![installed(Some(ID))],
            Err(Refusal::Gone(lvm().disk.id())),
        ),
        (order(Wipe, &["b"]), vec![lvm()], Ok(vec!["/dev/b"])),
        (
            order(Wipe, &["a"]),
            vec![lvm()],
            Err(Refusal::New(lvm().disk.id())),
        ),
        (
            order(Blank, &["b"]),
            vec![lvm()],
            Err(data("/dev/b", "LVM2_member")),
        ),
        (order(Blank, &["b"]), vec![blank("b")], Ok(vec!["/dev/b"])),
        (
            alone(order(Wipe, &["b"])),
            vec![foreign(), lvm()],
            Ok(vec!["/dev/b"]),
        ),
        (
            alone(order(Blank, &["b"])),
            vec![foreign(), blank("b")],
            Ok(vec!["/dev/b"]),
        ),
    ] {
        let names = may_erase(Some(&order), disks.clone()).map(|disks| {
            disks
                .into_iter()
                .map(|disk| disk.disk.name)
                .collect::<Vec<_>>()
        });
        let erased = erased.map(|names| names.into_iter().map(str::to_owned).collect());
        assert_eq!(names, erased, "{order:?} {disks:?}");
    }
    assert_eq!(may_erase(None, vec![]).unwrap_err(), Refusal::NoOrder);
}

#[test]
fn a_system_that_is_older_than_the_orders_is_known_by_its_config_drive() {
    let old = DiskOrder {
        deployment: None,
        ..order(DiskPolicy::GiveBack, &["a"])
    };
    assert!(may_erase(Some(&old), vec![installed(None)]).is_ok());
    assert!(may_erase(Some(&old), vec![installed(Some(ID))]).is_err());
    assert!(may_erase(Some(&old), vec![disk("a", &["gpt"], None)]).is_err());
}

#[test]
fn a_refusal_says_what_was_found_and_what_to_do() {
    let said = data("/dev/sda", "gpt, ntfs").to_string();
    assert!(
        said.contains("/dev/sda is not blank (gpt, ntfs found)"),
        "{said}"
    );
    assert!(said.contains("firstlight.internal/install=wipe"), "{said}");
}
