//! What a person seeks in the logs, as `LogsQL`, and the lines that come back.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Of words.
const LONGEST: usize = 300;
/// Of lines on the page, and at most of those that a program gets.
pub const SHOWN: usize = 300;
const MOST: usize = 5000;
/// To choose from, on the page.
pub const HOURS: [u32; 5] = [1, 6, 24, 168, 720];

/// Which lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// All of them are in a line, or in the name of its host or unit.
    pub words: String,
    /// Not older.
    pub hours: u32,
    /// Newer than this time (RFC 3339).
    after: Option<String>,
    limit: usize,
}

impl Search {
    pub fn of(query: &str) -> Self {
        let mut search = Self {
            words: String::new(),
            hours: 24,
            after: None,
            limit: SHOWN,
        };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "q" => search.words = value.trim().chars().take(LONGEST).collect(),
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
        search
    }

    /// What is posted.
    pub fn form(&self) -> String {
        let mut query = format!("_time:{}h", self.hours);
        if let Some(after) = &self.after {
            query = format!("_time:>{after}");
        }
        for word in self.words.split_whitespace() {
            let word = quoted(word);
            let _ = write!(
                query,
                " (i({word}) or _HOSTNAME:{word} or _SYSTEMD_UNIT:i({word}) or SYSLOG_IDENTIFIER:i({word}))"
            );
        }
        let _ = write!(query, " | sort by (_time) desc limit {}", self.limit);
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("query", &query).finish()
    }
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
}

/// A line of JSON each; one that is none is left out.
pub fn read(answer: &[u8]) -> Vec<Line> {
    let lines = answer.split(|byte| *byte == b'\n');
    let entries = lines.filter_map(|line| serde_json::from_slice::<Entry>(line).ok());
    entries
        .map(|entry| Line {
            time: entry.time,
            host: entry.host,
            unit: if entry.unit.is_empty() {
                entry.program
            } else {
                entry.unit
            },
            priority: entry.priority.parse().ok(),
            message: entry.message,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(query: &str) -> String {
        let form = Search::of(query).form();
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
            "_time:6h (i(\"n1\") or _HOSTNAME:\"n1\" or _SYSTEMD_UNIT:i(\"n1\") or SYSLOG_IDENTIFIER:i(\"n1\")) | sort by (_time) desc limit 300"
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
            let _ = Search::of(&query).form();
            let quoted = quoted(&word);
            let inside = &quoted[1..quoted.len() - 1];
            let plain = inside.replace("\\\\", "").replace("\\\"", "");
            prop_assert!(!plain.contains(['"', '\\']), "{quoted}");
        }

        #[test]
        fn whatever_is_answered_is_lines(answer: Vec<u8>) {
            let _ = read(&answer);
        }
    }
}
