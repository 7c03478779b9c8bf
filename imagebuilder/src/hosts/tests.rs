#![allow(clippy::unwrap_used)]
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use clap::Parser as _;
use firstlight_api::status::{HostState, HostStatus, Problem, SiteStatus};

use super::approve::compared;
use super::*;

const CODE: &str = "7Q2M-XK4P-09AB-CDEF";

pub fn host(name: &str, number: u8, code: &str) -> HostStatus {
    HostStatus {
        name: name.to_owned(),
        namespace: "metal3".to_owned(),
        mac: format!("52:54:00:00:00:{number:02x}"),
        code: code.to_owned(),
        ..HostStatus::default()
    }
}

fn rack() -> Vec<HostStatus> {
    vec![
        host("rack1-a", 1, CODE),
        host("rack1-b", 2, "0000-0000-0000-0000"),
        host("quiet", 3, ""),
    ]
}

fn said(server: &str, code: &str) -> ApproveArgs {
    ApproveArgs {
        server: server.to_owned(),
        code: code.to_owned(),
    }
}

fn refused(server: &str, code: &str) -> String {
    compared(&rack(), &said(server, code))
        .unwrap_err()
        .downcast::<UsageError>()
        .unwrap()
        .0
}

#[test]
fn a_server_is_approved_by_the_code_on_its_screen_however_both_are_typed() {
    let rack = rack();
    for (server, code) in [
        ("rack1-a", CODE),
        ("RACK1-A", "7q2mxk4po9abcdef"),
        ("52:54:00:00:00:01", "7Q2M XK4P 09AB CDEF"),
        ("52-54-00-00-00-01", CODE),
    ] {
        let meant = compared(&rack, &said(server, code)).unwrap();
        assert_eq!(
            (meant.0.name.as_str(), meant.1),
            ("rack1-a", CODE),
            "{server} {code}"
        );
    }
}

#[test]
fn a_server_with_another_tpm_is_approved_by_the_code_that_the_box_does_not_believe() {
    let other = "1111-2222-3333-4444";
    let mut rack = rack();
    for (server, believed) in [("rack1-a", true), ("quiet", false)] {
        let host = rack.iter_mut().find(|host| host.name == server).unwrap();
        other.clone_into(&mut host.other_code);
        assert_eq!(compared(&rack, &said(server, other)).unwrap().1, other);
        let known = compared(&rack, &said(server, CODE));
        assert_eq!(known.is_ok(), believed, "{server}");
        assert!(compared(&rack, &said(server, "")).is_err());
    }
}

#[test]
fn a_wrong_code_no_code_and_a_name_that_is_none_are_refused_with_what_to_do() {
    let wrong = refused("rack1-a", "7Q2M-XK4P-09AB-CDEE");
    assert!(wrong.contains("another machine pretends"), "{wrong}");
    assert!(!wrong.contains(CODE), "it would be copied: {wrong}");
    for code in ["", "7Q2M-XK4P-09AB"] {
        assert!(refused("rack1-a", code).contains("nothing was approved"));
    }
    assert!(refused("quiet", "").contains("Start it from the network"));
    let several = refused("rack1", CODE);
    assert!(
        several.contains("rack1-a (52:54:00:00:00:01), rack1-b (52:54:00:00:00:02)"),
        "{several}"
    );
    let nearest = refused("rakc1-b", CODE);
    assert!(nearest.contains("nearest name is rack1-b"), "{nearest}");
}

/// Answers one request for the status.
fn page(hosts: Vec<HostStatus>) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let status = SiteStatus {
        hosts,
        ..SiteStatus::default()
    };
    let body = serde_json::to_string(&status).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        write!(
            peer,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        String::from_utf8(head).unwrap()
    });
    (address, answering)
}

fn call(arguments: &[&str], hosts: Vec<HostStatus>) -> Result<String> {
    let (address, answering) = page(hosts);
    let arguments = [&["firstlight", "hosts"], arguments, &["--box", &address]].concat();
    let said = crate::cli::Cli::try_parse_from(arguments).unwrap().run();
    assert!(
        answering
            .join()
            .unwrap()
            .starts_with("GET /api/v1/status HTTP/1.1\r\n")
    );
    said
}

#[test]
fn the_list_has_one_line_a_server() {
    let mut waits = host("rack1-a", 1, CODE);
    waits.problem = Some(Problem {
        what: "it waits\nrack1-b  lies".to_owned(),
        next: "compare".to_owned(),
    });
    let mut works = host("n2", 2, "");
    (works.state, works.step) = (HostState::Provisioning, "writing, 41 %".to_owned());
    assert_eq!(
        call(&["list"], vec![waits, works]).unwrap(),
        "NAME     MAC                STATE         CODE                 WHY\n\
         rack1-a  52:54:00:00:00:01  discovered    7Q2M-XK4P-09AB-CDEF  it waits rack1-b  lies; compare\n\
         n2       52:54:00:00:00:02  provisioning  -                    writing, 41 %\n"
    );
}

#[test]
fn an_open_port_is_no_way_to_write() {
    let approve = ["approve", "rack1-a", "--code", CODE];
    for command in [&approve[..], &["spare", "rack1-a"], &["forget", "quiet"]] {
        let refused = call(command, rack()).unwrap_err();
        assert!(refused.is::<UsageError>());
        assert!(refused.to_string().contains("needs a login"), "{refused}");
    }
}

#[test]
fn programs_read_the_same_values_as_the_page() {
    let mut mine = rack();
    mine[1].control.spare = true;
    let said = call(&["list", "-o", "json"], mine.clone()).unwrap();
    assert_eq!(
        serde_json::from_str::<Vec<HostStatus>>(&said).unwrap(),
        mine
    );
    let said = call(&["show", "rack1-b", "--output", "json"], mine.clone()).unwrap();
    assert_eq!(serde_json::from_str::<HostStatus>(&said).unwrap(), mine[1]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let verb = |name: &str| {
        let mut verbs = said["verbs"].as_array().unwrap().iter();
        verbs.find(|verb| verb["verb"] == name).unwrap().clone()
    };
    assert_eq!(verb("unspare"), json!({"verb": "unspare", "applies": true}));
    assert_eq!(verb("spare")["applies"], json!(false));
    assert!(
        verb("spare")["whyNot"]
            .as_str()
            .unwrap()
            .contains("already")
    );
}

#[test]
fn what_is_refused_is_a_wrong_use_with_the_reason_and_nothing_is_written() {
    let refused = |command: &[&str]| {
        let error = call(command, rack()).unwrap_err();
        error.downcast::<UsageError>().unwrap().0
    };
    for (command, word) in [
        (["retry", "rack1-a"].as_slice(), "no step of it has failed"),
        (&["power", "off", "quiet"], "no BMC"),
        (&["skip-inspection", "quiet"], "has not reported"),
        (&["unspare", "quiet"], "was not set aside"),
        (&["give-back", "quiet"], "nothing to give back"),
        (&["retry", "nobody"], "the nearest name"),
    ] {
        let why = refused(command);
        assert!(why.contains(word), "{command:?}: {why}");
    }
}
