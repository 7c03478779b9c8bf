//! Upstream's end-to-end tests of Kubernetes, and the images that they run: from the same Go module as the cluster, with Debian's programs
//! beside them. What no image can be made for, upstream's own word would be needed for: those tests fail, and their image is named.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use firstlight_api::names::REGISTRY;
use imagebuilder::build::settings::find_source;
use imagebuilder::build::{Log, module_folder};
use imagebuilder::registry::layer::Entry;
use imagebuilder::registry::store::{Image, RegistryTree};
use serde::{Deserialize, Serialize};
use serde_json::json;

const KUBERNETES: &str = "k8s.io/kubernetes";
/// How they are built, from which package, and what they are called.
const PROGRAMS: [(&[&str], &str, &str); 6] = [
    (&["build"], "k8s.io/kubernetes/test/images/agnhost", AGNHOST),
    (
        &["build"],
        "k8s.io/kubernetes/test/images/nonewprivs",
        "nnp",
    ),
    (
        &["build"],
        "k8s.io/kubernetes/test/images/regression-issue-74839",
        "regression-issue-74839",
    ),
    (&["build"], "k8s.io/sample-apiserver", "sample-apiserver"),
    (&["build"], "github.com/onsi/ginkgo/v2/ginkgo", "ginkgo"),
    (
        &["test", "-c", "-vet=off"],
        "k8s.io/kubernetes/test/e2e",
        "e2e.test",
    ),
];
const AGNHOST: &str = "agnhost";
/// Of upstream's folder for each of these, what its Dockerfile puts beside agnhost.
const PAGES: [&str; 2] = ["kitten", "nautilus"];
/// Below the registry's name.
const REPOSITORY: &str = "e2e";
/// As upstream's `test/utils/image/manifest.go` calls them, what starts in them, and their layers above Debian's programs.
const IMAGES: [(&str, &str, &[&str], &[&str]); 12] = [
    (AGNHOST, "2.63.0", &["/agnhost", "pause"], &[AGNHOST]),
    (AGNHOST, "2.55", &["/agnhost", "pause"], &[AGNHOST]),
    ("busybox", "1.37.0-1", &["/bin/sh"], &[]),
    ("glibc-dns-testing", "2.0.0", &["/bin/sh"], &[]),
    (
        "kitten",
        "1.8",
        &["/agnhost", "test-webserver"],
        &[AGNHOST, "kitten"],
    ),
    (
        "nautilus",
        "1.8",
        &["/agnhost", "test-webserver"],
        &[AGNHOST, "nautilus"],
    ),
    ("nginx", "1.15-4", &["/usr/sbin/nginx"], &[]),
    ("nginx", "1.27-0", &["/usr/sbin/nginx"], &[]),
    ("nonewprivs", "1.4", &["/usr/local/bin/nnp"], &["nnp"]),
    ("nonroot", "1.5", &["/bin/sh"], &[]),
    (
        "regression-issue-74839",
        "1.4",
        &["/regression-issue-74839"],
        &["regression-issue-74839"],
    ),
    (
        "sample-apiserver",
        "1.29.2",
        &["/sample-apiserver"],
        &["sample-apiserver"],
    ),
];
/// Who runs in the image that has another user than root.
const NONROOT: (&str, &str) = ("nonroot", "1234");
/// Of the tree, what an image needs.
const TREE: [&str; 11] = [
    "bin", "etc", "lib", "lib64", "root", "run", "sbin", "tmp", "uploads", "usr", "var",
];

/// What a run needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Suite {
    /// A registry's storage with the images.
    pub storage: PathBuf,
    programs: PathBuf,
}

/// How one test ended.
#[derive(Debug)]
pub struct Ended {
    pub name: String,
    pub state: State,
    /// In a line.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Passed,
    Failed,
}

