//! `firstlight logs`: what the site's logs say, by words, and what comes; and which starts of a server have said something.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::{ArgPredicate, PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use firstlight_api::bounded;
use firstlight_api::logs::STEPS;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::box_client::BoxClient;
use crate::ssh::BoxArgs;

const AGAIN: Duration = Duration::from_secs(2);
/// So long may a line be on its way.
const LATE: time::Duration = time::Duration::seconds(60);
const NO_LINE: &str = "the box tells no line of a log";
const LOGS: &str = "/api/v1/logs";
const STARTS: &str = "/api/v1/logs/starts";

pub const SEEKING: &str = "Every word has to be in a line, or in the name of its machine, unit or program. Without words: everything, the last lines.

  firstlight logs n1                        what the server n1 says, and what the box says of it, within a day
  firstlight logs n1 --step kubelet         of its kubelet
  firstlight logs n1 --starts               when it was started, and what: its ramdisk, or the system on its disk
  firstlight logs n1 --start ID             of one of these starts
  firstlight logs etcd --hours 168          of etcd, within a week
  firstlight logs ironic n1 --follow        and what comes, until Ctrl-C
  firstlight logs n1 -o json                an object a line, for programs";

#[derive(Debug, Args)]
#[command(after_help = SEEKING)]
pub struct LogsArgs {
    /// What is sought
    words: Vec<String>,
    /// Of one part of a server's way
    #[arg(long, value_name = "STEP", value_parser = steps())]
    step: Option<String>,
    /// Of one start of a server, as `--starts` lists them
    #[arg(long, value_name = "ID")]
    start: Option<String>,
    /// List the starts of the server that is named
    #[arg(long, requires = "words", conflicts_with_all = ["step", "start", "follow"])]
    starts: bool,
    /// Not older than so many hours; of one start, all that are kept
    #[arg(long, value_name = "HOURS", default_value_t = 24, default_value_if("start", ArgPredicate::IsPresent, "720"), value_parser = clap::value_parser!(u32).range(1..=720))]
    hours: u32,
    /// The last so many lines
    #[arg(long, value_name = "LINES", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=5000))]
    limit: u32,
    /// Go on with what comes
    #[arg(short, long)]
    follow: bool,
    /// For people, or an object a line
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    the_box: BoxArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn steps() -> PossibleValuesParser {
    let steps = STEPS.map(|(step, means)| PossibleValue::new(step).help(means));
    PossibleValuesParser::new(steps)
}

/// As the box tells it.
#[derive(Deserialize)]
struct Line {
    time: String,
    host: String,
    unit: String,
    message: String,
}

pub fn run(args: &LogsArgs) -> Result<String> {
    let mut the_box = BoxClient::new(&args.the_box)?;
    let words = args.words.join(" ");
    if args.starts {
        let reply = the_box.ask("GET", &path(STARTS, &[("q", &words)]), &[], &[])?;
        reply.check()?;
        return starts(&String::from_utf8_lossy(&reply.body), args.output);
    }
    let (hours, limit) = (args.hours.to_string(), args.limit.to_string());
    let of_server = [
        ("q", words.as_str()),
        ("step", args.step.as_deref().unwrap_or_default()),
        ("start", args.start.as_deref().unwrap_or_default()),
    ];
    let asked = |which: &[(&str, &str)]| path(LOGS, &[&of_server, which].concat());
    let mut path = asked(&[("hours", &hours), ("limit", &limit)]);
    let mut before = Before::default();
    loop {
        let reply = the_box.ask("GET", &path, &[], &[])?;
        reply.check()?;
        let told = String::from_utf8_lossy(&reply.body);
        let text = shown(&before.fresh(&told)?, args.output)?;
        io::stdout().write_all(text.as_bytes())?;
        if !args.follow {
            return Ok(String::new());
        }
        io::stdout().flush()?;
        if let Some(after) = before.after() {
            path = asked(&[("limit", "5000"), ("after", &after)]);
        }
        thread::sleep(AGAIN);
    }
}

/// What was told lately. Lines of servers are some seconds on their way, so that what comes may be older than what was shown.
#[derive(Debug, Default)]
struct Before {
    told: HashMap<String, OffsetDateTime>,
    newest: Option<OffsetDateTime>,
}

impl Before {
    /// Those that were not told before.
    fn fresh<'a>(&mut self, told: &'a str) -> Result<Vec<&'a str>> {
        let mut fresh = Vec::new();
        for json in told.lines() {
            let line: Line = serde_json::from_str(json).context(NO_LINE)?;
            let time = OffsetDateTime::parse(&line.time, &Rfc3339).context(NO_LINE)?;
            self.newest = self.newest.max(Some(time));
            if self.told.insert(json.to_owned(), time).is_none() {
                fresh.push(json);
            }
        }
        if let Some(oldest) = self.oldest() {
            self.told.retain(|_, time| *time >= oldest);
        }
        Ok(fresh)
    }

    fn oldest(&self) -> Option<OffsetDateTime> {
        self.newest?.checked_sub(LATE)
    }

    /// What is asked for next.
    fn after(&self) -> Option<String> {
        self.oldest()?.format(&Rfc3339).ok()
    }
}

