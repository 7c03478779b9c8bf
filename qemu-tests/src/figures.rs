//! What was measured, with a baseline and a limit beside it. One JSON file a measurement, so that a run which measures some
//! figures keeps the others. A figure is a row of `figures/list.rs`.

mod list;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use imagebuilder::build::settings::find_cache;

pub use list::*;

/// What one figure is, and how good it has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// File name below `figures/`.
    pub id: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    pub baseline: Option<f64>,
    /// A part of a longer time has none of its own.
    pub limit: Option<Limit>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    Most(f64),
    Least(f64),
}

impl Limit {
    fn keeps(self, value: f64) -> bool {
        match self {
            Self::Most(limit) => value <= limit,
            Self::Least(limit) => value >= limit,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Megabytes,
    Times,
    Count,
}

impl Figure {
    pub fn by_id(id: &str) -> Option<Self> {
        ALL.iter().copied().find(|figure| figure.id == id)
    }

    /// As many of a thousand as `part` is of `all`.
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    pub fn record_thousandths(self, part: u64, all: u64) -> Result<()> {
        self.record((part as f64 * 1000.0 / all as f64).round())
    }

    /// Keeps `value` as the newest measurement.
    pub fn record(self, value: f64) -> Result<()> {
        let dir = directory()?;
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let file = dir.join(format!("{}.json", self.id));
        let text = serde_json::json!({"figure": self.title, "value": value}).to_string();
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    }

    pub fn record_time(self, time: Duration) -> Result<()> {
        self.record(time.as_secs_f64())
    }

    /// The newest measurement; `None` when there is none.
    pub fn load(self) -> Result<Option<f64>> {
        let file = directory()?.join(format!("{}.json", self.id));
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
        };
        let value: serde_json::Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is not JSON", file.display()))?;
        Ok(value["value"].as_f64())
    }
}

fn directory() -> Result<PathBuf> {
    Ok(find_cache()?.join("figures"))
}

/// One row a figure: measured, baseline, ratio to it, limit, and whether the limit is kept.
pub fn table(rows: &[(Figure, Option<f64>)]) -> String {
    let mut text = format!(
        "{:<47} {:>10} {:>10} {:>7} {:>10}\n",
        "figure", "measured", "baseline", "ratio", "limit"
    );
    for (figure, measured) in rows {
        let show = |value: f64| match figure.unit {
            Unit::Seconds => format!("{value:.1} s"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::Times => format!("{value:.1} x"),
            Unit::Count => format!("{value}"),
        };
        let or_none = |text: Option<String>| text.unwrap_or("-".to_owned());
        let ratio = measured
            .zip(figure.baseline)
            .map_or("-".to_owned(), |(m, b)| format!("{:.2}", m / b));
        let verdict = match (measured, figure.limit) {
            (None, _) => "not measured",
            (Some(_), None) => "",
            (Some(value), Some(limit)) if limit.keeps(*value) => "ok",
            (Some(_), Some(_)) => "misses",
        };
        let limit = or_none(figure.limit.map(|limit| match limit {
            Limit::Most(limit) => show(limit),
            Limit::Least(limit) => format!(">= {}", show(limit)),
        }));
        let (measured, baseline) = (
            or_none(measured.map(show)),
            or_none(figure.baseline.map(show)),
        );
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<47} {measured:>10} {baseline:>10} {ratio:>7} {limit:>10}  {verdict}",
            figure.title
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_the_limit_is_kept() {
        let text = table(&[
            (BOX_PAGE, Some(31.0)),
            (BOX_NODE, Some(282.0)),
            (BUILD_COLD, None),
        ]);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).collect())
            .collect();
        let last = |row: usize| rows[row].last().copied();
        assert_eq!(
            (last(1), last(2), last(3)),
            (Some("ok"), Some("misses"), Some("not measured"))
        );
        assert!(
            text.contains("31.0 s     62.0 s    0.50     70.0 s"),
            "{text}"
        );
        assert!(text.contains("2.00"), "{text}");
    }

    #[test]
    fn a_count_may_have_to_be_reached() {
        let text = table(&[(BASE_STORIES, Some(2.0)), (BASE_SCHEDULES, Some(700.0))]);
        assert!(text.contains(">= 8  misses"), "{text}");
        assert!(text.contains(">= 500  ok"), "{text}");
    }

    #[test]
    fn every_figure_is_found_by_its_own_id() {
        for figure in ALL {
            assert_eq!(Figure::by_id(figure.id), Some(*figure));
        }
    }
}
