//! The key `backup`.

use super::*;

const KEY: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
const HOST_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGH0dKq8pAb4W2Zl9iZ6b4iYb3mT0v0hHn7kZ6sQb1Xc";

#[test]
fn backups_are_for_somebody_and_go_somewhere() {
    let plan = |text: &str| parse_site(text).unwrap().backup.unwrap();
    let usual = plan(&format!("backup: {{recipients: [{KEY}]}}"));
    assert_eq!((usual.recipients.len(), usual.count), (1, 7));
    assert_eq!(usual.outside, None);
    let whole = plan(&format!(
        "backup:\n  recipients: [{KEY}]\n  count: 30\n  outside:\n    place: sftp://a@192.0.2.9/srv\n    hostKey: {HOST_KEY}\n"
    ));
    assert_eq!(whole.count, 30);
    let outside = whole.outside.unwrap();
    assert_eq!(outside.place.to_string(), "sftp://a@192.0.2.9/srv");
    assert_eq!(outside.host_key.as_str(), HOST_KEY);
    assert_eq!(parse_site("name: a").unwrap().backup, None);
}

#[test]
fn what_is_wrong_has_its_place_and_a_secret_is_not_repeated() {
    let told = |text: String, what: &str| {
        let said = problems(&text);
        assert!(
            said.len() == 1 && said[0].contains(what),
            "{text}: {said:?}"
        );
    };
    told("backup: {}".to_owned(), "`backup` has `recipients`");
    told(
        "backup: {recipients: []}".to_owned(),
        "`backup` has `recipients`",
    );
    told("backup: yes".to_owned(), "line 1, column 9");
    told(
        format!("backup: {{recipients: [{KEY}, {KEY}]}}"),
        "listed twice",
    );
    told(
        format!("backup: {{recipients: [{}x]}}", &KEY[..61]),
        "age-keygen",
    );
    told(
        format!("backup: {{recipients: [{KEY}], count: 0}}"),
        "1 to 60",
    );
    told(
        format!("backup: {{recipients: [{KEY}], outside: {{place: \"sftp://a@192.0.2.9/srv\"}}}}"),
        "`outside` has a `hostKey`",
    );
    told(
        format!("backup: {{recipients: [{KEY}], outside: {{place: nas, hostKey: {HOST_KEY}}}}}"),
        "is no place for files",
    );
    let secret = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
    let said = problems(&format!("backup: {{recipients: [{secret}]}}"));
    assert!(
        said[0].contains("secret half") && !said[0].contains("GFPYY"),
        "{said:?}"
    );
}
