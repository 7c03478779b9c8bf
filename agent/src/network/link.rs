//! Network devices through rtnetlink: observe and change, nothing else.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use firstlight_api::site::{Ipv4Network, MacAddr, Subnet};
use futures_util::TryStreamExt;
use rtnetlink::{
    Handle, LinkDummy, LinkUnspec, RouteMessageBuilder,
    packet_route::{
        address::{AddressAttribute, AddressMessage},
        link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage},
    },
};

use super::choose::Link;
use crate::options::BoxForm;

/// Every network device; `devices` is `/sys/class/net`.
pub async fn observe_links(handle: &Handle, devices: &Path) -> Result<Vec<Link>> {
    let messages: Vec<LinkMessage> = handle
        .link()
        .get()
        .execute()
        .try_collect()
        .await
        .context("listing network devices")?;
    Ok(messages
        .iter()
        .filter_map(|message| parse_link(message, devices))
        .collect())
}

fn parse_link(message: &LinkMessage, devices: &Path) -> Option<Link> {
    let flags = message.header.flags;
    if flags.contains(LinkFlags::Loopback) || message.header.link_layer_type != LinkLayerType::Ether
    {
        return None;
    }
    let (mut name, mut current, mut permanent, mut software) = (None, None, None, false);
    let mut link_ups = 0;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(value) => name = Some(value.clone()),
            LinkAttribute::CarrierUpCount(count) => link_ups = *count,
            LinkAttribute::Address(bytes) => current = mac_of(bytes),
            LinkAttribute::PermAddress(bytes) => permanent = mac_of(bytes),
            LinkAttribute::LinkInfo(infos) => {
                software |= infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)));
            }
            _ => {}
        }
    }
    let name = name?;
    let device = devices.join(&name);
    let hardware = if software {
        None
    } else {
        fs::canonicalize(device.join("device")).ok()
    };
    Some(Link {
        index: message.header.index,
        mac: permanent.or(current),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        link_ups,
        hardware: hardware.map(|path| path.to_string_lossy().into_owned()),
        wireless: device.join("phy80211").exists(),
        name,
    })
}

fn mac_of(bytes: &[u8]) -> Option<MacAddr> {
    MacAddr::new(bytes.try_into().ok()?)
}

pub async fn raise(handle: &Handle, index: u32) -> Result<()> {
    let message = LinkUnspec::new_with_index(index).up().build();
    handle
        .link()
        .set(message)
        .execute()
        .await
        .with_context(|| format!("bringing up network device {index}"))
}

/// IPv4 addresses of the device, with the messages that name them.
async fn addresses_of(handle: &Handle, index: u32) -> Result<Vec<(Ipv4Addr, u8, AddressMessage)>> {
    let existing: Vec<_> = handle
        .address()
        .get()
        .set_link_index_filter(index)
        .execute()
        .try_collect()
        .await
        .context("listing addresses")?;
    // The kernel ignores the filter without strict checking.
    let own = existing
        .into_iter()
        .filter(|message: &AddressMessage| message.header.index == index);
    let read = own.filter_map(|message| {
        let local = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
                _ => None,
            });
        Some((local?, message.header.prefix_len, message))
    });
    Ok(read.collect())
}

/// IPv4 addresses of the device.
pub async fn addresses(handle: &Handle, index: u32) -> Result<Vec<Subnet>> {
    let all = addresses_of(handle, index).await?;
    let valid = all
        .into_iter()
        .filter_map(|(address, prefix, _)| Subnet::new(address, prefix).ok());
    Ok(valid.collect())
}

/// Makes the device ready for the address, and says whether it has it already. Other IPv4 addresses are left from an earlier configuration and are taken away,
/// except on an installed machine, where they are somebody's.
pub async fn make_room(handle: &Handle, index: u32, wanted: Subnet, form: BoxForm) -> Result<bool> {
    let mut present = false;
    for (address, prefix, message) in addresses_of(handle, index).await? {
        if address == wanted.address() && prefix == wanted.prefix() {
            present = true;
            continue;
        }
        ensure!(
            form != BoxForm::Installed,
            "the NIC that site.yaml names has the address {address}, which is not the box's"
        );
        tracing::info!(index, %address, "removing a stale address");
        handle
            .address()
            .del(message)
            .execute()
            .await
            .with_context(|| format!("removing the address {address}"))?;
    }
    Ok(present)
}

/// Takes all IPv4 addresses away.
pub async fn take_addresses(handle: &Handle, index: u32) -> Result<()> {
    for (address, _, message) in addresses_of(handle, index).await? {
        let taken = handle.address().del(message).execute().await;
        taken.with_context(|| format!("removing the address {address}"))?;
    }
    Ok(())
}

pub async fn add_address(handle: &Handle, index: u32, address: Ipv4Addr, prefix: u8) -> Result<()> {
    let added = handle
        .address()
        .add(index, IpAddr::V4(address), prefix)
        .execute()
        .await;
    added
        .or_else(accept_existing)
        .with_context(|| format!("adding the address {address}/{prefix}"))
}

/// A route to each of `networks` by the router `gateway`; what is there already stays.
pub async fn add_routes(
    handle: &Handle,
    index: u32,
    gateway: Ipv4Addr,
    networks: impl IntoIterator<Item = Ipv4Network>,
) -> Result<()> {
    for network in networks {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network.first(), network.prefix())
            .gateway(gateway)
            .output_interface(index)
            .build();
        let added = handle.route().add(route).execute().await;
        added
            .or_else(accept_existing)
            .with_context(|| format!("adding a route to {network} by {gateway}"))?;
    }
    Ok(())
}

fn accept_existing(error: rtnetlink::Error) -> Result<(), rtnetlink::Error> {
    match &error {
        rtnetlink::Error::NetlinkError(message)
            if message.to_io().kind() == std::io::ErrorKind::AlreadyExists =>
        {
            Ok(())
        }
        _ => Err(error),
    }
}

/// A dummy device `name` that is up and has `address`/32.
pub async fn ensure_dummy(handle: &Handle, name: &str, address: Ipv4Addr) -> Result<()> {
    let message = LinkDummy::new(name).up().build();
    handle
        .link()
        .add(message)
        .execute()
        .await
        .or_else(accept_existing)
        .with_context(|| format!("making the dummy device {name}"))?;
    let link = handle
        .link()
        .get()
        .match_name(name.to_owned())
        .execute()
        .try_next()
        .await
        .context("finding the dummy device")?;
    let index = link
        .with_context(|| format!("{name} vanished"))?
        .header
        .index;
    raise(handle, index).await?;
    add_address(handle, index, address, 32).await
}
