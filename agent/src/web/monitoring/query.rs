//! What a person seeks in the logs, as `LogsQL`, and the lines that come back.

use std::fmt::Write as _;

use firstlight_api::{bounded, logs::STEPS};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Of words.
const LONGEST: usize = 300;
/// Of lines on the page, and at most of those that a program gets.
pub const SHOWN: usize = 300;
const MOST: usize = 5000;
/// Of a server.
const MOST_STARTS: usize = 20;
/// To choose from, on the page.
pub const HOURS: [u32; 5] = [1, 6, 24, 168, 720];

/// Which lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// All of them are in a line, or in the name of its host or unit.
    pub words: String,
    /// One of [`STEPS`].
    pub step: Option<&'static str>,
    /// Of one start of a server.
    pub start: Option<String>,
    /// Not older.
    pub hours: u32,
    /// Newer than this time (RFC 3339).
    after: Option<String>,
    limit: usize,
}

impl Search {
    /// The error is a sentence.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut search = Self {
            words: String::new(),
            step: None,
            start: None,
            hours: 24,
            after: None,
            limit: SHOWN,
        };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "q" => search.words = value.trim().chars().take(LONGEST).collect(),
                "step" if value.is_empty() => {}
                "step" => search.step = Some(step(&value)?),
                "start" => search.start = is_start(&value).then(|| value.into_owned()),
                "hours" => {
                    let hours = value.parse().unwrap_or(search.hours);
                    search.hours = hours.clamp(1, 720);
                }
                "limit" => {
                    let limit = value.parse().unwrap_or(SHOWN);
                    search.limit = limit.clamp(1, MOST);
                }
                "after" => search.after = is_time(&value).then(|| value.into_owned()),
                _ => {}
            }
        }
        Ok(search)
    }

    /// What is posted. `mac_of` knows servers by their names.
    pub fn form(&self, mac_of: impl Fn(&str) -> Option<String>) -> String {
        let mut query = format!("_time:{}h", self.hours);
        if let Some(after) = &self.after {
            query = format!("_time:>{after}");
        }
        for word in self.words.split_whitespace() {
            let mac = mac_of(word);
            let word = quoted(word);
            let _ = write!(
                query,
                " (i({word}) or _HOSTNAME:={word} or _SYSTEMD_UNIT:i({word}) or SYSLOG_IDENTIFIER:i({word})"
            );
            // It is called so before it has a name.
            if let Some(mac) = mac {
                let _ = write!(query, " or i({})", quoted(&mac));
            }
            query.push(')');
        }
        if let Some(step) = self.step {
            let _ = write!(query, " {}", of_step(step));
        }
        if let Some(start) = &self.start {
            let _ = write!(query, " boot:={}", quoted(start));
        }
        let _ = write!(query, " | sort by (_time) desc limit {}", self.limit);
        form(&query)
    }
}

/// What is posted to learn of the starts of a server, the last first.
pub fn starts(server: &str) -> String {
    form(&format!(
        "_time:720h server:={} | stats by (system, boot) min(_time) first, max(_time) last, count() lines | sort by (first) desc limit {MOST_STARTS}",
        quoted(server)
    ))
}

fn form(query: &str) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("query", query).finish()
}

fn step(name: &str) -> Result<&'static str, String> {
    let known = STEPS.iter().find(|(step, _)| *step == name);
    known.map(|(step, _)| *step).ok_or_else(|| {
        let all: Vec<_> = STEPS.iter().map(|(step, _)| *step).collect();
        format!(
            "`{}` is no step; there are {}",
            bounded::text(name),
            all.join(", ")
        )
    })
}

fn of_step(step: &str) -> &'static str {
    match step {
        "box" => "!server:*",
        "ramdisk" => "system:=ramdisk",
        "system" => "system:=installed",
        "kernel" => "(_SYSTEMD_UNIT:=kernel or SYSLOG_IDENTIFIER:=kernel)",
        "cloud-init" => r#"_SYSTEMD_UNIT:~"^(cloud-|firstlight-bootstrap)""#,
        // Which of the two runs commands is the version's.
        "kubeadm" => r#"(_SYSTEMD_UNIT:~"^cloud-(final|init-main)" or i(kubeadm))"#,
        "kubelet" => r#"_SYSTEMD_UNIT:="kubelet.service""#,
        "containerd" => r#"_SYSTEMD_UNIT:="containerd.service""#,
        "apt" => r#"(_SYSTEMD_UNIT:~"apt|dpkg" or i(apt) or i(dpkg))"#,
        _ => "",
    }
}

/// As the kernel makes them.
fn is_start(text: &str) -> bool {
    (1..=36).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Digits and what stands between them.
fn is_time(text: &str) -> bool {
    text.len() <= 40
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"-+:.TZ".contains(&byte))
}

/// A string of `LogsQL`: a word is never an operator.
fn quoted(word: &str) -> String {
    let mut out = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out + "\""
}

/// One line of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Line {
    /// RFC 3339.
    pub time: String,
    /// Name of the machine.
    pub host: String,
    /// Of systemd, or what its program calls itself.
    pub unit: String,
    /// syslog's: 0 the worst, 7 for who looks for a mistake.
    pub priority: Option<u8>,
    /// Of a server: `ramdisk` or `installed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// Of a server: the start that it is of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start: String,
    pub message: String,
}

