//! What each of the box's controllers did last, so that one that is stuck shows.

use std::fmt::{self, Write as _};

use firstlight_api::status::ControllerRound;

use super::{Span, Text};

pub fn write(out: &mut String, controllers: &[ControllerRound]) -> fmt::Result {
    if controllers.is_empty() {
        return Ok(());
    }
    out.write_str(
        "<details class=\"card\"><summary>Controllers</summary>\n<ol class=\"steps\">\n",
    )?;
    for round in controllers {
        let (class, mark) = match round.failed {
            0 => ("good", "✓"),
            _ => ("bad", "✗"),
        };
        write!(
            out,
            "<li><span class=\"mark {class}\">{mark}</span><span>{}",
            Text(&round.name)
        )?;
        for failure in &round.failures {
            write!(out, "<br><span class=\"dim\">{}</span>", Text(failure))?;
        }
        writeln!(
            out,
            "</span><span class=\"time\">{:.1} s, at {}</span></li>",
            round.took,
            Span(round.started),
        )?;
    }
    out.write_str("</ol>\n</details>\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_controller_says_how_its_last_round_went_and_none_is_no_card() {
        let mut out = String::new();
        write(&mut out, &[]).unwrap();
        assert_eq!(out, "");
        let round = ControllerRound {
            name: "addons".to_owned(),
            started: 61.0,
            took: 0.25,
            failed: 1,
            failures: vec!["the Addon <b> cannot be read".to_owned()],
            ..ControllerRound::default()
        };
        write(&mut out, &[round]).unwrap();
        assert!(out.contains("mark bad"), "{out}");
        assert!(out.contains("the Addon &lt;b&gt; cannot"), "{out}");
        assert!(out.contains("0.2 s, at 1 min 1 s<"), "{out}");
    }
}
