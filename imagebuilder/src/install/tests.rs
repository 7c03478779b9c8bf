//! Laying the real files of the box down in a folder that stands for a machine's root.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::layout::{Files, LayoutPlan, plan_layout};
use super::manifest::Manifest;
use super::source::KEPT;
use super::{RECIPE, apply, collect_items, observe};
use crate::initramfs::recipe::parse_list;

const OVERLAY: &str = "../overlays/box";

/// A machine's root, and the layers of an image: the box's real overlay, one program with a second name, something to serve.
struct Stage {
    root: TempDir,
    kube: TempDir,
    payload: TempDir,
    manifest: Manifest,
}

impl Stage {
    fn set() -> Self {
        let [root, kube, payload] = [(); 3].map(|()| TempDir::new().unwrap());
        fs::create_dir_all(payload.path().join("usr/share/firstlight/apt/base")).unwrap();
        fs::create_dir_all(root.path().join("var/lib/firstlight")).unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/hostname"), "mine\n").unwrap();
        fs::create_dir_all(kube.path().join("usr/bin")).unwrap();
        fs::write(kube.path().join("usr/bin/kube"), "one").unwrap();
        std::os::unix::fs::symlink("kube", kube.path().join("usr/bin/kubelet")).unwrap();
        Self {
            root,
            kube,
            payload,
            manifest: Manifest::default(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn plan(&self) -> LayoutPlan {
        let tree = |layer: &str| match layer {
            "agent" => PathBuf::from(OVERLAY),
            "kube" => self.kube.path().to_owned(),
            _ => self.payload.path().to_owned(),
        };
        let items = collect_items(tree).unwrap();
        let ours = &self.manifest.files;
        let found = observe::observe_files(self.root.path(), &items, ours).unwrap();
        plan_layout(items, &found, ours)
    }

    fn lay_out(&mut self) {
        let plan = self.plan();
        assert_eq!(plan.findings, []);
        apply::lay_out(self.root.path(), &plan, &mut self.manifest).unwrap();
        let saved = Manifest::load(self.root.path()).unwrap();
        assert_eq!(saved.as_ref(), Some(&self.manifest));
    }

    fn files(&self) -> BTreeSet<PathBuf> {
        let none = super::LeaveOut::parse("");
        let items = observe::collect(self.root.path(), &none).unwrap();
        items.into_iter().map(|item| item.path).collect()
    }
}

#[test]
fn a_machine_keeps_its_own_files_and_a_second_run_changes_nothing() {
    let mut stage = Stage::set();
    stage.lay_out();
    let read = |path: &str| fs::read_to_string(stage.path(path)).unwrap();
    assert_eq!(read("etc/hostname"), "mine\n");
    assert!(read("etc/systemd/system/var-lib-firstlight.mount").contains("bind"));
    assert_eq!(read("usr/bin/kubelet"), "one");
    let served = fs::read_link(stage.path("usr/share/firstlight/apt")).unwrap();
    assert_eq!(
        served,
        Path::new("/run/firstlight/layers/payload/usr/share/firstlight/apt")
    );
    for absent in ["etc/fstab", "etc/ssh", "etc/environment", RECIPE] {
        assert!(!stage.path(absent).exists(), "{absent}");
    }
    let mut plan = stage.plan();
    plan.files = Files::new();
    assert_eq!(plan, LayoutPlan::default());
}

#[test]
fn all_that_is_in_the_way_is_found_and_stays_as_it_is() {
    let stage = Stage::set();
    for path in ["etc/containerd/config.toml", "usr/bin/kube"] {
        fs::create_dir_all(stage.path(path).parent().unwrap()).unwrap();
        fs::write(stage.path(path), "somebody's").unwrap();
    }
    // A link to nowhere is there all the same.
    std::os::unix::fs::symlink("/nowhere", stage.path("usr/bin/kubelet")).unwrap();
    let findings = stage.plan().findings;
    let places: Vec<&str> = findings.iter().map(|f| f.place.as_str()).collect();
    assert_eq!(
        places,
        [
            "/etc/containerd/config.toml",
            "/usr/bin/kube",
            "/usr/bin/kubelet"
        ]
    );
}

#[test]
fn a_newer_image_replaces_its_own_files_only() {
    let mut stage = Stage::set();
    stage.lay_out();
    fs::write(stage.kube.path().join("usr/bin/kube"), "two").unwrap();
    fs::remove_file(stage.kube.path().join("usr/bin/kubelet")).unwrap();
    stage.lay_out();
    assert_eq!(
        fs::read_to_string(stage.path("usr/bin/kube")).unwrap(),
        "two"
    );
    assert!(fs::symlink_metadata(stage.path("usr/bin/kubelet")).is_err());

    fs::write(stage.path("usr/bin/kube"), "mended by hand").unwrap();
    fs::write(stage.kube.path().join("usr/bin/kube"), "three").unwrap();
    let findings = stage.plan().findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(findings[0].what.contains("was changed"));
}

#[test]
fn an_installation_that_was_cut_is_finished_by_the_next() {
    let mut stage = Stage::set();
    stage.lay_out();
    fs::write(stage.kube.path().join("usr/bin/kube"), "two").unwrap();
    fs::write(stage.kube.path().join("usr/bin/new"), "new").unwrap();
    let plan = stage.plan();
    assert_eq!(plan.write.len(), 2);
    // The power goes between the two files: the manifest on the disk knows both contents.
    let cut = LayoutPlan {
        write: vec![plan.write[0].clone(), missing_source()],
        ..plan
    };
    apply::lay_out(stage.root.path(), &cut, &mut stage.manifest).unwrap_err();
    stage.manifest = Manifest::load(stage.root.path()).unwrap().unwrap();
    stage.lay_out();
    assert_eq!(
        fs::read_to_string(stage.path("usr/bin/new")).unwrap(),
        "new"
    );
}

/// Stands for the moment at which nothing more is written.
fn missing_source() -> super::Item {
    super::Item {
        path: "usr/bin/cut".into(),
        from: "/nowhere/at/all".into(),
        shape: super::layout::Shape::File {
            mode: 0o755,
            sha256: String::new(),
        },
        bytes: 0,
    }
}

#[test]
fn removal_leaves_what_was_there_before_and_what_somebody_changed() {
    let mut stage = Stage::set();
    let before = stage.files();
    stage.lay_out();
    fs::write(stage.path("etc/kubernetes/kubelet.yaml"), "mine now").unwrap();
    let left = apply::take_away(stage.root.path(), &mut stage.manifest).unwrap();
    assert_eq!(left, [PathBuf::from("etc/kubernetes/kubelet.yaml")]);
    let mut expected = before;
    expected.extend([
        left[0].clone(),
        PathBuf::from("var/lib/firstlight/install.json"),
    ]);
    assert_eq!(stage.files(), expected);
    assert!(!stage.path("usr/bin").exists() && !stage.path("root").exists());
}

fn recipe(name: &str) -> Vec<String> {
    let path = Path::new(OVERLAY).join(RECIPE).join(name);
    parse_list(&fs::read_to_string(path).unwrap())
}

#[test]
fn each_path_that_is_left_out_is_there() {
    for entry in recipe("leave-out") {
        let path = Path::new(OVERLAY).join(&entry);
        assert!(fs::symlink_metadata(&path).is_ok(), "{entry}");
    }
}

#[test]
fn kept_layers_are_mounted_where_the_services_of_the_box_look() {
    for layer in KEPT {
        let unit = format!("root/etc/systemd/system/run-firstlight-layers-{layer}.mount");
        let text = fs::read_to_string(Path::new(OVERLAY).join(RECIPE).join(unit)).unwrap();
        assert!(text.contains(&format!("Where=/run/firstlight/layers/{layer}\n")));
        let file = super::layer_file(Path::new("/"), layer);
        assert!(
            text.contains(&format!("What={}\n", file.display())),
            "{text}"
        );
    }
}

/// Packages of the stick that a Debian machine has, or that only a stick needs. Whoever adds one to the box decides here
/// whether an installed machine needs it.
const NOT_NEEDED: [&str; 32] = [
    "linux-image-amd64",
    "firmware-bnx2",
    "firmware-bnx2x",
    "firmware-qlogic",
    "firmware-intel-misc",
    "firmware-misc-nonfree",
    "firmware-netxen",
    "firmware-cavium",
    "firmware-realtek",
    "firmware-linux-free",
    "systemd-sysv",
    "systemd-repart",
    "udev",
    "dbus",
    "e2fsprogs",
    "dosfstools",
    "util-linux",
    "mount",
    "procps",
    "passwd",
    "login",
    "tzdata",
    "iputils-ping",
    "openssh-server",
    "sudo",
    "cryptsetup-bin",
    "systemd-cryptsetup",
    "libtss2-esys-3.0.2-0t64",
    "libtss2-mu-4.0.1-0t64",
    "libtss2-rc0t64",
    "libtss2-tcti-device0t64",
    "systemd-journal-remote",
];
const COMFORT: [&str; 2] = ["less", "vim-tiny"];

#[test]
fn an_installed_machine_gets_the_packages_that_services_of_the_box_call() {
    let all = parse_list(&fs::read_to_string("../rootfs/box/packages").unwrap());
    let needed = recipe("packages");
    for name in &needed {
        assert!(all.contains(name), "{name} is not on the stick");
    }
    for name in &all {
        let decided = [&NOT_NEEDED[..], &COMFORT[..]]
            .concat()
            .contains(&name.as_str());
        assert_ne!(decided, needed.contains(name), "{name}");
    }
}
