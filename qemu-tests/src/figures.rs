//! What was measured, with a baseline and a limit beside it. One JSON file a measurement, so that a run which measures some
//! figures keeps the others.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use imagebuilder::build::settings::find_cache;

/// What one figure is, and how good it has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// File name below `figures/`.
    pub id: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    pub baseline: Option<f64>,
    /// At most this; a part of a longer time has none of its own.
    pub limit: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Megabytes,
    Times,
}

const fn seconds(
    id: &'static str,
    title: &'static str,
    baseline: Option<f64>,
    limit: Option<f64>,
) -> Figure {
    Figure {
        id,
        title,
        unit: Unit::Seconds,
        baseline,
        limit,
    }
}

const fn megabytes(
    id: &'static str,
    title: &'static str,
    baseline: Option<f64>,
    limit: Option<f64>,
) -> Figure {
    Figure {
        id,
        title,
        unit: Unit::Megabytes,
        baseline,
        limit,
    }
}

pub const BUILD_COLD: Figure = seconds("build-cold", "build, cold", None, Some(2400.0));
pub const BUILD_UNCHANGED: Figure = seconds(
    "build-unchanged",
    "build, nothing changed",
    None,
    Some(20.0),
);
pub const BUILD_AGENT: Figure = seconds("build-agent", "build, agent changed", None, Some(90.0));
pub const IMAGE_SIZE: Figure = megabytes("image-size", "image size", Some(5600.0), Some(1500.0));
pub const BOX_PAGE: Figure = seconds("box-page", "box: power-on to page", Some(62.0), Some(70.0));
pub const BOX_DHCP: Figure = seconds(
    "box-dhcp",
    "box: power-on to first DHCP answer",
    None,
    Some(90.0),
);
pub const BOX_NODE: Figure = seconds(
    "box-node",
    "box: power-on to node Ready",
    Some(141.0),
    Some(200.0),
);
pub const BOX_IRONIC: Figure = seconds(
    "box-ironic",
    "box: power-on to Ironic ready",
    None,
    Some(300.0),
);
pub const BOX_MEMORY: Figure = megabytes(
    "box-memory",
    "box: memory in use when ready",
    Some(1600.0),
    Some(2000.0),
);
pub const NETBOOT_SIZE: Figure =
    megabytes("netboot-size", "kernel + ramdisk", Some(83.0), Some(40.0));
pub const RAMDISK_LOOKUP: Figure = seconds(
    "ramdisk-lookup",
    "ramdisk: direct boot to its first report",
    Some(44.0),
    Some(15.0),
);
pub const SMALLEST_MEMORY: Figure = megabytes(
    "smallest-memory",
    "smallest memory that installs (MiB)",
    Some(1024.0),
    Some(512.0),
);
pub const SERVER_SSH: Figure = seconds(
    "server-ssh",
    "server: power-on to installed OS on SSH",
    Some(547.0),
    Some(250.0),
);
pub const CLUSTER_STAGED: Figure = seconds(
    "cluster-staged",
    "  of it until both have their system on disk",
    None,
    None,
);
pub const CLUSTER_DATA: Figure = seconds(
    "cluster-data",
    "  of it until the first has its bootstrap data",
    None,
    None,
);
pub const CLUSTER_CONTROL_PLANE: Figure = seconds(
    "cluster-control-plane",
    "  of it until the control plane is Ready",
    None,
    None,
);
pub const CLUSTER_READY: Figure = seconds(
    "cluster-ready",
    "two blank servers: power-on to both nodes Ready",
    None,
    Some(1200.0),
);
/// No longer than what the first worker took, together with its control plane.
pub const CLUSTER_SECOND_WORKER: Figure = seconds(
    "cluster-second-worker",
    "third blank server: power-on to node Ready",
    None,
    Some(1200.0),
);
pub const CLUSTER_RACK_ONE: Figure = seconds(
    "cluster-rack-one",
    "one simulated server: first DHCP to bootstrap data",
    None,
    None,
);
pub const CLUSTER_RACK_TEN: Figure = seconds(
    "cluster-rack-ten",
    "ten of them at once: to the tenth's",
    None,
    None,
);
/// On a cable of 1 Gb/s.
pub const CLUSTER_RACK_RATIO: Figure = Figure {
    id: "cluster-rack-ratio",
    title: "  ten in the time of one",
    unit: Unit::Times,
    baseline: None,
    limit: Some(1.5),
};
pub const CLUSTER_RACK_BYTES: Figure =
    megabytes("cluster-rack-bytes", "  sent to each server", None, None);
pub const CLUSTER_RACK_BOX_BYTES: Figure =
    megabytes("cluster-rack-box-bytes", "  of it by the box", None, None);
pub const CLUSTER_BOX_MEMORY: Figure = megabytes(
    "cluster-box-memory",
    "box: memory in use with a cluster",
    None,
    Some(3000.0),
);
pub const CLUSTER_AGENT_MEMORY: Figure = megabytes(
    "cluster-agent-memory",
    "agent: memory in use with a cluster",
    None,
    Some(64.0),
);

