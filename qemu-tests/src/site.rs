//! The image under test, built as a person builds it, with a key of the tests' own in its `site.yaml`.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use age::secrecy::ExposeSecret as _;
use age::x25519::Identity;
use anyhow::{Context, Result, ensure};
use firstlight_api::boot_choice::{INITRD, SystemSlot};
use firstlight_api::site::Ipv4Network;
use imagebuilder::build::build;
use imagebuilder::build::cache::Reuse;
use imagebuilder::build::progress::Progress;
use imagebuilder::build::settings::{Settings, find_cache, find_source};
use imagebuilder::stick::{file_of_image, kernel_of_image};
use lab::Clock;

use crate::figures;

/// The name that `site.yaml` gives the first server; the second has none, as most servers in a new site.
pub const SERVER_NAME: &str = "alpha";
/// The address that `site.yaml` gives the first server.
pub const SERVER_ADDRESS: &str = "172.22.0.20";
const SERVER_MAC: &str = "52:54:00:f1:00:01";

/// What a rule of `site.yaml` gives every server of QEMU.
pub const RULE_LABEL: &str = "built: emulated";

/// The number of a server whose system a rule has started by its firmware, with an argument for its kernel.
pub const RESTARTED: u8 = 8;
/// The number of one whose system is started by kexec.
pub const STARTED: u8 = 9;
pub const RESTARTED_ARGUMENT: &str = "firstlight-test.told=1";

/// Tagged 20; the box has no address on it.
pub const CLUSTER_NETWORK: Ipv4Network = Ipv4Network::around(Ipv4Addr::new(10, 20, 0, 0), 24);
pub const CLUSTER_IPV6: &str = "fd00:20::/64";
/// The addresses there that `site.yaml` gives the first server.
pub const SERVER_CLUSTER_ADDRESS: &str = "10.20.0.20";
pub const SERVER_CLUSTER_IPV6: &str = "fd00:20::20";
const SERVER_SECOND_MAC: &str = "52:54:00:f1:01:01";

/// Of the box's card outside.
const BOX_OFFICE_MAC: &str = "52:54:00:f1:01:00";

/// Of the site, and of its cluster.
pub const NAME: &str = "tests";

/// What installed servers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `cluster: none`
    Plain,
    /// `cluster: {}`
    Cluster,
    ThreeControlPlanes,
    /// A cluster with all addons of the stick.
    Addons,
    /// A cluster on a tagged network; the first server has a bond, and the box an uplink.
    Networks,
}

impl Purpose {
    /// Two processors carry one emulated machine that works. A cluster's are more, and never idle.
    fn clock(self) -> Clock {
        match self {
            Self::Plain => Clock::Real,
            Self::Cluster | Self::Addons | Self::Networks => Clock::CLUSTER,
            Self::ThreeControlPlanes => Clock::Slowed { percent: 25 },
        }
    }
}

pub struct TestSite {
    pub image: PathBuf,
    /// Private key for `admin` on the box and on installed servers; whose updates the box takes.
    pub key: PathBuf,
    /// Of age's: who can read backups that the box makes by itself.
    pub backup_key: PathBuf,
    /// How fast time goes for its machines.
    pub clock: Clock,
}

/// Builds an image that admits a key, which also signs it, and is made once: it is in snapshots, too.
pub fn build_site(purpose: Purpose) -> Result<TestSite> {
    let dir = find_cache()?.join(match purpose {
        Purpose::Plain => "tests/plain",
        Purpose::Cluster => "tests/cluster",
        Purpose::ThreeControlPlanes => "tests/control-planes",
        Purpose::Addons => "tests/addons",
        Purpose::Networks => "tests/networks",
    });
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let key = make_key(&dir)?;
    let public = fs::read_to_string(key.with_extension("pub")).context("reading the public key")?;
    let (backup_key, recipient) = make_backup_key(&dir)?;
    let site = dir.join("site.yaml");
    fs::write(&site, site_text(public.trim(), &recipient, purpose)).context("writing site.yaml")?;
    let image = dir.join("firstlight.img");
    build(
        &Settings {
            source: find_source()?,
            cache: find_cache()?,
            output: image.clone(),
            mirror: None,
            site: Some(site),
            kubernetes: Vec::new(),
            sign: Some(key.clone()),
            trust: None,
            debian: Reuse::Cached,
        },
        Progress::detect(),
    )?;
    record_sizes(&image)?;
    Ok(TestSite {
        image,
        key,
        backup_key,
        clock: purpose.clock(),
    })
}

