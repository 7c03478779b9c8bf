//! The pair of devices that leads from a pod to the bridge of its node.

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;

use crate::{
    attachment::{Attachment, short},
    kinds::Route,
    program,
};

/// The node's end of the pair; fifteen characters is what the kernel takes.
pub fn name(container: &str, interface: &str) -> String {
    format!("ovn{}", short(&format!("{container} {interface}")))
}

pub async fn connect(device: &str, attachment: &Attachment, mac: &str, mtu: u32) -> Result<()> {
    let (netns, interface) = (&attachment.netns, &attachment.interface);
    ensure!(
        !netns.is_empty(),
        "the pod's network namespace is not below /run/netns"
    );
    for words in [
        format!(
            "link add {device} mtu {mtu} type veth peer name {interface} mtu {mtu} address {mac} netns {netns}"
        ),
        format!("link set dev {device} up"),
        format!("-n {netns} link set dev {interface} up"),
    ] {
        program::say("ip", &words).await?;
    }
    Ok(())
}

pub async fn number(attachment: &Attachment, address: IpNet, routes: &[Route]) -> Result<()> {
    let (netns, interface) = (&attachment.netns, &attachment.interface);
    // Nobody else can have it, and the pod wants to use it now.
    let at_once = if address.addr().is_ipv6() {
        "nodad"
    } else {
        ""
    };
    let add = format!("-n {netns} address add {address} dev {interface} {at_once}");
    program::say("ip", &add).await?;
    for Route { to, via } in routes {
        let add = format!("-n {netns} route add {to} via {via} dev {interface}");
        program::say("ip", &add)
            .await
            .with_context(|| format!("the route to {to}"))?;
    }
    Ok(())
}

/// By the pod's kernel: where Open vSwitch itself carries packets, nobody else does.
pub async fn fill_in_sums(attachment: &Attachment) -> Result<()> {
    let (netns, interface) = (&attachment.netns, &attachment.interface);
    let words = format!("netns exec {netns} ethtool -K {interface} tx off");
    program::say("ip", &words).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_into_the_kernels_fifteen_letters() {
        assert_eq!(name("c1", "net1").len(), 15);
        assert_ne!(name("c1", "net1"), name("c1", "net2"));
    }
}
