//! Upstream's Go programs, compiled for the image from `rootfs/go`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::cache::Work;
use super::command::{Log, Program};
use super::settings::Settings;

/// One Go program: the module below `rootfs/go`, the package, where it goes, and names that are links to it.
#[derive(Clone, Copy, Debug)]
pub struct GoProgram<'a> {
    pub module: &'a str,
    pub package: &'a str,
    pub name: &'a str,
    pub links: &'a [&'a str],
}

/// A plugin of the CNI project: its folder there, and its name.
macro_rules! cni {
    ($folder:literal, $name:literal) => {
        GoProgram {
            module: "containers",
            package: concat!(
                "github.com/containernetworking/plugins/plugins/",
                $folder,
                "/",
                $name
            ),
            name: concat!("usr/lib/cni/", $name),
            links: &[],
        }
    };
}

/// Programs of the layer `kube`, where they are on the box.
pub const KUBE_PROGRAMS: &[GoProgram<'static>] = &[
    GoProgram {
        module: "kubernetes",
        package: "./cmd/kube",
        name: "usr/bin/kube",
        links: &[
            "etcd",
            "etcdctl",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-proxy",
            "kube-scheduler",
            "kubeadm",
            "kubectl",
            "kubelet",
        ],
    },
    GoProgram {
        module: "cluster-api",
        package: "sigs.k8s.io/cluster-api/cmd/clusterctl",
        name: "usr/bin/clusterctl",
        links: &[],
    },
    GoProgram {
        module: "helm",
        package: "helm.sh/helm/v4/cmd/helm",
        name: "usr/bin/helm",
        links: &[],
    },
    GoProgram {
        module: "containers",
        package: "./cmd/await",
        name: "usr/lib/firstlight/await",
        links: &[],
    },
    GoProgram {
        module: "containers",
        package: "./cmd/containerd",
        name: "usr/bin/containerd",
        links: &[],
    },
    GoProgram {
        module: "containers",
        package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        name: "usr/bin/containerd-shim-runc-v2",
        links: &[],
    },
    GoProgram {
        module: "containers",
        package: "github.com/containerd/containerd/v2/cmd/ctr",
        name: "usr/bin/ctr",
        links: &[],
    },
    GoProgram {
        module: "metrics",
        package: "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics",
        name: "usr/bin/victoria-metrics",
        links: &[],
    },
    GoProgram {
        module: "metrics",
        package: "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert",
        name: "usr/bin/vmalert",
        links: &[],
    },
    GoProgram {
        module: "metrics",
        package: "github.com/prometheus/node_exporter",
        name: "usr/bin/node_exporter",
        links: &[],
    },
    GoProgram {
        module: "logs",
        package: "github.com/VictoriaMetrics/VictoriaLogs/app/victoria-logs",
        name: "usr/bin/victoria-logs",
        links: &[],
    },
    GoProgram {
        module: "alerts",
        package: "github.com/prometheus/alertmanager/cmd/alertmanager",
        name: "usr/bin/alertmanager",
        links: &[],
    },
    cni!("main", "bridge"),
    cni!("main", "loopback"),
    cni!("ipam", "host-local"),
    cni!("meta", "portmap"),
];

/// Programs that only nodes have.
pub const NODE_PROGRAMS: &[GoProgram<'static>] = &[
    GoProgram {
        module: "cri-tools",
        package: "sigs.k8s.io/cri-tools/cmd/crictl",
        name: "usr/bin/crictl",
        links: &[],
    },
    // What people name in a NetworkAttachmentDefinition.
    cni!("main", "host-device"),
    cni!("main", "ipvlan"),
    cni!("main", "macvlan"),
    cni!("main", "vlan"),
    cni!("ipam", "static"),
    cni!("meta", "tuning"),
];

/// Programs of a server that are nobody's but its image's: clusters bring a `node_exporter` of their own.
pub const SERVER_PROGRAMS: &[GoProgram<'static>] = &[GoProgram {
    module: "metrics",
    package: "github.com/prometheus/node_exporter",
    name: "usr/lib/firstlight/node_exporter",
    links: &[],
}];

/// Programs of container images, of the box and of nodes, each image in a folder of its own.
pub const IMAGE_PROGRAMS: &[GoProgram<'static>] = &[
    GoProgram {
        module: "containers",
        package: "./cmd/pause",
        name: "pause/pause",
        links: &[],
    },
    GoProgram {
        module: "containers",
        package: "./cmd/coredns",
        name: "coredns/coredns",
        links: &[],
    },
    GoProgram {
        module: "containers",
        package: "./cmd/registry",
        name: "registry/registry",
        links: &[],
    },
    GoProgram {
        module: "containers",
        package: "./cmd/flannel",
        name: "flannel/flannel",
        links: &[],
    },
    GoProgram {
        module: "cluster-api",
        package: "sigs.k8s.io/cluster-api/core",
        name: "cluster-api/core",
        links: &[],
    },
    GoProgram {
        module: "cluster-api",
        package: "sigs.k8s.io/cluster-api/bootstrap/kubeadm",
        name: "cluster-api/kubeadm-bootstrap",
        links: &[],
    },
    GoProgram {
        module: "cluster-api",
        package: "sigs.k8s.io/cluster-api/controlplane/kubeadm",
        name: "cluster-api/kubeadm-control-plane",
        links: &[],
    },
];