fn record_sizes(image: &Path) -> Result<()> {
    #[allow(clippy::cast_precision_loss, reason = "a figure to three digits")]
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let size = fs::metadata(image)
        .with_context(|| format!("opening {}", image.display()))?
        .len();
    figures::IMAGE_SIZE.record(megabytes(size))?;
    let initrd = file_of_image(image, "ESP", &SystemSlot::A.boot_file(INITRD))?
        .context("no initrd on the ESP")?;
    figures::NETBOOT_SIZE.record(megabytes(
        (kernel_of_image(image)?.len() + initrd.len()) as u64,
    ))
}

fn make_key(dir: &Path) -> Result<PathBuf> {
    let key = dir.join("id_ed25519");
    if key.exists() && key.with_extension("pub").exists() {
        return Ok(key);
    }
    drop(fs::remove_file(&key));
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "qemu-tests", "-f"])
        .arg(&key)
        .status()
        .context("starting ssh-keygen (package openssh-client)")?;
    ensure!(made.success(), "ssh-keygen failed: {made}");
    Ok(key)
}

/// A file, as `age-keygen` writes it, and its public half.
fn make_backup_key(dir: &Path) -> Result<(PathBuf, String)> {
    let path = dir.join("age.key");
    let known = fs::read_to_string(&path).ok();
    let known = known.and_then(|text| text.trim().parse::<Identity>().ok());
    let key = if let Some(key) = known {
        key
    } else {
        let key = Identity::generate();
        fs::write(&path, key.to_string().expose_secret())?;
        key
    };
    Ok((path, key.to_public().to_string()))
}

fn site_text(public: &str, recipient: &str, purpose: Purpose) -> String {
    let cluster = match purpose {
        Purpose::Plain => "none",
        Purpose::Cluster => "{}\naddons: []",
        Purpose::ThreeControlPlanes => "{controlPlanes: 3}\naddons: []",
        Purpose::Addons => {
            "{}\naddons: [gateway, loadbalancer, metrics-server, multus, network-policy, nfd, storage]"
        }
        Purpose::Networks => return networks_text(public),
    };
    format!(
        "name: {NAME}\ncluster: {cluster}\nsshKeys:\n  - {public}\nbackup: {{recipients: [{recipient}]}}\nhosts:\n  - mac: {SERVER_MAC}\n    name: {SERVER_NAME}\n    address: {SERVER_ADDRESS}\n\
         rules:\n  - match: {{mac: '52:54:00:f1:00:{RESTARTED:02x}'}}\n    start: restart\n    kernelArguments: {RESTARTED_ARGUMENT}\n  - match: {{mac: '52:54:00:f1:00:{STARTED:02x}'}}\n    start: kexec\n  \
         - match: {{vendor: QEMU, product: '*Q35*'}}\n    labels: {{{RULE_LABEL}}}\n    keepsBackups: true\n  - match: any\n"
    )
}

fn networks_text(public: &str) -> String {
    format!(
        "name: {NAME}\nsshKeys:\n  - {public}\nuplink: {{nic: '{BOX_OFFICE_MAC}', address: 192.0.2.15/24, gateway: 192.0.2.2, dns: [192.0.2.3], routing: nat}}\ncluster: {{network: nodes}}\naddons: []\nnetworks:\n  nodes: {{subnet: [{CLUSTER_NETWORK}, '{CLUSTER_IPV6}'], vlan: 20}}\nhosts:\n  \
         - mac: {SERVER_MAC}\n    name: {SERVER_NAME}\n    address: {SERVER_ADDRESS}\n    addresses: {{nodes: [{SERVER_CLUSTER_ADDRESS}, '{SERVER_CLUSTER_IPV6}']}}\n    \
         links: [{{bond: active-backup, nics: [boot, '{SERVER_SECOND_MAC}'], networks: [provisioning, nodes]}}]\n\
         rules:\n  - match: any\n    links: [{{nic: boot, networks: [provisioning, nodes]}}]\n"
    )
}
