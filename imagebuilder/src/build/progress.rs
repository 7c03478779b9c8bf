//! What a person sees while a build runs: a bar for each step, or plain lines without a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Bars,
    Lines,
    Silent,
}

impl Progress {
    /// Bars when somebody watches standard error.
    pub fn detect() -> Self {
        if std::io::stderr().is_terminal() {
            Self::Bars
        } else {
            Self::Lines
        }
    }

    pub fn silent() -> Self {
        Self::Silent
    }

    pub fn say(self, line: &str) {
        if self != Self::Silent {
            // A closed standard error must not stop a build.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    pub fn cached(self, name: &str) {
        self.say(&format!("  {name:<12} unchanged"));
    }

    /// `expected` is how long the step took the last time: the length of its bar.
    pub fn start(self, name: &str, log: &Path, expected: Option<Duration>) -> Running {
        let bar = match self {
            Self::Bars => Some(start_bar(name, log, expected)),
            Self::Lines => {
                self.say(&format!("  {name:<12} running, log: {}", log.display()));
                None
            }
            Self::Silent => None,
        };
        Running {
            progress: self,
            name: name.to_owned(),
            started: Instant::now(),
            bar,
        }
    }
}

fn start_bar(name: &str, log: &Path, expected: Option<Duration>) -> ProgressBar {
    let template = if expected.is_some() {
        "  {prefix:<12} {bar:30} {elapsed} {msg}"
    } else {
        "  {prefix:<12} {spinner} {elapsed} {msg}"
    };
    let style = ProgressStyle::with_template(template).expect("the template is constant and valid");
    // Position and length are tenths of seconds; the bar waits at its end when a step takes longer than the last time.
    let length = expected.map_or(1, |time| time.as_secs().max(1) * 10);
    let moving = move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
        let filled = usize::try_from(state.elapsed().as_secs() * 10 * 30 / length)
            .unwrap_or(30)
            .min(30);
        let _ = write!(out, "[{}{}]", "=".repeat(filled), " ".repeat(30 - filled));
    };
    let bar = ProgressBar::new(length).with_style(style.with_key("bar", moving));
    bar.set_prefix(name.to_owned());
    bar.set_message(format!("log: {}", log.display()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The display of a step that runs; say how it ended.
#[derive(Debug)]
pub struct Running {
    progress: Progress,
    name: String,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Running {
    pub fn done(self) {
        self.end("done");
    }

    pub fn failed(self) {
        self.end("FAILED");
    }

    fn end(self, how: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.progress.say(&format!(
            "  {:<12} {how} in {:.1} s",
            self.name,
            self.started.elapsed().as_secs_f32()
        ));
    }
}
