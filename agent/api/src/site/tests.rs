#![allow(clippy::unwrap_used)]

mod backup;
mod cluster;
mod ipv6;
mod networks;
mod people;
mod relayed;
mod rules;
mod uplink;

use std::net::Ipv4Addr;

use super::{schema, *};
use crate::bmh::RootDeviceHints;

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1pLbFSTpHvJ0hSWRnUGMvKxQ2g1YMxPvvqj5vJXc0f ann@desk";

fn problems(text: &str) -> Vec<String> {
    parse_site(text)
        .unwrap_err()
        .0
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn cidr(text: &str) -> Subnet {
    text.parse().unwrap()
}

#[test]
fn an_empty_file_means_the_defaults() {
    for text in [
        "",
        "\n",
        "# only a comment\n",
        "---\n",
        "\u{feff}",
        "provisioning:\nhosts:\nsshKeys: []\n",
    ] {
        assert_eq!(parse_site(text), Ok(SiteConfig::default()), "{text:?}");
    }
    let site = SiteConfig::default();
    assert_eq!(site.provisioning.address.to_string(), "172.22.0.1/24");
    assert_eq!(
        site.provisioning.range.to_string(),
        "172.22.0.100-172.22.0.250"
    );
    assert_eq!(site.install, InstallPolicy::Blank);
}

#[test]
fn a_full_file_is_read_whole() {
    let text = format!(
        "name: lab\r\nprovisioning:\r\n  interface: 52-54-00-AA-BB-CC\r\n  address: 10.0.0.1/16\r\n  \
         range: 10.0.1.0 - 10.0.2.255\r\ninstall: never\r\njoin: approve\r\nmeasuredBoot: required\r\nsshKeys: ['{KEY}']\r\nhosts:\r\n- mac: 52:54:00:12:34:56\r\n  \
         name: n1\r\n  address: 10.0.0.21\r\n  install: wipe\r\n  role: control-plane\r\n  rootDisk: {{serialNumber: S1, mirror: true}}\r\n  clean: root\r\n- {{mac: 52:54:00:12:34:57}}\r\n\
         cluster: manual\r\n"
    );
    let site = parse_site(text).unwrap();
    let (n1, other) = (
        MacAddr::new([0x52, 0x54, 0, 0x12, 0x34, 0x56]).unwrap(),
        MacAddr::new([0x52, 0x54, 0, 0x12, 0x34, 0x57]).unwrap(),
    );
    let expected = SiteConfig {
        standing: Standing::Current,
        name: HostName::parse("lab").unwrap(),
        provisioning: ProvisioningConfig {
            interface: InterfaceChoice::Mac(
                MacAddr::new([0x52, 0x54, 0, 0xaa, 0xbb, 0xcc]).unwrap(),
            ),
            address: cidr("10.0.0.1/16"),
            range: AddressRange::new(Ipv4Addr::new(10, 0, 1, 0), Ipv4Addr::new(10, 0, 2, 255))
                .unwrap(),
            gateway: None,
            dhcp: DhcpRole::Serve,
            bandwidth: None,
            relayed: vec![],
        },
        networks: BTreeMap::new(),
        uplink: None,
        proxy: None,
        alarms: None,
        install: InstallPolicy::Never,
        join: JoinPolicy::Approve,
        measured_boot: MeasuredBoot::Required,
        ssh_keys: vec![SshKey::parse(KEY).unwrap()],
        rules: vec![],
        hosts: vec![
            HostConfig {
                mac: n1,
                name: Some(HostName::parse("n1").unwrap()),
                address: Some(Ipv4Addr::new(10, 0, 0, 21)),
                install: Some(InstallPolicy::Wipe),
                role: HostRole::ControlPlane,
                cluster: None,
                root_disk: Some(GivenRootDisk {
                    hints: Some(RootDeviceHints {
                        serial_number: "S1".to_owned(),
                        ..RootDeviceHints::default()
                    }),
                    mirror: true,
                }),
                clean: Some(Clean::Root),
                layout: None,
                addresses: BTreeMap::new(),
            },
            HostConfig {
                mac: other,
                name: None,
                address: None,
                install: None,
                role: HostRole::Any,
                cluster: None,
                root_disk: None,
                clean: None,
                layout: None,
                addresses: BTreeMap::new(),
            },
        ],
        cluster: ClusterChoice::Manual,
        clusters: BTreeMap::new(),
        addons: Addons::Usual,
        packages: Vec::new(),
        log_host: None,
        backup: None,
        box_workloads: false,
        box_seal: RootOfTrust::Tpm,
        operators: Vec::new(),
    };
    assert_eq!(site, expected);
    assert_eq!(site.install_policy(n1, None), InstallPolicy::Wipe);
    assert_eq!(site.install_policy(other, None), InstallPolicy::Never);
    assert_eq!(site.host_name(other).as_str(), "host-525400123457");
}

#[test]
fn what_files_may_take_of_the_link_is_said_with_its_unit() {
    let of = |text: &str| parse_site(format!("provisioning: {{bandwidth: {text}}}"));
    for (text, bytes) in [
        ("1 Mbit/s", 125_000),
        ("400Mbit/s", 50_000_000),
        ("10 Gbit/s", 1_250_000_000),
    ] {
        let rate = of(text).unwrap().provisioning.bandwidth.unwrap();
        assert_eq!(rate.bytes_per_second(), bytes, "{text}");
    }
    for wrong in [
        "100",
        "0 Mbit/s",
        "401 Gbit/s",
        "1.5 Gbit/s",
        "10 MB/s",
        "99999999999999999999 Gbit/s",
        "-1 Mbit/s",
    ] {
        let said = of(wrong).unwrap_err().to_string();
        assert!(
            said.contains("is no bandwidth; write whole numbers"),
            "{said}"
        );
    }
}

#[test]
fn addons_belong_to_the_generated_cluster() {
    let site = parse_site("addons: [metrics-server, nfd]").unwrap();
    let names = |names: &[&str]| Addons::Named(names.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(site.addons, names(&["metrics-server", "nfd"]));
    assert_eq!(parse_site("addons: []").unwrap().addons, names(&[]));
    assert_eq!(parse_site("addons:").unwrap().addons, Addons::Usual);
    assert_eq!(
        problems("addons:\n- nfd\n- nfd\n- ../a\n"),
        [
            "line 3, column 3: `nfd` is listed twice",
            "line 4, column 3: `../a` is no addon; it is the name of a folder in /usr/share/firstlight/addons on the box, e.g. metrics-server",
        ]
    );
    for cluster in ["none", "manual"] {
        let said = problems(&format!("cluster: {cluster}\naddons: [nfd]\n"));
        assert!(said[0].contains("has no cluster"), "{said:?}");
    }
}

#[test]
fn packages_are_names_of_debian_packages() {
    let site = parse_site("packages: [htop, libstdc++6, 7zip]").unwrap();
    assert_eq!(site.packages, ["htop", "libstdc++6", "7zip"]);
    assert_eq!(
        problems("packages:\n- htop\n- htop\n- htop=3.4\n- htop-\n- -oX=1\n"),
        [
            "line 3, column 3: `htop` is listed twice",
            "line 4, column 3: `htop=3.4` is no name of a Debian package; it is written like htop, without a version",
            "line 5, column 3: `htop-` is no name of a Debian package; it is written like htop, without a version",
            "line 6, column 3: `-oX=1` is no name of a Debian package; it is written like htop, without a version",
        ]
    );
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let text = "nmae: lab\nprovisioning:\n  interfce: auto\n  address: 172.22.0.1\ninstall: blnk\nsshKeys:\n  - hello\nhosts:\n  - name: n1\n  - mac: 52:54:00:12:34\n";
    assert_eq!(
        problems(text),
        [
            "line 1, column 1: unknown key `nmae`; did you mean `name`?",
            "line 3, column 3: unknown key `interfce`; did you mean `interface`?",
            "line 4, column 12: `172.22.0.1` is not an IPv4 address with a prefix length; write it like 172.22.0.1/24",
            "line 5, column 10: `blnk` is no install policy; use blank (only servers whose disks are all blank), wipe (whatever is on them) or never",
            "line 7, column 5: not an SSH public key (it needs a type and a base64 part); paste the line of your id_ed25519.pub here",
            "line 9, column 5: a host needs `mac`, the address of the NIC that it boots from",
            "line 10, column 10: `52:54:00:12:34` is not a MAC address; write it like 52:54:00:12:34:56",
        ]
    );
}

#[test]
fn a_duplicate_names_both_entries() {
    let text = "hosts:\n- mac: 52:54:00:12:34:56\n  name: n1\n  address: 172.22.0.21\n- mac: 52-54-00-12-34-56\n  name: n1\n  address: 172.22.0.21\n";
    assert_eq!(
        problems(text),
        [
            "line 5, column 8: the hosts at line 2 and line 5 have the same MAC 52:54:00:12:34:56; change or remove one of them",
            "line 6, column 9: the hosts at line 3 and line 6 have the same name n1; change or remove one of them",
            "line 7, column 12: the hosts at line 4 and line 7 have the same address 172.22.0.21; change or remove one of them",
        ]
    );
    assert_eq!(
        problems("name: a\nname: b\n"),
        ["line 2, column 1: `name` is given twice, at line 1 and here; remove one"]
    );
}

#[test]
fn ranges_and_addresses_must_fit_the_network() {
    for (text, part) in [
        (
            "provisioning: {range: 172.23.0.5-172.23.0.9}",
            "is not inside the network of 172.22.0.1/24, which has 172.22.0.1-172.22.0.254",
        ),
        (
            "provisioning: {range: 172.22.0.1-172.22.0.9}",
            "holds the box's own address 172.22.0.1",
        ),
        (
            "provisioning: {range: 172.22.0.9-172.22.0.3}",
            "did you mean 172.22.0.3-172.22.0.9?",
        ),
        (
            "provisioning: {range: 172.22.0.250-172.22.0.255}",
            "is not inside the network",
        ),
        (
            "provisioning: {address: 10.0.0.1/8, range: 10.1.0.0-10.2.0.0}",
            "more than 65536 addresses",
        ),
        (
            "provisioning: {address: 172.22.0.0/24}",
            "is the network address",
        ),
        (
            "provisioning: {address: 172.22.0.255/24}",
            "is the broadcast address",
        ),
        (
            "provisioning: {address: 172.22.0.1/31}",
            "a prefix length of 31 is not possible",
        ),
        (
            "provisioning: {address: 100.64.1.1/24}",
            "overlaps 100.64.0.0/22",
        ),
        (
            "provisioning: {address: 127.0.0.1/8}",
            "cannot be the address of a server",
        ),
        ("provisioning: {interface: box0}", "is internal to the box"),
        ("provisioning: {interface: 'a b'}", "cannot be an interface"),
        (
            "hosts: [{mac: '52:54:00:12:34:56', address: 172.23.0.9}]",
            "is not a host address in the network of 172.22.0.1/24",
        ),
        (
            "hosts: [{mac: '52:54:00:12:34:56', address: 172.22.0.1}]",
            "is the box's own address",
        ),
        (
            "hosts: [{mac: '01:54:00:12:34:56'}]",
            "is a group address or zero",
        ),
        (
            "hosts: {mac: '52:54:00:12:34:56'}",
            "`hosts` is a list: start each entry with `- `",
        ),
        (
            "hosts: [{mac: '52:54:00:12:34:56', rootDisk: {}}]",
            "`rootDisk` says nothing",
        ),
        (
            "hosts: [{mac: '52:54:00:12:34:56', rootDisk: {wnn: a}}]",
            "unknown key `wnn`; did you mean `wwn`?",
        ),
        (
            "hosts: [{mac: '52:54:00:12:34:56', clean: most}]",
            "`most` cleans nothing",
        ),
        (
            "hosts: [n1]",
            "a host consists of keys (mac, name, address, addresses, install, role, cluster, rootDisk, clean, links, defaultRoute), found a single value",
        ),
        (
            "name: [lab]",
            "a single value is expected here, found a list",
        ),
        ("name: Lab_1", "cannot be a host name"),
        ("just text", "`site.yaml` consists of keys"),
    ] {
        let found = problems(text);
        assert!(
            found.len() == 1 && found[0].contains(part),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn a_wrong_address_does_not_accuse_the_range_too() {
    assert_eq!(
        problems("provisioning: {address: nonsense, range: 10.0.0.5-10.0.0.9}").len(),
        1
    );
}

#[test]
fn the_derived_range_never_holds_the_box() {
    for prefix in 8..=30 {
        for offset in [1, 2, 100, 101, 180, 249, 250, 251, 253] {
            let size = 1u32 << (32 - prefix);
            let base = u32::from(Ipv4Addr::new(10, 0, 0, 0));
            let Ok(net) = Subnet::new(
                Ipv4Addr::from_bits(base + offset % size),
                u8::try_from(prefix).unwrap(),
            ) else {
                continue;
            };
            let range = AddressRange::derived_from(net);
            assert!(range.first() <= range.last(), "{net}: {range}");
            assert!(!range.contains(net.address()), "{net}: {range}");
            assert!(
                net.has_host(range.first()) && net.has_host(range.last()),
                "{net}: {range}"
            );
        }
    }
}

#[test]
fn broken_yaml_says_where() {
    for (text, line) in [
        ("a: [1,\n", 2),
        ("name: lab\n\tinstall: never\n", 2),
        ("name: \"x\n", 2),
        ("a: b: c\n", 1),
    ] {
        let found = parse_site(text).unwrap_err().0;
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert!(
            found[0].message.starts_with("not valid YAML") && found[0].line <= line,
            "{text:?}: {found:?}"
        );
    }
    assert!(problems("a: &x 1\nb: *x\n")[0].contains("anchor"));
    assert!(problems("name: !!str lab\n")[0].contains("tag"));
    assert!(problems("name: a\n---\nname: b\n")[0].starts_with("line 2"));
    assert!(
        problems(&format!("{}x{}", "[".repeat(50), "]".repeat(50)))[0]
            .contains("nested too deeply")
    );
    assert!(!problems(&"[".repeat(100_000)).is_empty());
    let utf16 = parse_site(b"name: \xff\xfe").unwrap_err().0;
    assert_eq!((utf16[0].line, utf16[0].column), (1, 7));
}

#[test]
fn ssh_keys_are_checked_inside_and_out() {
    assert_eq!(SshKey::parse(&format!("  {KEY} \t")).unwrap().as_str(), KEY);
    let cut = &KEY[..60];
    for (text, part) in [
        (cut, "cut off"),
        (&KEY.replace("ssh-ed25519 ", "ssh-rsa "), "of another type"),
        (
            &KEY.replace("ssh-ed25519 ", "ssh-dss "),
            "unknown type `ssh-dss`",
        ),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "this is a private key",
        ),
        (&format!("{KEY}\n{KEY}"), "more than one line"),
    ] {
        let error = SshKey::parse(text).unwrap_err().0;
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn the_schema_has_the_keys_of_the_parser() {
    let schema: serde_json::Value = serde_json::from_str(&schema::site_schema()).unwrap();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<_> = value["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        keys.sort();
        keys
    };
    let sorted = |known: &[&str]| {
        let mut known: Vec<_> = known.iter().map(ToString::to_string).collect();
        known.sort();
        known
    };
    assert_eq!(keys(&schema), sorted(schema::SITE_KEYS));
    assert_eq!(
        keys(&schema["$defs"]["ProvisioningSpec"]),
        sorted(schema::PROVISIONING_KEYS)
    );
    assert_eq!(
        keys(&schema["$defs"]["HostSpec"]),
        sorted(schema::HOST_KEYS)
    );
    assert_eq!(
        keys(&schema["$defs"]["ClusterSpec"]),
        sorted(schema::CLUSTER_KEYS)
    );
    for (of, known) in [
        ("RelayedSpec", schema::RELAYED_KEYS),
        ("NetworkSpec", schema::NETWORK_KEYS),
        ("RouteSpec", schema::ROUTE_KEYS),
        ("LinkSpec", schema::LINK_KEYS),
        ("RuleSpec", schema::RULE_KEYS),
        ("MatchSpec", schema::MATCH_KEYS),
        ("RootDiskSpec", schema::ROOT_DISK_KEYS),
        ("RuleBmcSpec", schema::RULE_BMC_KEYS),
        ("OperatorSpec", schema::OPERATOR_KEYS),
        ("BoxSpec", schema::BOX_KEYS),
    ] {
        assert_eq!(keys(&schema["$defs"][of]), sorted(known), "{of}");
    }
}

/// `UPDATE_GOLDEN=1 cargo test -p firstlight-api` renews the file.
#[test]
fn the_published_schema_is_current() {
    let path = "../../docs/site.schema.json";
    #[allow(clippy::disallowed_methods, reason = "tests may touch files")]
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, schema::site_schema()).unwrap();
    }
    #[allow(clippy::disallowed_methods, reason = "tests may touch files")]
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        published,
        schema::site_schema(),
        "renew it: UPDATE_GOLDEN=1 cargo test -p firstlight-api"
    );
}

proptest::proptest! {
    /// A stick may hold anything: the parser answers, with places inside the text.
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = parse_site(&text);
    }

    #[test]
    fn a_damaged_file_is_explained_or_read(at in 0_usize..400, byte in 0_u8.., cut in 0_usize..400) {
        let text = format!(
            "name: lab\nprovisioning:\n  interface: auto\n  address: 10.0.0.1/16\n  range: 10.0.1.0-10.0.2.255\ninstall: never\n\
             sshKeys: ['{KEY}']\nhosts:\n- mac: 52:54:00:12:34:56\n  name: n1\n  address: 10.0.0.21\n"
        );
        let mut bytes = text.into_bytes();
        if let Some(slot) = bytes.get_mut(at) {
            *slot = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Err(SiteProblems(problems)) = parse_site(&bytes) {
            proptest::prop_assert!(!problems.is_empty());
            proptest::prop_assert!(problems.iter().all(|problem| problem.line > 0 && problem.column > 0 && !problem.message.is_empty()));
        }
    }

    #[test]
    fn any_text_is_one_line_of_a_key_or_refused(
        text in ".{0,60}", comment in " ?\\PC{0,20}", at in 0_usize..80, letter in proptest::char::any(), cut in 0_usize..80,
    ) {
        let changed: String = KEY.chars().enumerate().map(|(index, old)| if index == at { letter } else { old }).collect();
        let cut = KEY.chars().take(cut).collect();
        for text in [text, format!("{KEY}{comment}"), changed, cut] {
            if let Ok(key) = SshKey::parse(&text) {
                proptest::prop_assert!(!key.as_str().contains(['\n', '\r']));
                proptest::prop_assert_eq!(SshKey::parse(key.as_str()), Ok(key));
            }
        }
    }
}

#[test]
fn what_measured_boot_has_to_show_is_one_of_three_words() {
    for (word, measured) in [
        ("compare", MeasuredBoot::Compare),
        ("required", MeasuredBoot::Required),
        ("ignore", MeasuredBoot::Ignore),
    ] {
        let site = parse_site(format!("measuredBoot: {word}\n")).unwrap();
        assert_eq!(site.measured_boot, measured);
    }
    let problem = parse_site("measuredBoot: on\n").unwrap_err().to_string();
    assert!(problem.contains("use compare (a server"), "{problem}");
}

#[test]
fn who_may_join_is_one_of_three_words() {
    for (word, join) in [
        ("open", JoinPolicy::Open),
        ("approve", JoinPolicy::Approve),
        ("named", JoinPolicy::Named),
    ] {
        let site = parse_site(format!("join: {word}\n")).unwrap();
        assert_eq!(site.join, join);
    }
    let problem = parse_site("join: aprove\n").unwrap_err().to_string();
    assert!(problem.contains("approve (those whose code"), "{problem}");
}
