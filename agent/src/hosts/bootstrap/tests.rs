#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[expect(clippy::unnecessary_wraps, reason = "reads better where it is used")]
fn secret(key: &str, value: &str) -> Option<Secret> {
    Some(BTreeMap::from([(
        key.to_owned(),
        value.as_bytes().to_vec(),
    )]))
}

fn of(secrets: &Secrets) -> Result<BootstrapData, Problem> {
    let subject = Subject {
        name: "n1",
        mac: "52:54:00:00:00:01".parse().unwrap(),
        object: None,
        ssh_keys: &[],
        box_key: None,
        host_key: None,
    };
    data(&subject, secrets)
}

#[test]
fn secrets_fill_what_they_name_and_the_site_the_rest() {
    let plain = of(&Secrets::default()).unwrap();
    assert!(plain.user_data.starts_with("#cloud-config"));
    assert_eq!(plain.meta_data["metal3-name"], "n1");
    assert_eq!(plain.network_data["networks"][0]["type"], "ipv4_dhcp");
    let own = of(&Secrets {
        user: secret("value", "#cloud-config\nruncmd: []\n"),
        meta: secret(
            "metaData",
            "providerid: default/n1/m\nlocal-hostname: other\n",
        ),
        network: secret("networkData", "{\"links\": []}"),
    })
    .unwrap();
    assert_eq!(own.user_data, "#cloud-config\nruncmd: []\n");
    assert_eq!(own.meta_data["providerid"], "default/n1/m");
    assert_eq!(own.meta_data["local-hostname"], "other");
    assert_eq!(own.network_data, json!({"links": []}));
    assert!(
        !format!("{own:?}").contains("runcmd"),
        "it is never printed"
    );
}

#[test]
fn a_secret_that_holds_something_else_is_told_without_its_content() {
    for secrets in [
        Secrets {
            user: secret("other", "hunter2"),
            ..Secrets::default()
        },
        Secrets {
            meta: secret("value", "hunter2"),
            ..Secrets::default()
        },
        Secrets {
            user: Some(BTreeMap::from([("value".into(), vec![0xff])])),
            ..Secrets::default()
        },
    ] {
        let problem = of(&secrets).unwrap_err();
        assert!(
            !problem.what.contains("hunter2") && !problem.next.is_empty(),
            "{problem:?}"
        );
    }
}

#[test]
fn a_token_is_256_bits_and_only_its_digest_is_kept() {
    let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
    assert_eq!(one.reveal().len(), 64);
    assert_ne!(one, two);
    let deployment = Deployment {
        token: Some(one.hash()),
        ..Deployment::default()
    };
    assert!(fits(&deployment, &one, None) && !fits(&deployment, &two, None));
    assert!(!fits(
        &Deployment::default(),
        &Token::of(String::new()),
        None
    ));
}

#[test]
fn who_stole_a_token_has_nothing_without_the_key_of_the_ramdisk_that_got_the_order() {
    let token = Token::random().unwrap();
    let (its, other) = (PublicKey::new([1; 32]), PublicKey::new([2; 32]));
    let deployment = Deployment {
        token: Some(token.hash()),
        key: Some(its.to_string()),
        ..Deployment::default()
    };
    assert!(fits(&deployment, &token, Some(its)));
    assert!(!fits(&deployment, &token, Some(other)));
    assert!(!fits(&deployment, &token, None));
}

#[test]
fn the_box_has_a_user_of_its_own_and_is_nobody_elses() {
    let key = SshKey::parse(
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0iVdvSbJ4m7y7C5jzUVzQ9c0GvYqFo0x9r6b5mN3pZ firstlight-box",
    )
    .unwrap();
    let host_key = HostKey {
        private: "hunter2".into(),
        public: "ssh-ed25519 A".into(),
    };
    let subject = Subject {
        name: "n1",
        mac: "52:54:00:00:00:01".parse().unwrap(),
        object: None,
        ssh_keys: &[],
        box_key: Some(&key),
        host_key: Some(host_key.clone()),
    };
    let given = data(&subject, &Secrets::default()).unwrap();
    assert_eq!(given.meta_data["firstlight_access"]["key"], key.as_str());
    assert_eq!(given.meta_data["box_ssh_key"], key.as_str());
    assert_eq!(given.meta_data["public-keys"], json!({}));
    assert!(!given.user_data.contains(key.as_str()));
    assert!(!given.meta_data.to_string().contains("hunter2"));
    assert_eq!(given.host_key, Some(host_key));
    assert!(!format!("{given:?}{subject:?}").contains("hunter2"));
}

proptest! {
    #[test]
    fn any_secret_is_bootstrap_data_or_told_without_its_content(
        key in "value|metaData|networkData|userData|other",
        text in "[a-zA-Z0-9]{12}|([a-z-]{1,8}: ?[\\[{&*!|>\"'a-z0-9]{0,8}\n){0,6}|\\{.{0,40}\\}",
        noise in prop::option::of(prop::collection::vec(any::<u8>(), 12..40)),
    ) {
        let content = noise.unwrap_or(text.into_bytes());
        let secret = || Some(BTreeMap::from([(key.clone(), content.clone())]));
        let shown = String::from_utf8_lossy(&content).into_owned();
        let some = |meta, network, user| Secrets { user, meta, network };
        for secrets in [some(secret(), None, None), some(None, secret(), None), some(None, None, secret())] {
            match of(&secrets) {
                Ok(data) => prop_assert!(data.meta_data.is_object()),
                Err(problem) => {
                    let sentence = format!("{} {}", problem.what, problem.next);
                    prop_assert!(sentence.len() < 300, "{sentence}");
                    prop_assert!(shown.trim().len() < 12 || !sentence.contains(shown.trim()), "{sentence}");
                }
            }
        }
    }
}
