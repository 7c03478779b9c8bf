//! What has happened since the start, by reason: for `/metrics`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
};

/// What was refused from outside: the counterpart of the one sentence that the sender got.
pub static REFUSED: Counter = Counter::new();
/// Objects of Kubernetes that could not be read or written, each time that a loop met one.
pub static ODD_OBJECTS: Counter = Counter::new();

/// Steps of servers that failed.
pub static FAILURES: Counter = Counter::new();
/// States of servers, each time that one was left.
pub static PHASES: Histogram = Histogram(Mutex::new(BTreeMap::new()));

/// By a short name with dashes, which becomes a label.
#[derive(Debug)]
pub struct Counter(Mutex<BTreeMap<&'static str, u64>>);

impl Counter {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub fn count(&self, label: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(label).or_default() += 1;
    }

    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Upper bounds in seconds.
const BOUNDS: [u32; 9] = [5, 15, 30, 60, 120, 300, 600, 1800, 7200];

/// Spans of time by a short name, which becomes a label.
#[derive(Debug)]
pub struct Histogram(Mutex<BTreeMap<&'static str, Spans>>);

#[derive(Clone, Debug, Default)]
struct Spans {
    /// By bound; not of those below it.
    counts: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    pub fn took(&self, label: &'static str, seconds: f64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spans = all.entry(label).or_default();
        let bound = BOUNDS.iter().position(|bound| seconds <= f64::from(*bound));
        if let Some(bound) = bound {
            spans.counts[bound] += 1;
        }
        spans.count += 1;
        spans.sum += seconds;
    }

    /// As Prometheus' text format has it.
    pub fn family(&self, name: &str, help: &str, label: &str) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
        for (value, spans) in &*all {
            let mut below = 0;
            for (bound, count) in BOUNDS.iter().zip(spans.counts) {
                below += count;
                let _ = writeln!(
                    text,
                    "{name}_bucket{{{label}=\"{value}\",le=\"{bound}\"}} {below}"
                );
            }
            let Spans { count, sum, .. } = spans;
            let of = format!("{label}=\"{value}\"");
            let _ = writeln!(
                text,
                "{name}_bucket{{{of},le=\"+Inf\"}} {count}\n{name}_sum{{{of}}} {sum}\n{name}_count{{{of}}} {count}"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_what_is_below_each_bound() {
        let histogram = Histogram(Mutex::default());
        for seconds in [5.0, 20.0, 9000.0] {
            histogram.took("inspecting", seconds);
        }
        let text = histogram.family("took_seconds", "How long.", "state");
        for line in [
            "# TYPE took_seconds histogram\n",
            "took_seconds_bucket{state=\"inspecting\",le=\"5\"} 1\n",
            "took_seconds_bucket{state=\"inspecting\",le=\"30\"} 2\n",
            "took_seconds_bucket{state=\"inspecting\",le=\"7200\"} 2\n",
            "took_seconds_bucket{state=\"inspecting\",le=\"+Inf\"} 3\n",
            "took_seconds_sum{state=\"inspecting\"} 9025\n",
            "took_seconds_count{state=\"inspecting\"} 3\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
