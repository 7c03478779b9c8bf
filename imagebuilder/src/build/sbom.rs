//! The `CycloneDX` bill of materials beside the image: Debian packages, crates, Go modules, Python packages.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::addons::Addon;
use super::settings::{SOURCE_DATE_EPOCH, Settings};
use super::{debian, debs, releases, wheels};

/// One component, by its package URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Component {
    purl: String,
    name: String,
    version: String,
}

/// Writes `OUTPUT.cdx.json`; `trees` are tar files with a dpkg database, `archives` lists of package files.
pub fn write_sbom(
    settings: &Settings,
    trees: &[PathBuf],
    archives: &[PathBuf],
    addons: &[Addon],
    versions: &Value,
) -> Result<()> {
    let components = collect(settings, trees, archives, addons)?;
    let path = sbom_path(&settings.output);
    let text = format!("{:#}\n", document(&components, versions));
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

fn sbom_path(output: &Path) -> PathBuf {
    let mut name = OsString::from(output.as_os_str());
    name.push(".cdx.json");
    PathBuf::from(name)
}

fn collect(
    settings: &Settings,
    trees: &[PathBuf],
    archives: &[PathBuf],
    addons: &[Addon],
) -> Result<BTreeSet<Component>> {
    let mut all = BTreeSet::new();
    for archive in trees {
        let status = debian::read_member(archive, "var/lib/dpkg/status")?;
        let status = String::from_utf8_lossy(&status);
        all.extend(debian::installed(&status).map(|(name, version)| package_of(name, version)));
    }
    for list in archives {
        let files =
            fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
        all.extend(files.lines().filter_map(debian_archive));
    }
    all.extend(crates(&fs::read_to_string(
        settings.source.join("Cargo.lock"),
    )?));
    let modules = [
        "kubernetes",
        "containers",
        "cluster-api",
        "helm",
        "cri-tools",
        "metrics",
        "logs",
        "alerts",
    ];
    let modules = modules.map(str::to_owned).into_iter();
    let further = settings
        .kubernetes
        .iter()
        .map(|minor| releases::module(minor));
    let modules = modules
        .chain(further)
        .map(|module| settings.rootfs("go").join(module).join("go.mod"));
    for list in modules.chain(addons.iter().filter_map(Addon::modules)) {
        all.extend(go_modules(&fs::read_to_string(list)?));
    }
    let ironic = settings.rootfs("ironic").join(wheels::LIST);
    for list in [ironic]
        .into_iter()
        .chain(addons.iter().filter_map(Addon::wheels))
    {
        let wheels = wheels::load(&list)?;
        let pinned = wheels.iter();
        all.extend(pinned.map(|wheel| component("pypi", &wheel.name, &wheel.version)));
    }
    Ok(all)
}

fn component(kind: &str, name: &str, version: &str) -> Component {
    Component {
        purl: format!("pkg:{kind}/{name}@{version}"),
        name: name.to_owned(),
        version: version.to_owned(),
    }
}

/// A package by the name of its archive, `NAME_VERSION_ARCH.deb`, as apt keeps it.
fn debian_archive(name: &str) -> Option<Component> {
    let mut fields = name.strip_suffix(".deb")?.split('_');
    let (name, version) = (fields.next()?, fields.next()?);
    Some(package_of(name, &version.replace("%3a", ":")))
}

/// Debian's, or made here.
fn package_of(name: &str, version: &str) -> Component {
    let kind = if version.ends_with(debs::REVISION) {
        "deb/firstlight"
    } else {
        "deb/debian"
    };
    component(kind, name, version)
}

/// Packages of Cargo.lock that come from a registry.
fn crates(lock: &str) -> Vec<Component> {
    let value = |block: &str, key: &str| {
        block.lines().find_map(|line| {
            Some(
                line.strip_prefix(key)?
                    .strip_prefix(" = ")?
                    .trim_matches('"')
                    .to_owned(),
            )
        })
    };
    let blocks = lock
        .split("[[package]]")
        .skip(1)
        .filter(|block| value(block, "source").is_some());
    blocks
        .filter_map(|block| {
            Some(component(
                "cargo",
                &value(block, "name")?,
                &value(block, "version")?,
            ))
        })
        .collect()
}

/// Modules that a go.mod requires; the file lists the whole pruned graph since Go 1.17.
fn go_modules(text: &str) -> Vec<Component> {
    let mut inside = false;
    let mut modules = Vec::new();
    for line in text.lines().map(str::trim) {
        match line {
            "require (" => inside = true,
            ")" => inside = false,
            _ => {
                let entry = if inside {
                    Some(line)
                } else {
                    line.strip_prefix("require ")
                };
                let mut words = entry.unwrap_or_default().split_whitespace();
                if let (Some(name), Some(version)) = (words.next(), words.next()) {
                    modules.push(component("golang", name, version));
                }
            }
        }
    }
    modules
}

fn document(components: &BTreeSet<Component>, versions: &Value) -> Value {
    let list: Vec<Value> = components
        .iter()
        .map(|part| json!({"type": "library", "bom-ref": part.purl, "purl": part.purl, "name": part.name, "version": part.version}))
        .collect();
    let made = time::OffsetDateTime::from_unix_timestamp(
        i64::try_from(SOURCE_DATE_EPOCH).unwrap_or_default(),
    )
    .ok()
    .and_then(|time| {
        time.format(&time::format_description::well_known::Rfc3339)
            .ok()
    });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "component": {"type": "firmware", "bom-ref": "firstlight", "name": "firstlight", "version": versions["firstlight"]},
        },
        "components": list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_list_is_read() {
        assert_eq!(
            debian_archive("shim-signed_1%3a2_amd64.deb"),
            Some(component("deb/debian", "shim-signed", "1:2"))
        );
        assert_eq!(
            debian_archive("kubelet_1.36.3-1.1+firstlight1_amd64.deb"),
            Some(component(
                "deb/firstlight",
                "kubelet",
                "1.36.3-1.1+firstlight1"
            ))
        );
        let lock = "version = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"x\"\nversion = \"1.2.3\"\nsource = \"registry\"\n";
        assert_eq!(crates(lock), [component("cargo", "x", "1.2.3")]);
        let go = "module m\n\nrequire one.org/a v1.0.0\n\nrequire (\n\ttwo.org/b v2.0.0 // indirect\n)\n\nreplace (\n\tc => d v9.9.9\n)\n";
        assert_eq!(
            go_modules(go),
            [
                component("golang", "one.org/a", "v1.0.0"),
                component("golang", "two.org/b", "v2.0.0")
            ]
        );
    }

    #[test]
    fn the_document_has_one_entry_a_component() {
        let parts = BTreeSet::from([component("cargo", "x", "1")]);
        let document = document(&parts, &json!({"firstlight": "0.1.0"}));
        assert_eq!(document["components"][0]["purl"], "pkg:cargo/x@1");
        assert_eq!(document["metadata"]["timestamp"], "2026-11-01T00:00:00Z");
    }
}
