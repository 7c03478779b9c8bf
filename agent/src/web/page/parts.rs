//! Words and shapes that several pages have.

use std::fmt::{self, Display};

use firstlight_api::status::{HostState, Problem};
use maud::{Markup, html};
use time::OffsetDateTime;

use super::View;

/// A span of time, e.g. `1 min 12 s`; the script in the page writes the same form.
pub struct Span(pub f64);

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole seconds, and saturating"
        )]
        let seconds = self.0.max(0.0) as u64;
        match seconds {
            0..60 => write!(f, "{seconds} s"),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            3600..86400 => write!(f, "{} h {} min", seconds / 3600, seconds / 60 % 60),
            _ => write!(f, "{} d {} h", seconds / 86400, seconds / 3600 % 24),
        }
    }
}

/// How long it has been so; it runs.
pub fn since(view: View<'_>, started: f64) -> Markup {
    html! {
        span.time data-since=(format_args!("{started:.1}")) {
            @if view.booted.is_some() { (Span(view.site.uptime - started)) }
        }
    }
}

/// By the wall clock; a browser shows it by its own.
pub fn moment(view: View<'_>, uptime: f64) -> Markup {
    html! {
        time.time data-at=(format_args!("{uptime:.1}")) {
            @if let Some(booted) = view.booted { (wall_clock(booted + uptime)) }
        }
    }
}

/// `11-30 06:12:41 UTC`
fn wall_clock(unix: f64) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "whole seconds")]
    let seconds = unix as i64;
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:02}-{:02} {:02}:{:02}:{:02} UTC",
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

/// Bytes, for people.
pub struct Size(pub u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000_000 => write!(f, "{} kB", self.0.div_ceil(1000)),
            1_000_000..10_000_000_000 => write!(f, "{} MB", self.0 / 1_000_000),
            bytes => write!(f, "{} GB", bytes / 1_000_000_000),
        }
    }
}

/// How something is; the class of its colour, which is never the only sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Busy,
    Bad,
    /// Nothing happens, and nothing has to.
    Calm,
    /// Safe as it is, and somebody may want to know.
    Warm,
}

impl Tone {
    pub const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Bad => "bad",
            Self::Calm => "wait",
            Self::Warm => "warm",
        }
    }

    const fn mark(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Busy => "▸",
            Self::Bad => "✗",
            Self::Calm => "○",
            Self::Warm => "!",
        }
    }

    pub const fn of_host(state: HostState) -> Self {
        match state {
            HostState::Running | HostState::Staged | HostState::External => Self::Good,
            HostState::Failed => Self::Bad,
            HostState::Discovered | HostState::Available | HostState::Detached => Self::Calm,
            HostState::Registering
            | HostState::Inspecting
            | HostState::Provisioning
            | HostState::Provisioned
            | HostState::Deprovisioning
            | HostState::Deleting => Self::Busy,
        }
    }
}

pub fn pill(tone: Tone, word: &str) -> Markup {
    html! { span.pill.(tone.class()) { (word) } }
}

/// A sign before a line, for eyes only: the line says it in words.
pub fn mark(tone: Tone) -> Markup {
    html! { span.mark.(tone.class()) aria-hidden="true" { (tone.mark()) } }
}

/// A line of a list: what it is, more of it, what is to be said of it, and its state in a word.
pub fn line(tone: Tone, title: &Markup, more: &str, message: &str, state: &str) -> Markup {
    html! {
        li {
            (mark(tone))
            span {
                (title) " " span.dim { (more) }
                @if !message.is_empty() { br; span.dim { (message) } }
            }
            span.time { (state) }
        }
    }
}

/// A sentence, in which what stands between backticks is typed.
pub fn sentence(text: &str) -> Markup {
    let whole = text.matches('`').count() / 2 * 2;
    html! {
        @for (at, piece) in text.split('`').enumerate() {
            @if at % 2 == 1 && at <= whole { code { (piece) } } @else { @if at > whole { "`" } (piece) }
        }
    }
}

/// `1 server`, `2 servers`
pub fn counted(count: usize, what: &str) -> String {
    let many = if count == 1 { "" } else { "s" };
    format!("{count} {what}{many}")
}

pub fn problem(found: &Problem, tone: Tone) -> Markup {
    html! {
        div.problem.(tone.class()) {
            b { (sentence(&found.what)) }
            @if !found.next.is_empty() { p { (sentence(&found.next)) } }
        }
    }
}

/// Percent that are done of something.
pub fn progress(percent: u8, of: &str) -> Markup {
    html! { progress max="100" value=(percent) aria-label=(of) { (percent) " %" } }
}

/// A table, which a narrow window shows a part of, and the keyboard moves.
pub fn wide(of: &str, table: &Markup) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(of) { (table) } }
}

/// A server, with the way to its page.
pub fn host_link(name: &str) -> Markup {
    html! { a href={ "/hosts/" (name) } { (name) } }
}

/// A card that says that nothing is there yet, and how something comes.
pub fn nothing_yet(title: &str, what: &str, how: &Markup) -> Markup {
    html! {
        section.card { h2 { (title) } p { (what) } p.dim { (how) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_looks_so_and_nothing_of_a_sentence_is_lost() {
        for (text, html) in [
            (
                "say `kubectl <x>`, then go",
                "say <code>kubectl &lt;x&gt;</code>, then go",
            ),
            ("`a` and `b`", "<code>a</code> and <code>b</code>"),
            ("a ` b", "a ` b"),
            ("`a` and ` b", "<code>a</code> and ` b"),
            ("", ""),
        ] {
            assert_eq!(sentence(text).into_string(), html);
        }
    }

    #[test]
    fn spans_and_sizes_read_well() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (-3.0, "0 s"),
            (59.9, "59 s"),
            (60.0, "1 min 0 s"),
            (3599.0, "59 min 59 s"),
            (7260.0, "2 h 1 min"),
            (200_000.0, "2 d 7 h"),
        ] {
            assert_eq!(Span(seconds).to_string(), text);
        }
        for (bytes, text) in [(1, "1 kB"), (2_500_000, "2 MB"), (12_000_000_000, "12 GB")] {
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(
            (counted(1, "server"), counted(0, "server")),
            ("1 server".to_owned(), "0 servers".to_owned())
        );
        assert_eq!(wall_clock(1_795_933_961.9), "11-29 06:32:41 UTC");
    }
}
