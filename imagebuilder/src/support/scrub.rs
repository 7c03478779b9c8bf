//! What is a secret in a text: each value that the box keeps as one, however it is written, and what looks like one.

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_api::secrets::{self, REMOVED};
use serde_json::Value;

/// Shorter values are words: `true`, a name of a cluster.
const SHORTEST: usize = 8;
/// Lines of a value that may stand alone, such as those of a key.
const SHORTEST_LINE: usize = 24;

/// Of one box.
#[derive(Debug, Default)]
pub struct Secrets {
    /// The longest first: one may be a part of another.
    values: Vec<String>,
}

impl Secrets {
    /// `list`: all Secrets, as kubectl says them.
    pub fn parse(list: &str) -> Result<Self> {
        let list: Value = serde_json::from_str(list)?;
        let items = list["items"].as_array().context("it is no list")?;
        let mut values = Vec::new();
        for secret in items {
            for value in secret["data"].as_object().into_iter().flatten() {
                let encoded = value.1.as_str().unwrap_or_default();
                let plain = STANDARD.decode(encoded).unwrap_or_default();
                let plain = String::from_utf8_lossy(&plain).into_owned();
                let lines = plain.lines().map(str::trim);
                // A certificate is in everybody's hands.
                let is_public = plain.starts_with("-----BEGIN CERTIFICATE-----");
                if is_public {
                    continue;
                }
                values.extend(
                    lines
                        .filter(|line| line.len() >= SHORTEST_LINE)
                        .map(str::to_owned),
                );
                values.extend([encoded.to_owned(), plain.trim().to_owned()]);
            }
        }
        values.retain(|value| value.len() >= SHORTEST && !value.starts_with("-----"));
        values.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        values.dedup();
        Ok(Self { values })
    }

    pub fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), REMOVED);
            }
        }
        secrets::scrub(&text)
    }
}
