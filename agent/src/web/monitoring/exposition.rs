//! What `node_exporter` of a server measures, in Prometheus' text format, as the box keeps it: with whose it is on each line, and nothing of
//! which a server could say that it is another's.

use std::fmt::Write as _;

/// Of one measurement; what is beyond is left out.
const MOST: usize = 3000;
const LONGEST: usize = 2000;
/// That the box says.
const OURS: [&str; 3] = ["server", "job", "instance"];

/// All lines of `text` that are a sample of `node_exporter`, and that it was heard.
pub fn of_server(server: &str, text: &str) -> String {
    let whose = format!("server={server:?},instance={server:?},job=\"server\"");
    let mut kept = format!("up{{{whose}}} 1\n");
    let samples = text.lines().filter_map(sample).take(MOST);
    for (name, labels, value) in samples {
        let _ = writeln!(kept, "{name}{{{whose}{labels}}} {value}");
    }
    kept
}

/// Its name, its labels with a comma before each, and its value.
fn sample(line: &str) -> Option<(&str, String, f64)> {
    if line.len() > LONGEST || !line.starts_with("node_") {
        return None;
    }
    let end = line.find(|letter: char| !is_of_a_name(letter))?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (String::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// What stands in braces, and what follows them.
fn labels(mut rest: &str) -> Option<(String, &str)> {
    let mut labels = String::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (key, behind) = rest.split_once("=\"")?;
        // `__name__` would be another metric, of whomever.
        let is_free = !key.starts_with("__") && !OURS.contains(&key);
        if key.is_empty() || !key.chars().all(is_of_a_name) || !is_free {
            return None;
        }
        let end = end_of_value(behind)?;
        let value = behind.get(..end)?;
        let _ = write!(labels, ",{key}=\"{value}\"");
        rest = behind.get(end + 1..)?;
    }
}

/// Where the quote is that ends it.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(at),
            letter if letter.is_control() => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_are_of_whom_they_come_from_and_all_else_is_left_out() {
        let text = "# HELP node_load1 1m load average.\n\
             node_load1 0.5\n\
             node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 1.2345e+06\n\
             node_filesystem_size_bytes{device=\"/dev/a\\\"b}\",mountpoint=\"/\"} 8 1796000000000\n\
             node_load5{server=\"n2\"} 1\n\
             node_load5{a=\"b\",__name__=\"firstlight_problem\"} 1\n\
             firstlight_hosts{state=\"failed\"} 9\n\
             node_load15{cpu=\"0} 1\n\
             node_load15 many\n";
        let whose = r#"server="n1",instance="n1",job="server""#;
        let expected = [
            format!("up{{{whose}}} 1"),
            format!("node_load1{{{whose}}} 0.5"),
            format!(r#"node_cpu_seconds_total{{{whose},cpu="0",mode="idle"}} 1234500"#),
            format!(
                r#"node_filesystem_size_bytes{{{whose},device="/dev/a\"b}}",mountpoint="/"}} 8"#
            ),
        ];
        assert_eq!(of_server("n1", text).lines().collect::<Vec<_>>(), expected);
        let many = "node_load1 1\n".repeat(MOST + 10);
        assert_eq!(of_server("n1", &many).lines().count(), MOST + 1);
    }

    proptest! {
        #[test]
        fn whatever_a_server_says_every_line_is_its_own(
            text in "(?s).{0,200}",
            labels in r#"[a-z_]{0,8}="([^"\\]|\\.){0,12}"(,[a-z_]{0,8}="[^"]{0,12}")?"#,
        ) {
            for said in [text, format!("node_x{{{labels}}} 1")] {
                for line in of_server("n1", &said).lines() {
                    let (_, rest) = line.split_once('{').unwrap_or_default();
                    let own = rest.strip_prefix(r#"server="n1",instance="n1",job="server""#);
                    prop_assert!(own.is_some_and(|rest| !rest.contains(",server=\"n2")), "{line}");
                }
            }
        }
    }
}
