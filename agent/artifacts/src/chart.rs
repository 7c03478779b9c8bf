//! What a packed Helm chart says of itself.

use std::io::Read;

use serde_json::Value;

use crate::{Unfit, read_bounded};

const LARGEST_METADATA: u64 = 1 << 20;
/// Before `Chart.yaml` there may be other files, but not for ever.
const LARGEST_CHART: u64 = 256 << 20;

/// `Chart.yaml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Never empty.
    pub name: String,
    /// Never empty; not checked further.
    pub version: String,
    /// Everything in it, as Helm keeps it beside the chart in a registry.
    pub metadata: Value,
}

/// Of the `.tgz` that `helm package` writes.
pub fn read_chart(packed: impl Read) -> Result<Chart, Unfit> {
    let plain = flate2::read::GzDecoder::new(packed).take(LARGEST_CHART);
    for entry in tar::Archive::new(plain).entries()? {
        let entry = entry?;
        let path = entry.path()?.into_owned();
        // Charts inside charts have one, too.
        let is_top = path.file_name().is_some_and(|name| name == "Chart.yaml")
            && path.components().count() == 2;
        if is_top {
            return parse(&read_bounded(entry, LARGEST_METADATA, "Chart.yaml")?);
        }
    }
    Err(Unfit::new(
        "it is no chart: there is no Chart.yaml in its top folder",
    ))
}

fn parse(text: &[u8]) -> Result<Chart, Unfit> {
    let text = std::str::from_utf8(text).map_err(|_| Unfit::new("Chart.yaml is no UTF-8"))?;
    let metadata: Value = serde_saphyr::from_str(text)
        .map_err(|error| Unfit::new(format!("Chart.yaml is no YAML: {error}")))?;
    let field = |name: &str| match metadata[name].as_str() {
        Some(value) if !value.is_empty() => Ok(value.to_owned()),
        _ => Err(Unfit::new(format!("Chart.yaml has no `{name}`"))),
    };
    Ok(Chart {
        name: field("name")?,
        version: field("version")?,
        metadata,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use super::*;

    fn packed(files: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar.into_inner().unwrap()).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn a_chart_is_what_its_own_metadata_says() {
        let inner = ("web/charts/db/Chart.yaml", "name: db\nversion: 9.9.9\n");
        let own = (
            "web/Chart.yaml",
            "apiVersion: v2\nname: web\nversion: 1.2.3\nkeywords: [a]\n",
        );
        let chart = read_chart(&*packed(&[inner, own])).unwrap();
        assert_eq!(
            (chart.name.as_str(), chart.version.as_str()),
            ("web", "1.2.3")
        );
        assert_eq!(chart.metadata["keywords"][0], "a");
    }

    #[test]
    fn what_is_no_chart_is_refused_with_the_reason() {
        for (files, why) in [
            (&[("web/values.yaml", "a: 1")][..], "no Chart.yaml"),
            (&[("web/Chart.yaml", "name: web")][..], "`version`"),
            (&[("web/Chart.yaml", "{")][..], "no YAML"),
        ] {
            let error = read_chart(&*packed(files)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(read_chart(&b"no gzip"[..]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>, at in 0..400_usize) {
            let _ = read_chart(&*bytes);
            let mut chart = packed(&[("web/Chart.yaml", "name: web\nversion: 1.2.3\n")]);
            let at = at.min(chart.len());
            let end = (at + bytes.len()).min(chart.len());
            chart.splice(at..end, bytes);
            let _ = read_chart(&*chart);
        }

        #[test]
        fn no_metadata_breaks_it(text in ".{0,200}|[a-z:&*{}\\[\\] \n-]{0,200}") {
            let _ = read_chart(&*packed(&[("web/Chart.yaml", &text)]));
        }
    }
}
