//! The key `rules`.

use super::{super::*, problems};
use crate::{bmh::RootDeviceHints, start::StartPolicy, status::DiskSummary};

const FULL: &str = "
rules:
  - match:
      vendor: Dell*
      serial: [ABC1, 'abc2*']
      disks: 2+
      memory: 64-128
    name: store-{serial}
    role: worker
    install: wipe
    labels: {rack: r1, example.com/tier: 'gold'}
    failureDomain: r1
    rootDisk: {minSizeGigabytes: 100, rotational: false, mirror: true}
    clean: all
    image: debian:13.2
    start: restart
    kernelArguments: hugepages=64  iommu=pt
    bmc: {account: create}
    keepsBackups: true
  - match: any
";

#[test]
fn a_rule_is_read_whole_and_the_first_that_fits_counts() {
    let site = parse_site(FULL).unwrap();
    let [first, last] = site.rules.as_slice() else {
        panic!("{:?}", site.rules);
    };
    assert_eq!(first.conditions.len(), 4);
    let gives = &first.gives;
    assert_eq!(gives.name.as_ref().unwrap().to_string(), "store-{serial}");
    assert!(gives.keeps_backups && !last.gives.keeps_backups);
    assert_eq!(gives.role, Some(HostRole::Worker));
    assert_eq!(gives.install, Some(InstallPolicy::Wipe));
    assert_eq!(gives.labels["example.com/tier"], "gold");
    assert_eq!(gives.failure_domain.as_deref(), Some("r1"));
    let root = gives.root_disk.as_ref().unwrap();
    let disk = root.hints.as_ref().unwrap();
    assert_eq!(
        (disk.min_size_gigabytes, disk.rotational),
        (Some(100), Some(false))
    );
    assert!(root.mirror);
    assert_eq!(gives.clean, Some(Clean::All));
    assert_eq!(gives.image.as_deref(), Some("debian:13.2"));
    assert_eq!(gives.start, Some(StartPolicy::Restart));
    let arguments = gives.kernel_arguments.as_ref().unwrap();
    assert_eq!(arguments.as_str(), "hugepages=64 iommu=pt");
    assert_eq!(gives.account, Some(BmcAccount::Create));
    assert_eq!(*last, Rule::default());
    let mac = MacAddr::new([2, 0, 0, 0, 0, 1]).unwrap();
    let mut hardware = HardwareSummary {
        vendor: "Dell Inc.".into(),
        serial: "ABC2X".into(),
        memory_mib: 65536,
        disks: vec![DiskSummary::default(); 2],
        ..HardwareSummary::default()
    };
    let rule = |hardware: &HardwareSummary| site.rule_of(mac, hardware).map(|(index, _)| index);
    assert_eq!(rule(&hardware), Some(0));
    hardware.disks.pop();
    assert_eq!(rule(&hardware), Some(1));
}

#[test]
fn what_a_host_is_given_by_name_is_stronger_than_a_rule() {
    let site = parse_site(
        "install: never\nhosts:\n- {mac: '02:00:00:00:00:01', install: blank}\nrules:\n- {match: any, install: wipe}\n",
    )
    .unwrap();
    let policy = |number| {
        let mac = MacAddr::new([2, 0, 0, 0, 0, number]).unwrap();
        site.install_policy(mac, site.rules.first())
    };
    assert_eq!(
        (policy(1), policy(2)),
        (InstallPolicy::Blank, InstallPolicy::Wipe)
    );
    let mac = MacAddr::new([2, 0, 0, 0, 0, 2]).unwrap();
    assert_eq!(site.install_policy(mac, None), InstallPolicy::Never);
    let standing = site.as_last_good();
    assert_eq!(
        standing.install_policy(mac, standing.rules.first()),
        InstallPolicy::Never
    );
}

#[test]
fn a_line_in_hosts_names_disk_and_cleaning_instead_of_a_rule() {
    let site = parse_site(
        "hosts:\n- {mac: '02:00:00:00:00:01', rootDisk: {wwn: a}, clean: all}\n- mac: '02:00:00:00:00:02'\n\
         rules:\n- {match: any, labels: {a: b}, rootDisk: {model: x, rotational: true}, clean: root}\n",
    )
    .unwrap();
    let gives = |number, rule| {
        let mac = MacAddr::new([2, 0, 0, 0, 0, number]).unwrap();
        site.gives(mac, rule)
    };
    let ours = gives(1, site.rules.first());
    let of_line = GivenRootDisk {
        hints: Some(RootDeviceHints {
            wwn: "a".to_owned(),
            ..RootDeviceHints::default()
        }),
        mirror: false,
    };
    assert_eq!(
        ours.root_disk,
        Some(of_line.clone()),
        "nothing of the rule's"
    );
    assert_eq!((ours.clean, ours.labels.len()), (Some(Clean::All), 1));
    assert_eq!(gives(2, site.rules.first()), site.rules[0].gives);
    let alone = gives(1, None);
    assert_eq!(
        (alone.root_disk, alone.clean),
        (Some(of_line), Some(Clean::All))
    );
    assert_eq!(gives(2, None), Gives::default());
}