impl Line {
    /// Class of its colour; its words say the rest.
    pub fn tone(&self) -> &'static str {
        match self.priority {
            Some(0..=3) => "bad",
            Some(4) => "warm",
            _ => "",
        }
    }
}

/// As the journal calls them.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "_time", default)]
    time: String,
    #[serde(rename = "_msg", default)]
    message: String,
    #[serde(rename = "_HOSTNAME", default)]
    host: String,
    #[serde(rename = "_SYSTEMD_UNIT", default)]
    unit: String,
    #[serde(rename = "SYSLOG_IDENTIFIER", default)]
    program: String,
    #[serde(rename = "PRIORITY", default)]
    priority: String,
    #[serde(default)]
    system: String,
    #[serde(default)]
    boot: String,
}

/// One start of a server, as far as its log came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// `ramdisk` or `installed`.
    pub system: String,
    /// Random, of this start.
    #[serde(rename(deserialize = "boot"))]
    pub id: String,
    /// Time of its first line.
    pub first: String,
    pub last: String,
    /// How many there are.
    pub lines: String,
}

/// A line of JSON each; one that is none is left out.
pub fn read_starts(answer: &[u8]) -> Vec<Start> {
    values(answer).collect()
}

fn values<T: DeserializeOwned>(answer: &[u8]) -> impl Iterator<Item = T> {
    let lines = answer.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

/// A line of JSON each; one that is none is left out.
pub fn read(answer: &[u8]) -> Vec<Line> {
    values::<Entry>(answer)
        .map(|entry| Line {
            time: entry.time,
            host: entry.host,
            unit: if entry.unit.is_empty() {
                entry.program
            } else {
                entry.unit
            },
            priority: entry.priority.parse().ok(),
            system: entry.system,
            start: entry.boot,
            message: entry.message,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn asked(query: &str) -> String {
        let mac_of = |name: &str| (name == "n2").then(|| "52:54:00:00:00:02".to_owned());
        let form = Search::parse(query).unwrap().form(mac_of);
        let mut pairs = form_urlencoded::parse(form.as_bytes());
        pairs
            .next()
            .map(|(_, query)| query.into_owned())
            .unwrap_or_default()
    }

    #[test]
    fn words_are_sought_as_they_are() {
        assert_eq!(asked(""), "_time:24h | sort by (_time) desc limit 300");
        assert_eq!(
            asked("q=n1&hours=6"),
            "_time:6h (i(\"n1\") or _HOSTNAME:=\"n1\" or _SYSTEMD_UNIT:i(\"n1\") or SYSLOG_IDENTIFIER:i(\"n1\")) | sort by (_time) desc limit 300"
        );
        assert!(
            asked("q=%22)+or+*+|+delete").contains("i(\"\\\")\") or"),
            "no operator"
        );
        assert!(
            asked("after=2026-11-30T06:12:41.5Z&limit=9999999")
                .starts_with("_time:>2026-11-30T06:12:41.5Z |")
        );
        assert!(asked("after=1|delete&hours=0").starts_with("_time:1h |"));
        assert!(asked("q=n2").contains("or i(\"52:54:00:00:00:02\"))"));
        assert!(
            asked("q=n2&step=kubelet&start=0a9f")
                .contains(") _SYSTEMD_UNIT:=\"kubelet.service\" boot:=\"0a9f\" |")
        );
        assert!(!asked("step=&start=a\"b").contains("boot"));
        let refused = Search::parse("step=kubelt").unwrap_err();
        assert!(refused.starts_with("`kubelt` is no step; there are box, ramdisk,"));
        for (step, _) in STEPS {
            assert!(!of_step(step).is_empty(), "{step}");
        }
    }

    #[test]
    fn lines_of_the_journal_are_read_and_others_left_out() {
        let answer = br#"{"_time":"2026-11-30T06:12:41.5Z","_msg":"no disk","_HOSTNAME":"box","_SYSTEMD_UNIT":"etcd.service","PRIORITY":"3"}
nothing
{"_time":"2026-11-30T06:12:40Z","_msg":"<b>","SYSLOG_IDENTIFIER":"kernel"}
"#;
        let lines = read(answer);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0].unit.as_str(), lines[0].tone()),
            ("etcd.service", "bad")
        );
        assert_eq!((lines[1].unit.as_str(), lines[1].tone()), ("kernel", ""));
    }

    proptest! {
        #[test]
        fn whatever_is_sought_stays_inside_its_quotes(query in "([a-z]{0,5}=?[\\PC%+&]{0,20}&?){0,5}", word in "\\PC{0,40}") {
            let _ = Search::parse(&query).map(|search| search.form(|_| None));
            let quoted = quoted(&word);
            let inside = &quoted[1..quoted.len() - 1];
            let plain = inside.replace("\\\\", "").replace("\\\"", "");
            prop_assert!(!plain.contains(['"', '\\']), "{quoted}");
        }

        #[test]
        fn whatever_is_answered_is_lines(answer: Vec<u8>) {
            let _ = read(&answer);
            let _ = read_starts(&answer);
        }
    }
}