pub const PAYLOAD_UPLOAD: Figure = seconds(
    "payload-upload",
    "2 GiB to the store, verified and on the disk",
    None,
    None,
);
pub const PAYLOAD_NGINX: Figure =
    seconds("payload-nginx", "2 GiB to nginx with WebDAV", None, None);
/// 0.7 times its speed.
pub const PAYLOAD_UPLOAD_RATIO: Figure = Figure {
    id: "payload-upload-ratio",
    title: "  the store's time in nginx's",
    unit: Unit::Times,
    baseline: None,
    limit: Some(1.43),
};
pub const PAYLOAD_MEMORY: Figure = megabytes(
    "payload-memory",
    "agent: most memory during the upload",
    None,
    Some(64.0),
);
pub const PAYLOAD_APT_INDEX: Figure = seconds(
    "payload-apt-index",
    "apt repository of 500 packages: index",
    None,
    Some(5.0),
);
pub const PAYLOAD_SOFTWARE_3: Figure = seconds(
    "payload-software-3",
    "Software on 3 servers that share this machine",
    None,
    None,
);
pub const PAYLOAD_SOFTWARE_50: Figure =
    seconds("payload-software-50", "Software on 50 of them", None, None);
pub const PAYLOAD_SOFTWARE_RATIO: Figure = Figure {
    id: "payload-software-ratio",
    title: "  50 in the time of 3",
    unit: Unit::Times,
    baseline: None,
    limit: Some(3.0),
};
pub const PAYLOAD_SOFTWARE_3_OWN: Figure = seconds(
    "payload-software-3-own",
    "Software on 3 servers with 20 s of their own",
    None,
    None,
);
pub const PAYLOAD_SOFTWARE_50_OWN: Figure = seconds(
    "payload-software-50-own",
    "Software on 50 of them",
    None,
    None,
);
pub const PAYLOAD_SOFTWARE_RATIO_OWN: Figure = Figure {
    id: "payload-software-ratio-own",
    title: "  50 in the time of 3",
    unit: Unit::Times,
    baseline: None,
    limit: Some(3.0),
};
pub const PAYLOAD_ADDONS: Figure = megabytes(
    "payload-addons",
    "stick: grows by its addons",
    None,
    Some(150.0),
);

/// Every figure, in the order of the table.
pub const ALL: [Figure; 37] = [
    BUILD_COLD,
    BUILD_UNCHANGED,
    BUILD_AGENT,
    IMAGE_SIZE,
    BOX_PAGE,
    BOX_DHCP,
    BOX_NODE,
    BOX_IRONIC,
    BOX_MEMORY,
    NETBOOT_SIZE,
    RAMDISK_LOOKUP,
    SMALLEST_MEMORY,
    SERVER_SSH,
    CLUSTER_READY,
    CLUSTER_STAGED,
    CLUSTER_DATA,
    CLUSTER_CONTROL_PLANE,
    CLUSTER_SECOND_WORKER,
    CLUSTER_RACK_ONE,
    CLUSTER_RACK_TEN,
    CLUSTER_RACK_RATIO,
    CLUSTER_RACK_BYTES,
    CLUSTER_RACK_BOX_BYTES,
    CLUSTER_BOX_MEMORY,
    CLUSTER_AGENT_MEMORY,
    PAYLOAD_UPLOAD,
    PAYLOAD_NGINX,
    PAYLOAD_UPLOAD_RATIO,
    PAYLOAD_MEMORY,
    PAYLOAD_APT_INDEX,
    PAYLOAD_SOFTWARE_3,
    PAYLOAD_SOFTWARE_50,
    PAYLOAD_SOFTWARE_RATIO,
    PAYLOAD_SOFTWARE_3_OWN,
    PAYLOAD_SOFTWARE_50_OWN,
    PAYLOAD_SOFTWARE_RATIO_OWN,
    PAYLOAD_ADDONS,
];

impl Figure {
    pub fn by_id(id: &str) -> Option<Self> {
        ALL.into_iter().find(|figure| figure.id == id)
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
        let unit = match figure.unit {
            Unit::Seconds => "s",
            Unit::Megabytes => "MB",
            Unit::Times => "x",
        };
        let show =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1} {unit}"));
        let ratio = measured
            .zip(figure.baseline)
            .map_or("-".to_owned(), |(m, b)| format!("{:.2}", m / b));
        let verdict = match (measured, figure.limit) {
            (None, _) => "not measured",
            (Some(_), None) => "",
            (Some(value), Some(limit)) if *value <= limit => "ok",
            (Some(_), Some(_)) => "misses",
        };
        let (measured, baseline, limit) =
            (show(*measured), show(figure.baseline), show(figure.limit));
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
    fn every_figure_is_found_by_its_own_id() {
        for figure in ALL {
            assert_eq!(Figure::by_id(figure.id), Some(figure));
        }
    }
}
