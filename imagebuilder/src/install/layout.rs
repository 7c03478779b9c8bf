//! Which files of the image a machine gets, and which of its own stand in their way. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::finding::Finding;
use crate::initramfs::recipe::parse_list;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shape {
    File {
        /// Permission bits.
        mode: u32,
        sha256: String,
    },
    Link(PathBuf),
    /// A folder or a device: never ours.
    Other,
}

/// One file to lay down; paths have no leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub path: PathBuf,
    pub from: PathBuf,
    pub shape: Shape,
    pub bytes: u64,
}

/// What the machine has at the path of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub shape: Shape,
    /// The Debian package that it belongs to.
    pub package: Option<String>,
}

/// What an installation has laid down. Several shapes while one is under way: a path has its old content or its new one.
pub type Files = BTreeMap<PathBuf, BTreeSet<Shape>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutPlan {
    pub write: Vec<Item>,
    /// Ours, and not in this image any more.
    pub remove: Vec<PathBuf>,
    /// All that is ours afterwards.
    pub files: Files,
    pub findings: Vec<Finding>,
}

/// The list `leave-out` of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveOut(Vec<String>);

impl LeaveOut {
    pub fn parse(text: &str) -> Self {
        Self(parse_list(text))
    }

    pub fn covers(&self, path: &Path) -> bool {
        self.0.iter().any(|entry| match entry.strip_suffix('/') {
            Some(folder) => path.starts_with(folder),
            None => path == Path::new(entry),
        })
    }
}

/// Nothing is overwritten or removed that an earlier installation did not lay down just as it is now.
pub fn plan_layout(items: Vec<Item>, found: &BTreeMap<PathBuf, Found>, ours: &Files) -> LayoutPlan {
    let mut plan = LayoutPlan::default();
    let is_ours = |path: &Path, found: &Found| {
        ours.get(path)
            .is_some_and(|shapes| shapes.contains(&found.shape))
    };
    for item in items {
        plan.files
            .insert(item.path.clone(), BTreeSet::from([item.shape.clone()]));
        match found.get(&item.path) {
            Some(found) if !is_ours(&item.path, found) => {
                plan.findings
                    .push(in_the_way(&item.path, found, ours.contains_key(&item.path)));
            }
            Some(found) if found.shape == item.shape => {}
            _ => plan.write.push(item),
        }
    }
    for path in ours.keys().filter(|path| !plan.files.contains_key(*path)) {
        match found.get(path) {
            Some(found) if is_ours(path, found) => plan.remove.push(path.clone()),
            Some(found) => plan.findings.push(in_the_way(path, found, true)),
            None => {}
        }
    }
    plan
}

