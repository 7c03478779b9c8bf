#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn details(address: &str) -> BmcDetails {
    BmcDetails {
        address: address.to_owned(),
        credentials_name: "n1-bmc".to_owned(),
        disable_certificate_verification: false,
    }
}

fn secret(pairs: &[(&str, &str)]) -> Secret {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

fn told(address: &str) -> (&'static str, Value) {
    let secret = secret(&[("username", "admin"), ("password", "hunter2")]);
    let bmc = read(&details(address)).unwrap();
    match bmc.driver("n1-bmc", &secret, PowerOff::Allowed) {
        Ok(Driver::Bmc { name, info, .. }) => (name, info),
        other => panic!("{address}: {other:?}"),
    }
}

#[test]
fn each_form_of_an_address_is_told_to_ironic_as_metal3_tells_it() {
    let redfish = |address: &str, system: Option<&str>| {
        let mut info = json!({
            "redfish_address": address, "redfish_username": "admin", "redfish_password": "hunter2",
            "redfish_verify_ca": true,
        });
        if let Some(system) = system {
            info["redfish_system_id"] = json!(system);
        }
        ("redfish", info)
    };
    let ipmi = |address: &str, port: u16| {
        let info = json!({
            "ipmi_address": address, "ipmi_port": port, "ipmi_username": "admin", "ipmi_password": "hunter2",
        });
        ("ipmi", info)
    };
    let system = Some("/redfish/v1/Systems/1");
    for (address, expected) in [
        (
            "redfish://10.0.0.1/redfish/v1/Systems/1",
            redfish("https://10.0.0.1", system),
        ),
        ("redfish://10.0.0.1", redfish("https://10.0.0.1", None)),
        (
            "redfish+http://bmc:8000/redfish/v1/Systems/1/",
            redfish("http://bmc:8000", system),
        ),
        (
            "redfish+https://[fd00::1]:8443/redfish/v1/Systems/1",
            redfish("https://[fd00::1]:8443", system),
        ),
        (
            "redfish-virtualmedia+http://bmc/redfish/v1/Systems/1",
            redfish("http://bmc", system),
        ),
        (
            "redfish-virtualmedia+https://bmc:8443",
            redfish("https://bmc:8443", None),
        ),
        (
            "ilo5-virtualmedia://bmc/redfish/v1/Systems/1",
            redfish("https://bmc", system),
        ),
        ("ipmi://10.0.0.1", ipmi("10.0.0.1", 623)),
        ("ipmi://10.0.0.1:6230", ipmi("10.0.0.1", 6230)),
        ("10.0.0.1:6230", ipmi("10.0.0.1", 6230)),
        ("bmc.example.org", ipmi("bmc.example.org", 623)),
        ("ipmi://[fd00::1]:6230", ipmi("fd00::1", 6230)),
        ("libvirt://10.0.0.1:6230/", ipmi("10.0.0.1", 6230)),
    ] {
        assert_eq!(told(address), expected, "{address}");
    }
    let (_, info) = told("ipmi://10.0.0.1?privilegelevel=OPERATOR");
    assert_eq!(info["ipmi_priv_level"], "OPERATOR");
    let mut unchecked = details("redfish://10.0.0.1");
    unchecked.disable_certificate_verification = true;
    assert!(!read(&unchecked).unwrap().verify);
}

#[test]
fn who_starts_from_a_virtual_cd_says_so_in_its_scheme_and_has_a_uefi_firmware() {
    let start = |address: &str, boot_mode| {
        let spec = BareMetalHostSpec {
            bmc: Some(details(address)),
            boot_mode,
            ..BareMetalHostSpec::default()
        };
        of(&spec).map(|bmc| bmc.map(|bmc| bmc.start()).map_err(|problem| problem.what))
    };
    for (address, from) in [
        ("redfish-virtualmedia://10.0.0.1", Start::Cd),
        ("ilo5-virtualmedia+http://10.0.0.1", Start::Cd),
        ("redfish+http://10.0.0.1", Start::Network),
        ("10.0.0.1", Start::Network),
    ] {
        for mode in [None, Some(BootMode::Uefi), Some(BootMode::UefiSecureBoot)] {
            assert_eq!(start(address, mode), Some(Ok(from)), "{address}");
        }
        let legacy = start(address, Some(BootMode::Legacy)).unwrap();
        assert_eq!(legacy.is_err(), from == Start::Cd, "{legacy:?}");
    }
    assert_eq!(start("", None), None);
}

#[test]
fn ironic_goes_where_the_address_says_and_nowhere_by_a_name() {
    for (address, endpoint) in [
        (
            "redfish://10.0.0.1/redfish/v1/Systems/1",
            Some("10.0.0.1 . tcp . 443"),
        ),
        ("redfish+http://10.0.0.1", Some("10.0.0.1 . tcp . 80")),
        (
            "redfish-virtualmedia://10.0.0.1:8443",
            Some("10.0.0.1 . tcp . 8443"),
        ),
        ("10.0.0.1", Some("10.0.0.1 . udp . 623")),
        ("redfish://bmc.example.org", None),
        ("redfish://[fd00::1]", None),
        ("redfish+http://127.0.0.1:6443", None),
        ("redfish://100.64.0.1:6443", None),
        ("redfish://169.254.169.254", None),
    ] {
        let said = read(&details(address)).unwrap().endpoint();
        let said = said.map(|endpoint| endpoint.to_string());
        assert_eq!(said.as_deref(), endpoint, "{address}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_a_sentence() {
    for (address, why) in [
        (
            "idrac-virtualmedia+https://10.0.0.1/x",
            "orders of Dell's own",
        ),
        ("idrac://10.0.0.1/x", "speak Redfish, too"),
        ("redfish+ftp://10.0.0.1", "does not have"),
        ("ipmi+https://10.0.0.1", "does not have"),
        ("ilo4://10.0.0.1", "does not have"),
        (
            "redfish://admin:hunter2@10.0.0.1/x",
            "belongs into the Secret",
        ),
        ("redfish:///redfish/v1", "is no address"),
        ("ipmi://10.0.0.1:99999", "is no address"),
        ("ipmi://", "is no address"),
    ] {
        let said = read(&details(address)).unwrap_err().what;
        assert!(said.contains(why), "{address}: {said}");
    }
    let mut nameless = details("ipmi://10.0.0.1");
    nameless.credentials_name.clear();
    assert!(
        read(&nameless)
            .unwrap_err()
            .what
            .contains("credentialsName")
    );
    let bmc = read(&details("ipmi://10.0.0.1")).unwrap();
    for (held, why) in [
        (&[("username", "admin")][..], "has no `password`"),
        (&[("username", ""), ("password", "x")], "has no `username`"),
        (
            &[("username", "admin"), ("password", "hunter2\n")],
            "line break",
        ),
    ] {
        let said = bmc
            .driver("n1-bmc", &secret(held), PowerOff::Allowed)
            .unwrap_err();
        assert!(
            said.what.contains(why) && !said.what.contains("hunter2"),
            "{said:?}"
        );
    }
}

#[test]
fn what_ironic_says_is_explained_as_far_as_it_is_known() {
    for (error, what) in [
        (
            "HTTP GET https://x returned code 401. Base.1.0.GeneralError",
            "refuses the user",
        ),
        (
            "(Caused by SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]",
            "certificate",
        ),
        (
            "Failed to get power state. Error: IPMI call failed: power status.",
            "by IPMI",
        ),
        ("something else", "something else"),
        (
            "Could not attach device cdrom to node x: The attribute VirtualMedia/@odata.id is missing from the resource /redfish/v1/Managers/1",
            "has no virtual CD drive",
        ),
        (
            "Could not attach device cdrom to node x: No suitable virtual media device found for node x to mount image http://x",
            "has no virtual CD drive",
        ),
        (
            "Could not attach device cdrom to node x: HTTP POST https://x returned code 403. License required",
            "does not take the box's virtual CD: Could",
        ),
        (
            "Could not attach device cdrom to node x: HTTP GET https://x returned code 401.",
            "refuses the user",
        ),
        (
            "Could not detach device(s) ['cdrom'] from node x: busy",
            "does not give the virtual CD back",
        ),
    ] {
        assert!(explained(error).what.contains(what), "{error}");
    }
    let refused = "IPMI call failed: power status.";
    let heard = explained_of_heard(refused).what;
    assert!(
        heard.contains("answers by IPMI, but does not let"),
        "{heard}"
    );
    assert_eq!(
        explained_of_heard("something else"),
        explained("something else")
    );
    assert!(explained(&"x".repeat(2000)).what.len() < 600);
}

#[test]
fn whatever_ironic_is_told_changes_the_mark() {
    let one = details("ipmi://10.0.0.1");
    let other = details("ipmi://10.0.0.2");
    let allowed = |details, version| mark(details, PowerOff::Allowed, version);
    let marks = [
        allowed(&one, None),
        allowed(&one, Some("7")),
        allowed(&one, Some("8")),
        allowed(&other, Some("8")),
        mark(&one, PowerOff::Disabled, Some("7")),
    ];
    let different: std::collections::BTreeSet<_> = marks.iter().collect();
    assert_eq!(different.len(), marks.len());
    assert_eq!(allowed(&one, Some("7")), marks[1]);
}

proptest! {
    #[test]
    fn any_address_is_understood_or_refused(address in ".{0,40}|(redfish|ipmi)(\\+http)?://.{0,40}") {
        match read(&details(&address)) {
            Ok(bmc) => prop_assert!(!bmc.at.host().is_empty()),
            Err(problem) => prop_assert!(problem.what.chars().count() < 700),
        }
    }
}
