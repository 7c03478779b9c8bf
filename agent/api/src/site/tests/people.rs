//! `operators`, `logHost` and `box`.

use super::*;
use crate::people::Role;

const HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQxMjM$Sd8fM3Hr6aFy1x0Qq3eTfQm5o8mUQ7c1yXK5b3d0aXc";

#[test]
fn people_have_a_name_a_role_and_a_hash() {
    let operator = |name: &str, role: &str, hash: &str| {
        format!("- {{name: {name}, role: {role}, password: \"{hash}\"}}\n")
    };
    let good = operator("ada", "admin", HASH) + &operator("ben", "viewer", HASH);
    let site = parse_site(format!("operators:\n{good}")).unwrap();
    let found: Vec<_> = site
        .operators
        .iter()
        .map(|one| (one.name.as_str(), one.role, one.password.as_str()))
        .collect();
    assert_eq!(
        found,
        [("ada", Role::Admin, HASH), ("ben", Role::Viewer, HASH)]
    );

    let bad = [
        operator("Ada", "admin", HASH),
        operator("ada", "root", HASH),
        operator("ada", "admin", "hunter2"),
        "- {name: ada}\n".to_owned(),
    ];
    let said = problems(&format!("operators:\n{}", bad.concat()));
    let expected = [
        "line 2, column 10: \"Ada\" is no name of a person",
        "line 3, column 21: `root` is no role; use viewer",
        "line 4, column 38: this is no hash of a password",
        "line 5, column 3: an operator has a `role`",
        "line 5, column 3: an operator has a `password`",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said}");
        assert!(!said.contains("hunter2"), "a secret in a sentence");
    }
    let twice = problems(&format!(
        "operators:\n{good}{}",
        operator("ada", "viewer", HASH)
    ));
    assert_eq!(twice, ["line 4, column 3: `ada` is listed twice"]);
}

#[test]
fn a_log_host_is_one_machine_and_pods_of_people_are_a_word() {
    let site = |text: &str| parse_site(text).unwrap();
    let host = |text: &str| site(text).log_host.map(|host| host.to_string());
    assert_eq!(host("logHost: 10.20.0.9"), Some("10.20.0.9:514".to_owned()));
    assert_eq!(
        host("logHost: 10.20.0.9:6514"),
        Some("10.20.0.9:6514".to_owned())
    );
    assert_eq!(host("box: {workloads: true}"), None);
    assert_eq!(site("box: {seal: none}").box_seal, RootOfTrust::None);
    assert_eq!(
        problems("box: {seal: luks}"),
        [
            "line 1, column 13: `luks` keeps no key of the state partition; use tpm (the machine's TPM 2, where it has one) or none (whoever has the stick can read it)"
        ]
    );
    assert!(site("box: {workloads: true}").box_workloads && !site("box: {}").box_workloads);
    for bad in [
        "log.example",
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "10.0.0.1:0",
        "255.255.255.255",
    ] {
        let said = problems(&format!("logHost: {bad}"));
        assert!(said[0].contains("is no log host"), "{said:?}");
    }
    assert_eq!(
        problems("box: {workloads: maybe, workload: true}"),
        [
            "line 1, column 18: `maybe` is neither true nor false",
            "line 1, column 25: unknown key `workload`; did you mean `workloads`?"
        ]
    );
}
