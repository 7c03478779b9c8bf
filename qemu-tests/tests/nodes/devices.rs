//! Device plugins are Ready where no device is, and say so.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};

/// What they say once they have looked for devices. The kernel of the machine that runs this may have no vfio.
const SAY: [(&str, &[&str]); 2] = [
    ("sriov", &["All servers started."]),
    ("qat", &["it offers no devices", "Start server for"]),
];

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    for (name, said) in SAY {
        let pods = format!("-n kube-system -l app={name}");
        wait("it has looked for devices", Duration::from_mins(2), || {
            let log = cluster.kubectl(&format!("logs {pods} --tail=-1"))?;
            let is_said = said.iter().any(|part| log.contains(part));
            is_said.then_some(()).with_context(|| log)
        })?;
        let pods = cluster.get(&format!("pods {pods}"))?;
        for pod in pods["items"].as_array().into_iter().flatten() {
            let container = &pod["status"]["containerStatuses"][0];
            ensure!(container["restartCount"] == 0, "{name}: {container}");
        }
    }
    Ok(())
}
