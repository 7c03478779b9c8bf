//! On each node, beside Open vSwitch and OVN's controller: says to them who this node is and where the databases are, joins NICs to networks
//! of the site, puts the plugin where containerd looks for it, and answers it.

use std::{
    collections::BTreeMap, fs, net::IpAddr, os::unix::fs::PermissionsExt as _, path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
};

use crate::{
    attach::Attacher,
    plugin::{self, Request},
    program,
};

const PLUGIN: &str = "/host/opt/cni/bin/firstlight-ovn";
const SERVICE: &str = "ovn-southbound";
const NAMESPACE: &str = "kube-system";
const PORT: u16 = 6642;
const CONTROLLER: &str = "/run/ovn/controller.ctl";
/// What is wrong on this node, for `ready`.
const PROBLEM: &str = "/run/ovn/problem";
const LOOK: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(10);
/// With `br-` before it, a device of the kernel.
const LONGEST_NETWORK: usize = 12;

/// Who carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// The kernel's module.
    System,
    /// Open vSwitch itself, where a kernel has no such module: slow.
    Netdev,
}

impl Datapath {
    fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Netdev => "netdev",
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let mut all = [Self::System, Self::Netdev].into_iter();
        all.find(|datapath| datapath.word() == text)
            .with_context(|| format!("datapath: `{text:.20}` is neither `system` nor `netdev`"))
    }
}

struct Settings {
    node: String,
    address: IpAddr,
    datapath: Datapath,
    /// In which tunnels run, if not by the node's own address.
    tunnels: Option<IpNet>,
    /// NICs by the networks of the site that they lead to.
    physical: BTreeMap<String, String>,
}

impl Settings {
    fn load() -> Result<Self> {
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
        let tunnels = variable("TUNNEL_SUBNET")?;
        let physical: BTreeMap<String, String> =
            serde_json::from_str(&variable("PHYSICAL_NETWORKS")?).context("physicalNetworks")?;
        for name in physical.keys() {
            let is_word =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            ensure!(
                !name.is_empty() && name.len() <= LONGEST_NETWORK && name.bytes().all(is_word),
                "physicalNetworks: `{name:.40}` is no name: at most {LONGEST_NETWORK} letters a-z, digits and `-`"
            );
        }
        Ok(Self {
            node: variable("NODE_NAME")?,
            address: variable("NODE_ADDRESS")?.parse().context("NODE_ADDRESS")?,
            datapath: Datapath::parse(&variable("DATAPATH")?)?,
            tunnels: match &*tunnels {
                "" => None,
                subnet => Some(
                    subnet
                        .parse()
                        .with_context(|| format!("tunnelSubnet: `{subnet:.60}` is no network"))?,
                ),
            },
            physical,
        })
    }
}

/// `FILE=SCHEMA` each; what is there stays.
pub async fn make_databases(databases: &[&str]) -> Result<()> {
    for database in databases {
        let (file, schema) = database.split_once('=').context("FILE=SCHEMA is wanted")?;
        if !Path::new(file).exists() {
            program::run("ovsdb-tool", ["create", file, schema]).await?;
        }
    }
    Ok(())
}

pub async fn run(client: Client) -> Result<()> {
    let settings = Settings::load()?;
    install_plugin(Path::new("/proc/self/exe"), Path::new(PLUGIN))?;
    let attacher = Attacher {
        client: client.clone(),
        node: settings.node.clone(),
        datapath: settings.datapath,
    };
    let listener = listen(Path::new(plugin::SOCKET))?;
    tokio::select! {
        never = serve(listener, attacher) => never,
        () = keep(&client, &settings) => Ok(()),
    }
}

/// One that is running is not written over.
fn install_plugin(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new).with_context(|| format!("writing {}", new.display()))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(&new, to).with_context(|| format!("writing {}", to.display()))
}

fn listen(path: &Path) -> Result<UnixListener> {
    let folder = path.parent().context("a folder")?;
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    drop(fs::remove_file(path));
    UnixListener::bind(path).with_context(|| format!("listening at {}", path.display()))
}

