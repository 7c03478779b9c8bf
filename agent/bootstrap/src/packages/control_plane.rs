//! What several orders do with a node of a cluster.

use anyhow::{Result, ensure};

use super::Server;

/// keepalived goes by the process of the API server, which is of no use while the etcd beside it changes. It is enabled, so that it comes back after a
/// power cut, too.
pub fn while_another_answers<S: Server, T>(
    server: &mut S,
    work: impl FnOnce(&mut S) -> T,
) -> Result<T> {
    const KEEPALIVED: &str = "keepalived";
    let is_kept = server.run("systemctl", &["is-enabled", KEEPALIVED])?;
    if !is_kept.is_success {
        return Ok(work(server));
    }
    systemctl(server, &["stop", KEEPALIVED])?;
    let done = work(server);
    systemctl(server, &["start", KEEPALIVED])?;
    Ok(done)
}

pub fn systemctl(server: &mut impl Server, arguments: &[&str]) -> Result<()> {
    let said = server.run("systemctl", arguments)?;
    ensure!(
        said.is_success,
        "systemctl {}: {}",
        arguments.join(" "),
        said.text.trim()
    );
    Ok(())
}
