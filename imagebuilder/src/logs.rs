//! `firstlight logs`: what the site's logs say, by words, and what comes; and which starts of a server have said something.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use firstlight_api::bounded;
use firstlight_api::logs::STEPS;
use serde::Deserialize;

use crate::box_client::BoxClient;
use crate::ssh::BoxArgs;

const AGAIN: Duration = Duration::from_secs(2);
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
    /// Not older than so many hours
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=720))]
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
    loop {
        let reply = the_box.ask("GET", &path, &[], &[])?;
        reply.check()?;
        let told = String::from_utf8_lossy(&reply.body);
        let (text, last) = shown(&told, args.output)?;
        io::stdout().write_all(text.as_bytes())?;
        if !args.follow {
            return Ok(String::new());
        }
        io::stdout().flush()?;
        if let Some(last) = last {
            path = asked(&[("limit", "5000"), ("after", &last)]);
        }
        thread::sleep(AGAIN);
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

/// And the time of the last line.
fn shown(told: &str, output: Output) -> Result<(String, Option<String>)> {
    let (mut text, mut last) = (String::new(), None);
    for json in told.lines() {
        let line: Line = serde_json::from_str(json).context("the box tells no line of a log")?;
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
        last = Some(line.time);
    }
    Ok((text, last))
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
        fn whatever_is_told_is_one_line_each_or_refused(told in "\\PC{0,60}", message in ".{0,200}", host in ".{0,20}") {
            let _ = shown(&told, Output::Text);
            let line = json!({"time": "", "host": host, "unit": "", "message": message}).to_string();
            for output in [Output::Text, Output::Json] {
                let (text, _) = shown(&line, output).unwrap();
                prop_assert_eq!(text.matches('\n').count(), 1);
                prop_assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
            }
        }
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
        let (text, last) = shown(told, Output::Text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "2026-11-30T06:12:41Z n1 kubelet: ready");
        assert!(
            lines[0].starts_with("2026-11-30T06:12:40Z box etcd: slow ")
                && !text.contains('\u{1b}'),
            "{text}"
        );
        assert_eq!(last.unwrap(), "2026-11-30T06:12:41Z");
        assert_eq!(shown(told, Output::Json).unwrap().0, told);
        assert!(shown("<html>", Output::Json).is_err());
    }
}
