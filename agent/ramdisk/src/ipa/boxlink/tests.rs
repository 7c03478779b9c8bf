#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use firstlight_api::report::LookupState;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Answers every request on loopback with the same bytes, until it is asked with `END`.
fn answering(bytes: Vec<u8>) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let thread = thread::spawn(move || {
        let mut bodies = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let Some(body) = request(&mut stream) else {
                return bodies;
            };
            bodies.push(body);
            // The client may have refused the answer already.
            let _ = stream.write_all(&bytes);
        }
    });
    (base, thread)
}

/// The body of a request; `None` of a connection that says nothing.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(body.to_owned());
            }
        }
        match stream.read(&mut piece).unwrap() {
            0 => return None,
            length => text.extend(&piece[..length]),
        }
    }
}

/// What a ramdisk makes of these bytes on the wire, and what it has posted.
fn asked(bytes: Vec<u8>) -> (Result<Directive, String>, Vec<String>) {
    let (base, server) = answering(bytes);
    let link = BoxLink::new(&base, Arc::default(), Key::new().unwrap());
    let report = Report {
        boot_mac: "52:54:00:00:00:01".into(),
        boot_id: "1".into(),
        address: "172.22.0.9".into(),
        inventory: json!({}),
        disks: vec![],
        lookup: LookupState::NotAsked,
        tpm: Tpm::default(),
        follows: Vec::new(),
        fresh: Fresh::default(),
    };
    let answer = link.post_report(report);
    drop(TcpStream::connect(base.strip_prefix("http://").unwrap()).unwrap());
    (answer, server.join().unwrap())
}

fn http(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

#[test]
fn a_post_of_another_session_is_sent_once_more_in_the_new_one() {
    let (answer, posts) = asked(http(r#"{"session": "ab", "action": "again"}"#));
    assert!(answer.unwrap_err().contains("is restarting"));
    let sessions = posts.iter().map(|post| {
        let post: Value = serde_json::from_str(post).unwrap();
        post["session"].as_str().unwrap().to_owned()
    });
    assert_eq!(sessions.collect::<Vec<_>>(), ["", "ab"]);
}

#[test]
fn a_session_that_no_box_would_take_back_is_not_kept() {
    let session = "a".repeat(70_000);
    let (answer, posts) = asked(http(&format!(
        r#"{{"session": "{session}", "action": "again"}}"#
    )));
    assert!(answer.unwrap_err().contains("nonsense"));
    assert_eq!(posts.len(), 1);
}

#[test]
fn progress_that_a_box_believes_after_a_report_only_asks_for_one() {
    for (status, wanted) in [("409 Conflict", true), ("401 Unauthorized", false)] {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        let (base, _) = answering(answer.into_bytes());
        let link = BoxLink::new(&base, Arc::default(), Key::new().unwrap());
        let (wants, asked) = mpsc::channel();
        let mac = "52:54:00:00:00:01".to_owned();
        let progress = ProgressLine::start(link, mac, "1".to_owned(), move || {
            wants.send(()).unwrap();
        });
        progress.tell(Phase::Writing { bytes: 1, total: 2 });
        progress.drain(Duration::from_secs(10));
        assert_eq!(asked.try_recv().is_ok(), wanted, "{status}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The wire is plain HTTP: whoever is on the segment may answer for the box.
    #[test]
    fn whatever_answers_for_the_box_is_a_directive_or_a_short_line(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "(again|lookup|wait|bootDisk|.{0,10})".prop_map(|action| {
                http(&json!({"session": "ab", "action": action, "seconds": 5, "reason": "x\u{1b}[2J"}).to_string())
            }),
            (".{0,8}", 0..5000_usize).prop_map(|(word, times)| {
                http(&json!({"session": "ab", "action": "wait", "seconds": u32::MAX, "reason": word.repeat(times)}).to_string())
            }),
            // Nothing that leads anywhere else.
            ("[^:/]{0,8}", 0..5000_usize).prop_map(|(word, times)| {
                format!("HTTP/1.1 302 Found\r\nlocation: x{}\r\n\r\n", word.repeat(times)).into_bytes()
            }),
            ("[0-9]{3}", ".{0,20}").prop_map(|(status, text)| {
                format!("HTTP/1.1 {status} {text}\r\ndate: {text}\r\n\r\n{text}").into_bytes()
            }),
        ],
    ) {
        let (answer, posts) = asked(bytes);
        prop_assert!((1..=2).contains(&posts.len()), "{}", posts.len());
        let (Ok(Directive::Wait { reason: sentence, .. }) | Err(sentence)) = answer else {
            return Ok(());
        };
        prop_assert!(sentence.chars().count() < 1200 && !sentence.contains(char::is_control), "{sentence}");
    }
}
