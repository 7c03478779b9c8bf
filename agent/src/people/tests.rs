#![allow(clippy::unwrap_used)]
use std::net::Ipv4Addr;

use super::*;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 22, 0, 9));
const PASSWORD: &str = "four plain words here";

fn new(name: &str, role: Role) -> NewOperator {
    NewOperator {
        name: PersonName::parse(name).unwrap(),
        role,
        password: PASSWORD.to_owned(),
    }
}

fn name(text: &str) -> PersonName {
    PersonName::parse(text).unwrap()
}

async fn opened(dir: &std::path::Path, site: &SiteConfig) -> People {
    let people = People::new(dir.join("people"));
    assert_eq!(people.claim(), Claim::Unknown);
    people.open(site).await.unwrap();
    people
}

#[tokio::test]
async fn whoever_reads_the_console_is_the_first_and_only_one() {
    let dir = tempfile::tempdir().unwrap();
    let people = opened(dir.path(), &SiteConfig::default()).await;
    assert_eq!(people.claim(), Claim::Nobody);
    let code = people.code().borrow().clone().unwrap();
    let first = |code: &str| {
        let (people, code) = (people.clone(), code.to_owned());
        async move {
            people
                .make_first(PEER, &code, new("ada", Role::Viewer))
                .await
        }
    };
    assert!(matches!(first("AAAAA-22222").await, Err(Refusal::Unfit(_))));
    let session = first(&code.to_lowercase()).await.unwrap();
    assert_eq!(
        people.by_session(&session),
        Some(Who::Person(name("ada"), Role::Admin))
    );
    assert_eq!(people.claim(), Claim::Somebody);
    assert_eq!(*people.code().borrow(), None);
    assert!(matches!(first(&code).await, Err(Refusal::Conflict(_))));

    // It outlives a restart; sessions do not.
    let again = opened(dir.path(), &SiteConfig::default()).await;
    assert_eq!(again.claim(), Claim::Somebody);
    assert_eq!(again.by_session(&session), None);
    let session = again.log_in(PEER, "ada", PASSWORD).await.unwrap();
    again.log_out(&session);
    assert_eq!(again.by_session(&session), None);
    let kept = std::fs::read_to_string(dir.path().join("people").join(FILE)).unwrap();
    assert!(kept.contains("$argon2id$") && !kept.contains(PASSWORD) && !kept.contains(&code));
}

#[tokio::test]
async fn wrong_codes_change_the_code() {
    let dir = tempfile::tempdir().unwrap();
    let people = opened(dir.path(), &SiteConfig::default()).await;
    let code = people.code().borrow().clone();
    for last in 0..10 {
        let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        assert_eq!(*people.code().borrow(), code);
        let new = new(&format!("p{last}"), Role::Admin);
        assert!(people.make_first(peer, "AAAAA-22222", new).await.is_err());
    }
    assert_ne!(*people.code().borrow(), code);
}

#[tokio::test]
async fn roles_change_at_once_and_the_last_admin_stays() {
    let dir = tempfile::tempdir().unwrap();
    let people = opened(dir.path(), &SiteConfig::default()).await;
    for (who, role) in [("ada", Role::Admin), ("ben", Role::Operator)] {
        people.add(&Who::OnBox, PEER, new(who, role)).await.unwrap();
    }
    let by = Who::Person(name("ada"), Role::Admin);
    let twice = people.add(&by, PEER, new("ben", Role::Viewer)).await;
    assert!(matches!(twice, Err(Refusal::Conflict(_))));
    let ben = people.log_in(PEER, "ben", PASSWORD).await.unwrap();
    let of = name("ben");
    let changed = people.change_operator(&by, PEER, &of, Some(Role::Viewer), None);
    changed.await.unwrap();
    assert_eq!(people.by_session(&ben), None, "logged out by the change");
    let ben = people.log_in(PEER, "ben", PASSWORD).await.unwrap();
    assert_eq!(people.by_session(&ben).unwrap().role(), Some(Role::Viewer));

    let ada = name("ada");
    assert!(people.remove(&by, PEER, &ada).await.is_err());
    let less = people.change_operator(&by, PEER, &ada, Some(Role::Operator), None);
    assert!(less.await.is_err());
    let other = people.change_operator(
        &by,
        PEER,
        &ada,
        None,
        Some("other words that fit".to_owned()),
    );
    other.await.unwrap();
    assert_eq!(
        people.log_in(PEER, "ada", PASSWORD).await,
        Err(Refusal::Wrong)
    );
    people.remove(&by, PEER, &name("ben")).await.unwrap();
    assert_eq!(people.by_session(&ben), None);
    let gone = people.remove(&by, PEER, &name("ben")).await;
    assert!(matches!(gone, Err(Refusal::Missing(_))));
    people.remove(&Who::OnBox, PEER, &ada).await.unwrap();
    assert_eq!(people.claim(), Claim::Nobody);
    assert!(people.code().borrow().is_some());

    let told = people.audit().await;
    let done: Vec<(&str, &str)> = told
        .iter()
        .filter(|line| line.outcome == DONE)
        .map(|line| (line.who.as_str(), line.what.as_str()))
        .collect();
    assert_eq!(
        done,
        [
            ("box", "add operator"),
            ("box", "add operator"),
            ("ben", "log in"),
            ("ada", "change operator"),
            ("ben", "log in"),
            ("ada", "change operator"),
            ("ada", "remove operator"),
            ("box", "remove operator"),
        ]
    );
}

