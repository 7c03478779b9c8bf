//! What a chart of the stick asks of the box, by annotations in its `Chart.yaml`.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

#[derive(Deserialize)]
struct Chart {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// An annotation whose value is NAMESPACE/NAME.
pub fn names(chart: &Path, annotation: &str) -> Option<(String, String)> {
    let text = fs::read_to_string(chart.join("Chart.yaml")).unwrap_or_default();
    let chart: Chart = serde_saphyr::from_str(&text).ok()?;
    let (namespace, name) = chart.annotations.get(annotation)?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}