async fn serve(listener: UnixListener, attacher: Attacher) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let attacher = attacher.clone();
        tokio::spawn(async move {
            if let Err(error) = answer(stream, &attacher).await {
                tracing::warn!(error = format!("{error:#}"), "a request of the plugin");
            }
        });
    }
}

async fn answer(mut stream: UnixStream, attacher: &Attacher) -> Result<()> {
    let mut text = Vec::new();
    let mut asked = (&mut stream).take(plugin::MOST);
    tokio::time::timeout(REQUEST, asked.read_to_end(&mut text)).await??;
    if text.is_empty() {
        // [`is_ready`] wants to know only that somebody is here.
        return Ok(());
    }
    let request: Request = serde_json::from_slice(&text)?;
    let answer = attacher.answer(&request).await;
    stream.write_all(&serde_json::to_vec(&answer)?).await?;
    Ok(())
}

/// What others change is put right again.
async fn keep(client: &Client, settings: &Settings) {
    loop {
        let rest = match configure(client, settings).await {
            Ok(()) => {
                drop(fs::remove_file(PROBLEM));
                LOOK
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "this node is not as it should be");
                drop(fs::write(PROBLEM, error));
                AGAIN
            }
        };
        tokio::time::sleep(rest).await;
    }
}

async fn configure(client: &Client, settings: &Settings) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = services
        .get(SERVICE)
        .await
        .with_context(|| format!("the service {SERVICE}"))?;
    let remote: IpAddr = service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .and_then(|address| address.parse().ok())
        .with_context(|| format!("the service {SERVICE} has no address"))?;
    let links = links().await?;
    let kind = settings.datapath.word();
    // Told at the end, so that one NIC that is missing does not keep the rest away; and tunnels may need its bridge.
    let mut wrong = Vec::new();
    let mut mappings = Vec::new();
    for (network, nic) in &settings.physical {
        match usable(network, nic, &links) {
            Ok(bridge) => {
                let words = format!(
                    "--may-exist add-br {bridge} -- set Bridge {bridge} datapath_type={kind} -- --may-exist add-port {bridge} {nic}"
                );
                program::say("ovs-vsctl", &words).await?;
                program::say("ip", &format!("link set dev {nic} up")).await?;
                mappings.push(format!("{network}:{bridge}"));
            }
            Err(error) => wrong.push(error),
        }
    }
    let tunnel = match tunnel_address(settings, &links) {
        Ok(address) => address,
        Err(error) => bail!([wrong, vec![error]].concat().join("; ")),
    };
    let ids = [
        ("system-id", settings.node.clone()),
        ("hostname", settings.node.clone()),
        ("ovn-remote", format!("ssl:{}", with_port(remote))),
        ("ovn-encap-type", "geneve".to_owned()),
        ("ovn-encap-ip", tunnel.to_string()),
        ("ovn-bridge-datapath-type", kind.to_owned()),
        ("ovn-bridge-mappings", mappings.join(",")),
    ];
    let ids = ids.map(|(name, value)| format!("external_ids:{name}={}", Value::from(value)));
    let mut words = vec!["set", "Open_vSwitch", "."];
    words.extend(ids.iter().map(String::as_str));
    program::run("ovs-vsctl", words).await?;
    forget_ports(&links).await?;
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

fn with_port(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{PORT}"),
        IpAddr::V6(address) => format!("[{address}]:{PORT}"),
    }
}

/// A device as `ip -json address` prints it.
#[derive(Clone, Debug, Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    addr_info: Vec<LinkAddress>,
}

#[derive(Clone, Debug, Deserialize)]
struct LinkAddress {
    local: Option<IpAddr>,
    scope: Option<String>,
}

async fn links() -> Result<Vec<Link>> {
    let text = program::say("ip", "-json address").await?;
    serde_json::from_str(&text).context("what `ip -json address` said")
}