fn in_the_way(path: &Path, found: &Found, was_ours: bool) -> Finding {
    let place = format!("/{}", path.display());
    match &found.package {
        _ if was_ours => Finding::new(
            place,
            "was changed since it was installed",
            "move your change elsewhere, for example into a drop-in, and remove this file",
        ),
        Some(package) => Finding::new(
            place,
            format!("belongs to the package {package}"),
            format!("remove the package, if nothing here needs it: apt-get remove {package}"),
        ),
        None => Finding::new(
            place,
            "is there already, and is not Firstlight's",
            "move it away, if nothing here needs it",
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(content: &str) -> Shape {
        Shape::File {
            mode: 0o644,
            sha256: content.to_owned(),
        }
    }

    fn item(path: &str, content: &str) -> Item {
        Item {
            path: path.into(),
            from: Path::new("/tree").join(path),
            shape: file(content),
            bytes: 1,
        }
    }

    fn found(files: &[(&str, Shape, Option<&str>)]) -> BTreeMap<PathBuf, Found> {
        let entry = |(path, shape, package): &(&str, Shape, Option<&str>)| {
            let package = package.map(str::to_owned);
            let shape = shape.clone();
            (PathBuf::from(path), Found { shape, package })
        };
        files.iter().map(entry).collect()
    }

    fn files(list: &[(&str, &[&str])]) -> Files {
        list.iter()
            .map(|(path, contents)| (path.into(), contents.iter().map(|c| file(c)).collect()))
            .collect()
    }

    #[test]
    fn an_empty_machine_gets_everything() {
        let items = vec![item("usr/bin/etcd", "a"), item("etc/x.conf", "b")];
        let plan = plan_layout(items.clone(), &BTreeMap::new(), &Files::new());
        assert_eq!(plan.write, items);
        assert_eq!(
            plan.files,
            files(&[("usr/bin/etcd", &["a"]), ("etc/x.conf", &["b"])])
        );
        assert!(plan.findings.is_empty() && plan.remove.is_empty());
    }

    #[test]
    fn what_is_not_ours_is_found_all_at_once_even_with_the_same_content() {
        let items = vec![
            item("usr/bin/containerd", "a"),
            item("usr/bin/kubectl", "b"),
            item("etc/modules", "same"),
            item("usr/lib/cni", "d"),
        ];
        let found = found(&[
            ("usr/bin/containerd", file("z"), Some("containerd")),
            ("usr/bin/kubectl", Shape::Link("/opt/k".into()), None),
            ("etc/modules", file("same"), None),
            ("usr/lib/cni", Shape::Other, None),
        ]);
        let plan = plan_layout(items, &found, &Files::new());
        assert!(plan.write.is_empty(), "{plan:#?}");
        let places: Vec<_> = plan.findings.iter().map(|f| f.place.as_str()).collect();
        assert_eq!(
            places,
            [
                "/usr/bin/containerd",
                "/usr/bin/kubectl",
                "/etc/modules",
                "/usr/lib/cni"
            ]
        );
        assert!(plan.findings[0].next.ends_with("apt-get remove containerd"));
    }

    #[test]
    fn an_upgrade_writes_what_changed_and_removes_what_went() {
        let items = vec![item("a", "old"), item("b", "new"), item("c", "new")];
        let found = found(&[
            ("a", file("old"), None),
            ("b", file("old"), None),
            ("gone", file("old"), None),
        ]);
        let ours = files(&[("a", &["old"]), ("b", &["old"]), ("gone", &["old"])]);
        let plan = plan_layout(items, &found, &ours);
        let written: Vec<_> = plan.write.iter().map(|item| item.path.clone()).collect();
        assert_eq!(written, [PathBuf::from("b"), PathBuf::from("c")]);
        assert_eq!(plan.remove, [PathBuf::from("gone")]);
        assert!(plan.findings.is_empty());
    }

    #[test]
    fn a_file_of_ours_that_somebody_changed_is_left_alone() {
        let found = found(&[("b", file("edited"), None), ("gone", file("edited"), None)]);
        let ours = files(&[("b", &["old"]), ("gone", &["old"])]);
        let plan = plan_layout(vec![item("b", "new")], &found, &ours);
        assert!(plan.write.is_empty() && plan.remove.is_empty());
        assert_eq!(plan.findings.len(), 2, "{plan:#?}");
        assert!(plan.findings[0].what.contains("was changed"));
    }

    #[test]
    fn an_installation_that_was_cut_goes_on() {
        let items = vec![item("a", "new"), item("b", "new"), item("c", "new")];
        let found = found(&[("a", file("new"), None), ("b", file("old"), None)]);
        let both: &[&str] = &["old", "new"];
        let ours = files(&[("a", both), ("b", both), ("c", both)]);
        let plan = plan_layout(items, &found, &ours);
        let written: Vec<_> = plan.write.iter().map(|item| item.path.clone()).collect();
        assert_eq!(written, [PathBuf::from("b"), PathBuf::from("c")]);
        assert!(plan.findings.is_empty());
    }

    #[test]
    fn a_list_covers_paths_and_what_is_below_folders() {
        let list = LeaveOut::parse("# why\netc/fstab\netc/ssh/   # all\n");
        for (path, covered) in [
            ("etc/fstab", true),
            ("etc/fstab.d/x", false),
            ("etc/ssh/sshd_config.d/50", true),
            ("etc/sshd", false),
        ] {
            assert_eq!(list.covers(Path::new(path)), covered, "{path}");
        }
    }
}