#[test]
fn each_mistake_has_its_place_and_a_way_out() {
    for (text, place, part) in [
        ("rules:\n- name: a\n", "line 2, column 3", "needs `match`"),
        ("rules:\n- match:\n", "line 2, column", "`match` is `any`"),
        (
            "rules:\n- match: all\n",
            "line 2, column 10",
            "`match` is `any`",
        ),
        (
            "rules:\n- match: {}\n",
            "line 2, column 10",
            "`match` is `any`",
        ),
        (
            "rules:\n- match: {vendro: x}\n",
            "line 2, column 11",
            "did you mean `vendor`",
        ),
        (
            "rules:\n- match: {cpus: many}\n",
            "line 2, column 17",
            "16+ (at least)",
        ),
        (
            "rules:\n- match: {disks: 4-2}\n",
            "line 2, column 18",
            "smaller one first",
        ),
        (
            "rules:\n- match: {serial: []}\n",
            "line 2, column 19",
            "`serial` is empty",
        ),
        (
            "rules:\n- match: {mac: }\n",
            "line 2, column",
            "`mac` is empty",
        ),
        (
            "rules:\n- {match: any, name: 'n{number}'}\n",
            "line 2, column 22",
            "a brace that stands for nothing",
        ),
        (
            "rules:\n- {match: any, labels: [a]}\n",
            "line 2, column 24",
            "such as `rack: r1`",
        ),
        (
            "rules:\n- {match: any, labels: {firstlight.internal/role: control-plane}}\n",
            "line 2, column 25",
            "set by the box",
        ),
        (
            "rules:\n- {match: any, labels: {infrastructure.cluster.x-k8s.io/failure-domain: a}}\n",
            "line 2, column 25",
            "set by the box",
        ),
        (
            "rules:\n- {match: any, labels: {rack: 'r 1'}}\n",
            "line 2, column 31",
            "the value of a label",
        ),
        (
            "rules:\n- {match: any, rootDisk: {}}\n",
            "line 2, column 26",
            "says nothing",
        ),
        (
            "rules:\n- {match: any, rootDisk: {rotational: maybe}}\n",
            "line 2, column 39",
            "neither true nor false",
        ),
        (
            "rules:\n- {match: any, image: 'http://x/y'}\n",
            "line 2, column 23",
            "firstlight push",
        ),
        (
            "rules:\n- {match: any, image: 'a b'}\n",
            "line 2, column 23",
            "NAME:VERSION",
        ),
        ("rules: any\n", "line 1, column 8", "`rules` is a list"),
    ] {
        is_explained(text, place, part);
    }
}

fn is_explained(text: &str, place: &str, part: &str) {
    let found = problems(text).join("\n");
    assert!(
        found.starts_with(place) && found.contains(part),
        "{text}{found}"
    );
}

#[test]
fn so_has_each_mistake_about_bmcs() {
    for (text, place, part) in [
        (
            "rules:\n- {match: any, bmc: {}}\n",
            "line 2, column 21",
            "`bmc` says nothing",
        ),
        (
            "rules:\n- {match: any, bmc: {acount: create}}\n",
            "line 2, column 22",
            "did you mean `account`",
        ),
        (
            "rules:\n- {match: any, bmc: {account: delete}}\n",
            "line 2, column 31",
            "write `create`",
        ),
    ] {
        is_explained(text, place, part);
    }
}

proptest::proptest! {
    #[test]
    fn a_damaged_rule_is_explained_or_read(at in 0_usize..450, byte in 0_u8.., cut in 0_usize..450) {
        let mut bytes = FULL.as_bytes().to_vec();
        if let Some(slot) = bytes.get_mut(at) {
            *slot = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Err(SiteProblems(problems)) = parse_site(&bytes) {
            proptest::prop_assert!(!problems.is_empty());
            proptest::prop_assert!(problems.iter().all(|problem| problem.line > 0 && !problem.message.is_empty()));
        }
    }
}
