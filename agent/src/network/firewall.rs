//! What the box serves on the provisioning network is for that network only: Linux answers for an address on every interface,
//! and the registry listens on all. Ironic goes nowhere else either: no server could load an image from there.

use std::{io::Write, net::Ipv4Addr, process::Stdio};

use anyhow::{Context, Result, ensure};

/// Ironic's user (overlays/box/usr/lib/sysusers.d, overlays/box/etc/firstlight/firewall.nft).
pub const IRONIC: u32 = 902;

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

fn load(rules: &str) -> Result<()> {
    let mut nft = std::process::Command::new("/usr/sbin/nft")
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
