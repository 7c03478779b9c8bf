//! `firstlight logs`: what the site's logs say, by words, and what comes.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use firstlight_api::bounded;
use serde::Deserialize;

use crate::box_client::BoxClient;
use crate::ssh::BoxArgs;

const AGAIN: Duration = Duration::from_secs(2);

pub const SEEKING: &str = "Every word has to be in a line, or in the name of its machine, unit or program. Without words: everything, the last lines.

  firstlight logs n1                        what the box's logs say of the server n1, within a day
  firstlight logs etcd --hours 168          of etcd, within a week
  firstlight logs ironic n1 --follow        and what comes, until Ctrl-C
  firstlight logs n1 -o json                an object a line, for programs";

#[derive(Debug, Args)]
#[command(after_help = SEEKING)]
pub struct LogsArgs {
    /// What is sought
    words: Vec<String>,
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
    let (hours, limit) = (args.hours.to_string(), args.limit.to_string());
    let mut path = path(&[("q", &words), ("hours", &hours), ("limit", &limit)]);
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
            path = self::path(&[("q", &words), ("limit", "5000"), ("after", &last)]);
        }
        thread::sleep(AGAIN);
    }
}

fn path(query: &[(&str, &str)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    format!("/api/v1/logs?{}", form.extend_pairs(query).finish())
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