fn tunnel_address(settings: &Settings, links: &[Link]) -> Result<IpAddr, String> {
    let Some(subnet) = settings.tunnels else {
        return Ok(settings.address);
    };
    let mut addresses = links
        .iter()
        .flat_map(|link| &link.addr_info)
        .filter_map(|one| one.local);
    addresses
        .find(|address| subnet.contains(address))
        .ok_or_else(|| format!("this node has no address in tunnelSubnet {subnet}"))
}

/// The bridge for a NIC: one that carries the node's own address would cut it off.
fn usable(network: &str, nic: &str, links: &[Link]) -> Result<String, String> {
    let Some(link) = links.iter().find(|link| link.ifname == nic) else {
        return Err(format!(
            "physicalNetworks.{network}: this node has no device {nic}"
        ));
    };
    let own = link
        .addr_info
        .iter()
        .find(|one| one.scope.as_deref() == Some("global"));
    match own.and_then(|one| one.local) {
        Some(address) => Err(format!(
            "physicalNetworks.{network}: {nic} has the node's address {address}, and what is joined to a bridge has none; take a NIC of its own"
        )),
        None => Ok(format!("br-{network}")),
    }
}

/// Of pods that ended while nobody was there.
async fn forget_ports(links: &[Link]) -> Result<()> {
    let lost = "--bare --columns=name find Interface ofport=-1";
    let names = program::say("ovs-vsctl", lost).await?;
    let is_gone =
        |name: &&str| name.starts_with("ovn") && !links.iter().any(|link| link.ifname == **name);
    for name in names.split_whitespace().filter(is_gone) {
        program::say("ovs-vsctl", &format!("--if-exists del-port br-int {name}")).await?;
    }
    Ok(())
}

/// An error says what is missing.
pub async fn is_ready() -> Result<()> {
    if let Ok(problem) = fs::read_to_string(PROBLEM) {
        bail!(problem);
    }
    let status = program::say("ovn-appctl", &format!("-t {CONTROLLER} connection-status")).await?;
    ensure!(
        status.trim() == "connected",
        "OVN's databases are {}",
        status.trim()
    );
    UnixStream::connect(plugin::SOCKET)
        .await
        .context("the plugin's socket")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LINKS: &str = r#"[
        {"ifname": "eth0", "addr_info": [{"family": "inet", "local": "172.22.0.11", "prefixlen": 24, "scope": "global"}]},
        {"ifname": "eth1", "addr_info": [{"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]},
        {"ifname": "eth2", "mtu": 1500, "addr_info": [{"local": "10.99.0.7", "scope": "global"}]}
    ]"#;

    #[test]
    fn a_nic_with_the_nodes_address_is_left_alone() {
        let links: Vec<Link> = serde_json::from_str(LINKS).unwrap();
        assert_eq!(
            usable("storage", "eth1", &links),
            Ok("br-storage".to_owned())
        );
        for (nic, why) in [("eth0", "172.22.0.11"), ("eth7", "no device eth7")] {
            let told = usable("storage", nic, &links).unwrap_err();
            assert!(
                told.contains(why) && told.contains("physicalNetworks.storage"),
                "{told}"
            );
        }
    }

    #[test]
    fn tunnels_run_where_they_are_said_to() {
        let links: Vec<Link> = serde_json::from_str(LINKS).unwrap();
        let mut settings = Settings {
            node: "a".to_owned(),
            address: "172.22.0.11".parse().unwrap(),
            datapath: Datapath::System,
            tunnels: None,
            physical: BTreeMap::new(),
        };
        assert_eq!(tunnel_address(&settings, &links).unwrap(), settings.address);
        settings.tunnels = Some("10.99.0.0/24".parse().unwrap());
        assert_eq!(
            tunnel_address(&settings, &links).unwrap().to_string(),
            "10.99.0.7"
        );
        settings.tunnels = Some("10.98.0.0/24".parse().unwrap());
        assert!(tunnel_address(&settings, &links).is_err());
    }
}