#[tokio::test]
async fn who_guesses_waits_and_the_owner_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let people = opened(dir.path(), &SiteConfig::default()).await;
    people
        .add(&Who::OnBox, PEER, new("ada", Role::Admin))
        .await
        .unwrap();
    let thief = IpAddr::V4(Ipv4Addr::new(172, 22, 0, 66));
    for _ in 0..5 {
        assert_eq!(
            people.log_in(thief, "ada", "not the password").await,
            Err(Refusal::Wrong)
        );
    }
    let waits = people.log_in(thief, "ada", PASSWORD).await;
    assert!(matches!(waits, Err(Refusal::Wait(_))), "{waits:?}");
    people.log_in(PEER, "ada", PASSWORD).await.unwrap();
    for odd in ["", "../ada", "ada\0", &"a".repeat(5000)] {
        assert_eq!(
            people.log_in(PEER, odd, PASSWORD).await,
            Err(Refusal::Wrong)
        );
    }
}

#[tokio::test]
async fn a_token_is_shown_once_ends_and_can_be_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let people = opened(dir.path(), &SiteConfig::default()).await;
    let new = |days| NewToken {
        name: name("scraper"),
        role: Role::Viewer,
        days,
    };
    for days in [0, 367] {
        assert!(
            people
                .make_token(&Who::OnBox, PEER, new(days))
                .await
                .is_err()
        );
    }
    let made = people.make_token(&Who::OnBox, PEER, new(1)).await.unwrap();
    let twice = people.make_token(&Who::OnBox, PEER, new(1)).await;
    assert!(matches!(twice, Err(Refusal::Conflict(_))));
    let found = people.by_token(&made.token).unwrap();
    assert_eq!(found, Who::Token(name("scraper"), Role::Viewer));
    assert_eq!(people.by_token("firstlight_"), None);
    assert_eq!(people.claim(), Claim::Somebody);
    let file = dir.path().join("people").join(FILE);
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(!kept.contains(&made.token));
    people.state().record.as_mut().unwrap().tokens[0].ends = clock::wall_seconds();
    assert_eq!(people.by_token(&made.token), None, "it has ended");
    people
        .remove_token(&Who::OnBox, PEER, &name("scraper"))
        .await
        .unwrap();
    assert!(people.tokens().is_empty());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_lets_nobody_in_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("people").join(FILE);
    std::fs::create_dir(dir.path().join("people")).unwrap();
    for damaged in ["", "{\"operators\": [", "[]"] {
        std::fs::write(&file, damaged).unwrap();
        let people = People::new(dir.path().join("people"));
        assert!(people.open(&SiteConfig::default()).await.is_err());
        assert_eq!(people.claim(), Claim::Somebody);
        assert_eq!(*people.code().borrow(), None);
        let added = people.add(&Who::OnBox, PEER, new("ada", Role::Admin)).await;
        assert!(matches!(added, Err(Refusal::Broken(_))), "{added:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), damaged);
    }
}

#[tokio::test]
async fn people_of_the_site_are_changed_there_only() {
    let dir = tempfile::tempdir().unwrap();
    let site = SiteConfig {
        operators: vec![SiteOperator {
            name: name("ada"),
            role: Role::Admin,
            password: password::hash(PASSWORD).unwrap(),
        }],
        ..SiteConfig::default()
    };
    let people = opened(dir.path(), &site).await;
    assert_eq!(
        (people.claim(), people.code().borrow().clone()),
        (Claim::Somebody, None)
    );
    people.log_in(PEER, "ada", PASSWORD).await.unwrap();
    let refused = people.remove(&Who::OnBox, PEER, &name("ada")).await;
    assert!(refused.unwrap_err().to_string().contains("site.yaml"));
    assert!(
        people
            .add(&Who::OnBox, PEER, new("ada", Role::Viewer))
            .await
            .is_err()
    );
    assert_eq!(people.operators().len(), 1);
}
