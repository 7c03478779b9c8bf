//! What the box serves on the provisioning network is for that network only: Linux answers for an address on every interface,
//! and the registry listens on all. Ironic goes nowhere else either: no server could load an image from there. Ironic and the registry
//! are upstream's programs, which take whatever comes: here is how much of it one address may send them.

use std::{io::Write, net::Ipv4Addr, process::Stdio};

use anyhow::{Context, Result, ensure};

/// Ironic's user (overlays/box/usr/lib/sysusers.d, overlays/box/etc/firstlight/firewall.nft).
pub const IRONIC: u32 = 902;
/// Connections of one address to the registry, and as many to Ironic: a node pulls three layers at a time.
pub const MOST_CONNECTIONS: u32 = 32;
const NFT: &str = "/usr/sbin/nft";
/// What holds wherever the box is; loaded before the agent starts.
const STANDING: &str = "/etc/firstlight/firewall.nft";
const TABLES: [&str; 2] = ["table inet firstlight", "table inet firstlight_site"];

/// A table of its own beside `/etc/firstlight/firewall.nft`, replaced as a whole.
pub fn rules(address: Ipv4Addr, interface: &str) -> String {
    // Kernel names have no quotes or spaces (`dev_valid_name`); ours are checked once more before they meet a parser.
    let interface: String = interface
        .chars()
        .filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'))
        .collect();
    format!(
        "table inet firstlight_site\n\
         delete table inet firstlight_site\n\
         table inet firstlight_site {{\n    \
         set callers {{\n        \
         type ipv4_addr . inet_service; size 65535; flags dynamic;\n    \
         }}\n    \
         chain input {{\n        \
         type filter hook input priority filter; policy accept;\n        \
         iifname != \"{interface}\" accept\n        \
         meta nfproto ipv6 tcp dport {{ 5000, 6385 }} drop\n        \
         tcp dport {{ 5000, 6385 }} ct state new add @callers {{ ip saddr . tcp dport ct count over {MOST_CONNECTIONS} }} reject\n    \
         }}\n    \
         chain prerouting {{\n        \
         type filter hook prerouting priority raw; policy accept;\n        \
         iifname {{ \"lo\", \"box0\", \"cni0\", \"{interface}\" }} accept\n        \
         ip daddr {address} drop\n        \
         fib daddr type local tcp dport 5000 drop\n    \
         }}\n    \
         chain output {{\n        \
         type filter hook output priority filter; policy accept;\n        \
         meta skuid {IRONIC} ct state new oifname != {{ \"lo\", \"{interface}\" }} reject\n    \
         }}\n}}\n"
    )
}

pub async fn apply(address: Ipv4Addr, interface: &str) -> Result<()> {
    let rules = rules(address, interface);
    tokio::task::spawn_blocking(move || load(&rules)).await?
}

/// Puts back what somebody has flushed, as a reload of another firewall does; true if that had to be done.
pub async fn restore(address: Ipv4Addr, interface: &str) -> Result<bool> {
    let interface = interface.to_owned();
    tokio::task::spawn_blocking(move || restored(STANDING, address, &interface)).await?
}

/// [`restore`] with the file of what holds wherever the box is.
pub fn restored(standing: &str, address: Ipv4Addr, interface: &str) -> Result<bool> {
    let told = std::process::Command::new(NFT)
        .args(["list", "tables"])
        .output()
        .context("starting nft")?;
    let told = String::from_utf8_lossy(&told.stdout);
    let stands = |table: &&str| told.lines().any(|line| line == *table);
    if TABLES.iter().all(stands) {
        return Ok(false);
    }
    let site = rules(address, interface);
    load(&format!("include \"{standing}\"\n{site}"))?;
    Ok(true)
}

fn load(rules: &str) -> Result<()> {
    let mut nft = std::process::Command::new(NFT)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting nft")?;
    let mut input = nft.stdin.take().context("nft's input")?;
    input.write_all(rules.as_bytes()).context("telling nft")?;
    drop(input);
    let ended = nft.wait_with_output().context("waiting for nft")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "nft: {}", said.trim());
    Ok(())
}
