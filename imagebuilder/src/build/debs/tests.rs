#![allow(clippy::unwrap_used)]
use super::*;

fn known() -> Variables {
    Variables::from([
        ("kubernetes", "1.36.3".to_owned()),
        ("revision", "1.1".to_owned()),
    ])
}

#[test]
fn values_come_in_and_what_nobody_knows_is_an_error() {
    for (template, text) in [
        ("", Some("")),
        (
            "kube-${kubernetes} (= ${kubernetes}-${revision})\n",
            Some("kube-1.36.3 (= 1.36.3-1.1)\n"),
        ),
        ("case \"$1\" in", Some("case \"$1\" in")),
        ("${kubernets}", None),
        ("${kubernetes", None),
    ] {
        assert_eq!(expand(template, &known()).ok().as_deref(), text);
    }
}

#[test]
fn a_package_with_a_service_gets_its_unit_and_scripts_and_others_do_not() {
    let recipe = Recipe {
        control: "Package: kubelet\nVersion: ${kubernetes}-${revision}\nArchitecture: amd64\n"
            .to_owned(),
        install: "usr/bin/kube usr/lib/${kubernetes}/kube\n".to_owned(),
        links: "/usr/lib/${kubernetes}/kube usr/bin/kubelet\n".to_owned(),
        unit: Some("kubelet.service".to_owned()),
        copyright: "of ${package}".to_owned(),
        scripts: vec![("postinst", "enable ${unit}".to_owned())],
    };
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let plan = plan_deb(&recipe, &known()).unwrap();
    assert_eq!(
        plan,
        DebPlan {
            file: "kubelet_1.36.3-1.1_amd64.deb".to_owned(),
            control: "Package: kubelet\nVersion: 1.36.3-1.1\nArchitecture: amd64\n".to_owned(),
            install: vec![
                pair("usr/bin/kube", "usr/lib/1.36.3/kube"),
                pair("kubelet.service", "usr/lib/systemd/system/kubelet.service"),
            ],
            links: vec![pair("/usr/lib/1.36.3/kube", "usr/bin/kubelet")],
            scripts: vec![("postinst", "enable kubelet.service".to_owned())],
            copyright: pair("usr/share/doc/kubelet/copyright", "of kubelet"),
        }
    );
    let without_unit = plan_deb(
        &Recipe {
            unit: None,
            ..recipe
        },
        &known(),
    )
    .unwrap();
    assert_eq!(
        (without_unit.scripts.len(), without_unit.install.len()),
        (0, 1)
    );
}

fn settings() -> Settings {
    Settings {
        source: Path::new("..").canonicalize().unwrap(),
        cache: PathBuf::new(),
        output: PathBuf::new(),
        mirror: None,
        site: None,
        kubernetes: Vec::new(),
        sign: None,
        trust: None,
        debian: super::super::cache::Reuse::Cached,
    }
}

fn plans() -> Vec<DebPlan> {
    let (settings, root) = (settings(), settings().rootfs("debs"));
    let variables = variables(&settings).unwrap();
    let plan =
        |folder: PathBuf| plan_deb(&load_recipe(&root, &folder).unwrap(), &variables).unwrap();
    folders(&root).unwrap().into_iter().map(plan).collect()
}

#[test]
fn the_packages_are_whole_and_depend_on_each_other_in_their_own_version() {
    let plans = plans();
    let controls: Vec<Control> = plans
        .iter()
        .map(|plan| Control::parse(&plan.control).unwrap())
        .collect();
    let names: Vec<&str> = controls.iter().map(Control::package).collect();
    let kube = names
        .iter()
        .find(|name| name.starts_with("kube-1."))
        .unwrap();
    for needed in [
        "containerd",
        "cri-tools",
        "kubeadm",
        "kubectl",
        "kubelet",
        "kubernetes-cni",
    ] {
        assert!(names.contains(&needed), "{names:?}");
    }
    for control in &controls {
        assert!(control.version().ends_with(REVISION), "{control:?}");
        assert!(
            control
                .get("Description")
                .is_some_and(|text| !text.is_empty()),
            "{control:?}"
        );
        if ["kubeadm", "kubectl", "kubelet"].contains(&control.package()) {
            let exact = format!("{kube} (= {})", control.version());
            assert!(
                control.get("Depends").unwrap().starts_with(&exact),
                "{control:?}"
            );
        }
    }
}

/// The real script under the real shell, with stand-ins that tell what they were asked.
#[test]
fn installing_and_upgrading_neither_starts_nor_restarts_a_service() {
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("said");
    for name in ["systemctl", "deb-systemd-helper", "deb-systemd-invoke"] {
        let path = dir.path().join(name);
        let text = format!("#!/bin/sh\necho {name} \"$@\" >>{}\n", said.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let plans = plans();
    let with_services: Vec<&DebPlan> = plans
        .iter()
        .filter(|plan| !plan.scripts.is_empty())
        .collect();
    assert_eq!(with_services.len(), 2);
    for plan in with_services {
        for (script, arguments) in [
            ("postinst", &["configure"][..]),
            ("prerm", &["upgrade", "2"]),
            ("postrm", &["upgrade", "2"]),
            ("postinst", &["configure", "1"]),
        ] {
            let (_, text) = plan
                .scripts
                .iter()
                .find(|(name, _)| *name == script)
                .unwrap();
            // As on a server that runs.
            let text = text.replace("/run/systemd/system", &dir.path().display().to_string());
            let path = std::env::var("PATH").unwrap();
            let status = std::process::Command::new("sh")
                .arg("-euc")
                .arg(text)
                .arg(script)
                .args(arguments)
                .env("PATH", format!("{}:{path}", dir.path().display()))
                .status()
                .unwrap();
            assert!(status.success(), "{script}");
        }
    }
    let said = fs::read_to_string(said).unwrap();
    assert!(
        said.contains("systemctl --system daemon-reload")
            && said.contains("enable kubelet.service"),
        "{said}"
    );
    for word in ["restart", " start", " stop", "try-"] {
        assert!(!said.contains(word), "{said}");
    }
}