/// The build tool that lays out containerd's store.
pub const SEED: GoProgram<'static> = GoProgram {
    module: "containers",
    package: "./cmd/seed",
    name: "seed",
    links: &[],
};

/// Version of the Go compiler: it decides the bytes of the programs.
pub fn go_version(log: &Log) -> Result<String> {
    Ok(Program::new("go", log)
        .arg("version")
        .read()?
        .trim()
        .to_owned())
}

/// Builds Go programs into `root`.
pub fn build_go(
    work: &Work,
    settings: &Settings,
    programs: &[GoProgram<'_>],
    root: &Path,
) -> Result<()> {
    for program in programs {
        let module = settings.rootfs("go").join(program.module);
        let out = root.join(program.name);
        fs::create_dir_all(out.parent().context("a Go program needs a folder")?)?;
        Program::new("go", &work.log)
            .current_dir(&module)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .env("GOTOOLCHAIN", "local")
            .args([
                "build",
                "-trimpath",
                "-buildvcs=false",
                "-ldflags",
                &linker_flags(&module)?,
                "-o",
            ])
            .arg(&out)
            .arg(program.package)
            .run()?;
        for link in program.links {
            let target = Path::new(program.name)
                .file_name()
                .context("a Go program needs a name")?;
            symlink(target, out.with_file_name(link)).with_context(|| format!("linking {link}"))?;
        }
    }
    Ok(())
}

/// Versions that programs report; Kubernetes refuses to work without them.
fn linker_flags(module: &Path) -> Result<String> {
    let text = fs::read_to_string(module.join("go.mod"))
        .with_context(|| format!("reading {}/go.mod", module.display()))?;
    let mut values = Vec::new();
    for (dependency, packages) in [
        (
            "k8s.io/kubernetes",
            &[
                "k8s.io/component-base/version",
                "k8s.io/client-go/pkg/version",
            ][..],
        ),
        (
            "sigs.k8s.io/cluster-api",
            &["sigs.k8s.io/cluster-api/version"][..],
        ),
    ] {
        let Some(version) = required_version(&text, dependency) else {
            continue;
        };
        let numbers: Vec<&str> = version.trim_start_matches('v').split('.').collect();
        ensure!(
            numbers.len() >= 3,
            "{dependency} {version} in {}/go.mod is not a release",
            module.display()
        );
        for package in packages {
            values.extend([
                (format!("{package}.gitVersion"), version),
                (format!("{package}.gitMajor"), numbers[0]),
                (format!("{package}.gitMinor"), numbers[1]),
                (format!("{package}.gitTreeState"), "clean"),
                (format!("{package}.buildDate"), "2026-11-01T00:00:00Z"),
            ]);
        }
    }
    let variables = [
        ("github.com/containerd/containerd/v2", "version.Version"),
        ("helm.sh/helm/v4", "internal/version.version"),
        ("sigs.k8s.io/cri-tools", "pkg/version.Version"),
        (
            "github.com/VictoriaMetrics/VictoriaMetrics",
            "lib/buildinfo.Version",
        ),
        (
            "github.com/containernetworking/plugins",
            "pkg/utils/buildversion.BuildVersion",
        ),
    ];
    for (dependency, variable) in variables {
        if let Some(version) = required_version(&text, dependency) {
            values.push((format!("{dependency}/{variable}"), version));
        }
    }
    let values = values
        .iter()
        .map(|(variable, value)| format!(" -X {variable}={value}"));
    Ok(format!("-s -w{}", values.collect::<String>()))
}

/// Where Go keeps a module that the one in `folder` requires, unpacked; fetched if it is not there.
pub fn module_folder(log: &Log, folder: &Path, module: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Download {
        dir: PathBuf,
    }
    let text = Program::new("go", log)
        .current_dir(folder)
        .env("GOFLAGS", "-mod=readonly")
        .env("GOTOOLCHAIN", "local")
        .args(["mod", "download", "-json", module])
        .read()?;
    let download: Download = serde_json::from_str(&text)
        .with_context(|| format!("what `go mod download` said of {module}"))?;
    Ok(download.dir)
}

/// The version that a `go.mod` requires of a module.
pub fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    let mut lines = go_mod
        .lines()
        .map(|line| line.trim().trim_start_matches("require "));
    lines.find_map(|line| {
        line.strip_prefix(module)?
            .strip_prefix(' ')?
            .split(' ')
            .next()
    })
}

#[cfg(test)]
mod tests;