/// In the folder `cache`, which keeps what is there already.
pub fn make_suite(cache: &Path) -> Result<Suite> {
    let folder = find_source()?.join("qemu-tests/conformance");
    let programs = cache.join("programs");
    fs::create_dir_all(&programs).context("making a folder for the tests")?;
    for (verb, package, name) in PROGRAMS {
        eprintln!("  building {package}");
        run(Command::new("go")
            .args(verb)
            .args(["-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
            .arg(programs.join(name))
            .arg(package)
            .current_dir(folder.join("go"))
            .envs([
                ("CGO_ENABLED", "0"),
                ("GOFLAGS", "-mod=readonly"),
                ("GOTOOLCHAIN", "local"),
            ]))?;
    }
    let tree = make_tree(&folder, cache)?;
    let storage = cache.join("storage");
    if storage.exists() {
        fs::remove_dir_all(&storage).context("removing the last images")?;
    }
    let mut store = RegistryTree::create(&storage, 0)?;
    let all = Entry::Tree {
        tar: tree,
        parts: &TREE,
    };
    store.add_layer("tree", &[all])?;
    let program = |name: &str, to: &str, mode| Entry::File {
        from: programs.join(name),
        to: to.into(),
        mode,
    };
    let log = Log::create(cache.join("log"))?;
    let images = module_folder(&log, &folder.join("go"), KUBERNETES)?.join("test/images");
    let file = |folder: &str, name: &str| Entry::File {
        from: images.join(folder).join(name),
        to: name.into(),
        mode: 0o644,
    };
    let agnhost = [
        program(AGNHOST, AGNHOST, 0o755),
        program(AGNHOST, "agnhost-2", 0o755),
        file("agnhost/porter", "localhost.crt"),
        file("agnhost/porter", "localhost.key"),
    ];
    store.add_layer(AGNHOST, &agnhost)?;
    store.add_layer("nnp", &[program("nnp", "usr/local/bin/nnp", 0o6755)])?;
    for name in ["regression-issue-74839", "sample-apiserver"] {
        store.add_layer(name, &[program(name, name, 0o755)])?;
    }
    for name in PAGES {
        let folder = format!("{name}/html");
        let pages = ["data.json", &format!("{name}.jpg")].map(|page| file(&folder, page));
        store.add_layer(name, &pages)?;
    }
    for (name, tag, start, layers) in IMAGES {
        let (program, arguments) = start.split_first().context("something starts")?;
        let mut config = json!({
            "Entrypoint": [program], "Cmd": arguments, "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin"],
        });
        if name == NONROOT.0 {
            config["User"] = json!(NONROOT.1);
        }
        store.add_image(&Image {
            repository: format!("{REPOSITORY}/{name}"),
            tag: tag.to_owned(),
            layers: ["tree"]
                .iter()
                .chain(layers)
                .map(ToString::to_string)
                .collect(),
            config,
        })?;
    }
    Ok(Suite { storage, programs })
}

/// Anew when its recipe is newer.
fn make_tree(folder: &Path, cache: &Path) -> Result<PathBuf> {
    let tar = cache.join("tree.tar");
    let recipe = ["packages", "customize"].map(|name| folder.join(name));
    let age = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    if recipe.iter().all(|path| age(path) < age(&tar)) {
        return Ok(tar);
    }
    let list = fs::read_to_string(&recipe[0]).context("reading the list of packages")?;
    let packages: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    let new = cache.join("new.tar");
    run(Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase"])
        .arg(format!("--include={}", packages.join(",")))
        .args([
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
        ])
        .arg(format!(
            "--customize-hook=chroot \"$1\" sh -eu <{}",
            recipe[1].display()
        ))
        .arg("trixie")
        .arg(&new))?;
    fs::rename(&new, &tar).context("keeping the tree")?;
    Ok(tar)
}

impl Suite {
    /// Those whose name `focus` is in and `skip` is not, both regular expressions, so many at a time; `out` gets their log and report.
    pub fn run(
        &self,
        kubeconfig: &Path,
        kubectl: &Path,
        [focus, skip]: [&str; 2],
        procs: usize,
        out: &Path,
    ) -> Result<Vec<Ended>> {
        let registries = json!({
            "promoterE2eRegistry": format!("{REGISTRY}/{REPOSITORY}"),
            "gcRegistry": format!("{REGISTRY}/kubernetes"),
            "gcEtcdRegistry": format!("{REGISTRY}/kubernetes"),
        });
        let list = out.join("registries.yaml");
        fs::write(&list, registries.to_string())?;
        let log = File::create(out.join("log"))?;
        let mut command = Command::new(self.programs.join("ginkgo"));
        command
            .arg(format!("--procs={procs}"))
            .arg(format!("--focus={focus}"))
            .args([
                "--timeout=6h",
                "--no-color",
                "--keep-going",
                "--json-report=report.json",
            ])
            .arg(format!("--output-dir={}", out.display()));
        if !skip.is_empty() {
            command.arg(format!("--skip={skip}"));
        }
        // How many failed is said by the report.
        command
            .arg(self.programs.join("e2e.test"))
            .args(["--", "--provider=skeleton", "--disable-log-dump"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--kubectl-path={}", kubectl.display()))
            .env("KUBE_TEST_REPO_LIST", &list)
            .env("HOME", out)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .context("starting ginkgo")?;
        let report = fs::read(out.join("report.json"))
            .with_context(|| format!("no report: see {}", out.join("log").display()))?;
        read_report(&report)
    }
}

/// Of ginkgo: only what is read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    #[serde(default)]
    spec_reports: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

fn read_report(bytes: &[u8]) -> Result<Vec<Ended>> {
    let reports: Vec<Report> = serde_json::from_slice(bytes).context("reading the report")?;
    let specs = reports.into_iter().flat_map(|report| report.spec_reports);
    // What is set up before and cleaned up after them is in the report, too.
    let tests = specs.filter(|spec| spec.leaf_node_type == "It");
    let ended = tests.filter_map(|spec| {
        let state = match spec.state.as_str() {
            "passed" => State::Passed,
            "skipped" | "pending" => return None,
            _ => State::Failed,
        };
        let containers = spec.container_hierarchy_texts.unwrap_or_default();
        let name = containers
            .into_iter()
            .chain([spec.leaf_node_text])
            .collect::<Vec<_>>()
            .join(" ");
        let message = spec
            .failure
            .map(|failure| failure.message)
            .unwrap_or_default();
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(Ended {
            name,
            state,
            message,
        })
    });
    let mut ended: Vec<_> = ended.collect();
    ended.sort_by(|one, other| (one.state, &one.name).cmp(&(other.state, &other.name)));
    Ok(ended)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    ensure!(
        status.success(),
        "{}: {status}",
        command.get_program().display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_is_read_for_its_tests_alone() {
        let spec = |kind: &str, texts: Option<&[&str]>, text: &str, state: &str| {
            json!({
                "LeafNodeType": kind, "ContainerHierarchyTexts": texts, "LeafNodeText": text, "State": state,
                "Failure": (state == "timedout").then(|| json!({"Message": "waited\n  long"})),
            })
        };
        let report = json!([{"SpecReports": [
            spec("SynchronizedBeforeSuite", None, "", "passed"),
            spec("It", Some(&["[sig-node] Pods"]), "stop", "timedout"),
            spec("It", Some(&["[sig-node] Pods"]), "start", "passed"),
            spec("It", Some(&["[sig-apps] Jobs"]), "end", "skipped"),
        ]}]);
        let ended = read_report(report.to_string().as_bytes()).unwrap();
        let told: Vec<_> = ended
            .iter()
            .map(|one| (one.name.as_str(), one.state, one.message.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("[sig-node] Pods start", State::Passed, ""),
                ("[sig-node] Pods stop", State::Failed, "waited long"),
            ]
        );
        assert!(read_report(b"").is_err());
    }
}
