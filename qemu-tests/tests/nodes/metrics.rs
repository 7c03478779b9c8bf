//! `kubectl top` knows both nodes.

use std::time::Duration;

use anyhow::{Result, ensure};
use qemu_tests::nodes::{Cluster, wait};

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    wait("kubectl top nodes", Duration::from_mins(2), || {
        let top = cluster.kubectl("top nodes --no-headers")?;
        ensure!(top.lines().count() == 2, "{top}");
        Ok(())
    })
}