fn path(of: &str, query: &[(&str, &str)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    format!("{of}?{}", form.extend_pairs(query).finish())
}

/// As the box tells it.
#[derive(Deserialize)]
struct Start {
    system: String,
    id: String,
    first: String,
    last: String,
    lines: String,
}

fn starts(told: &str, output: Output) -> Result<String> {
    let mut text = String::new();
    if output == Output::Text {
        let _ = writeln!(
            text,
            "{:<34} {:<10} {:>8}  FIRST LINE, LAST LINE",
            "ID", "WHAT", "LINES"
        );
    }
    for json in told.lines() {
        let start: Start = serde_json::from_str(json).context("the box tells no start")?;
        let line = match output {
            Output::Json => plain(json),
            Output::Text => {
                let Start {
                    system,
                    id,
                    first,
                    last,
                    lines,
                } = &start;
                bounded::sentence(&format!(
                    "{id:<34} {system:<10} {lines:>8}  {first}, {last}"
                ))
            }
        };
        let _ = writeln!(text, "{line}");
    }
    Ok(text)
}

fn shown(lines: &[&str], output: Output) -> Result<String> {
    let mut text = String::new();
    for json in lines {
        let line: Line = serde_json::from_str(json).context(NO_LINE)?;
        match output {
            Output::Json => text.push_str(&plain(json)),
            Output::Text => {
                let Line {
                    time,
                    host,
                    unit,
                    message,
                } = &line;
                let unit = unit.trim_end_matches(".service");
                // What machines write steers no terminal.
                let said = bounded::sentence(&format!("{time} {host} {unit}: {message}"));
                text.push_str(&said);
            }
        }
        text.push('\n');
    }
    Ok(text)
}

/// The same JSON, which steers no terminal either: what is left of such letters is inside strings.
fn plain(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter.is_control() {
            let _ = write!(plain, "\\u{:04x}", u32::from(letter));
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_told_is_one_line_each_or_refused(told in "\\PC{0,60}", message in ".{0,200}", host in ".{0,20}", time in "\\PC{0,30}") {
            let _ = shown(&[&told], Output::Text);
            let _ = Before::default().fresh(&told);
            let line = json!({"time": time, "host": host, "unit": "", "message": message}).to_string();
            let _ = Before::default().fresh(&line);
            for output in [Output::Text, Output::Json] {
                let text = shown(&[&line], output).unwrap();
                prop_assert_eq!(text.matches('\n').count(), 1);
                prop_assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
            }
        }
    }

    #[test]
    fn who_follows_sees_lines_that_come_late_and_none_twice() {
        let line = |time: &str, message: &str| {
            json!({"time": time, "host": "n1", "unit": "", "message": message}).to_string()
        };
        let (first, second) = (
            line("2026-11-30T06:12:40.5Z", "a"),
            line("2026-11-30T06:12:50Z", "b"),
        );
        let mut before = Before::default();
        let told = format!("{first}\n{second}\n");
        assert_eq!(before.fresh(&told).unwrap(), [&first, &second]);
        assert_eq!(before.after().unwrap(), "2026-11-30T06:11:50Z");
        let late = line("2026-11-30T06:12:45Z", "late");
        let told = format!("{first}\n{late}\n{second}\n");
        assert_eq!(before.fresh(&told).unwrap(), [&late]);
        let much_later = line("2026-11-30T07:00:00Z", "c");
        before.fresh(&much_later).unwrap();
        assert_eq!(before.told.len(), 1, "no more than it needs");
    }

    #[test]
    fn starts_are_a_table_or_for_programs() {
        let told = "{\"system\":\"ramdisk\",\"id\":\"0a9f\",\"first\":\"2026-11-30T06:12:40Z\",\"last\":\"2026-11-30T06:14:00Z\",\"lines\":\"812\"}\n";
        let text = starts(told, Output::Text).unwrap();
        let rows: Vec<_> = text
            .lines()
            .map(|row| row.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(
            rows[1],
            [
                "0a9f",
                "ramdisk",
                "812",
                "2026-11-30T06:12:40Z,",
                "2026-11-30T06:14:00Z"
            ]
        );
        assert_eq!(starts(told, Output::Json).unwrap(), told);
        assert!(starts("<html>", Output::Text).is_err());
    }

    #[test]
    fn lines_are_for_people_or_for_programs_and_steer_no_terminal() {
        let told = r#"{"time":"2026-11-30T06:12:40Z","host":"box","unit":"etcd.service","priority":3,"message":"slow \u001b[2J disk"}
{"time":"2026-11-30T06:12:41Z","host":"n1","unit":"kubelet.service","priority":null,"message":"ready"}
"#;
        let lines: Vec<_> = told.lines().collect();
        let text = shown(&lines, Output::Text).unwrap();
        let rows: Vec<_> = text.lines().collect();
        assert_eq!(rows[1], "2026-11-30T06:12:41Z n1 kubelet: ready");
        assert!(
            rows[0].starts_with("2026-11-30T06:12:40Z box etcd: slow ") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert_eq!(shown(&lines, Output::Json).unwrap(), told);
        assert!(shown(&["<html>"], Output::Json).is_err());
    }
}
