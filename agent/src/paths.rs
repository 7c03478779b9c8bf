//! Where everything is on the box (docs/reference.md), below a root that tests and `--root` can move.

use std::path::{Path, PathBuf};

/// Shown to people too.
pub const LAST_SITE: &str = "var/lib/firstlight/agent/site.yaml";

/// All paths the agent reads or writes.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
}

macro_rules! paths {
    ($($(#[$doc:meta])* $name:ident = $path:expr;)*) => {
        $($(#[$doc])* pub fn $name(&self) -> PathBuf { self.root.join($path) })*
    };
}

impl Paths {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    paths! {
        /// Mount point of the FIRSTLIGHT partition.
        site_partition = "firstlight/site";
        site_yaml = "firstlight/site/site.yaml";
        /// Mount point of the state partition.
        state = "var/lib/firstlight";
        agent_state = "var/lib/firstlight/agent";
        /// What must outlive a power cut, one file a host.
        host_ledgers = "var/lib/firstlight/agent/hosts";
        /// The box's SSH keys for its hosts, one directory a host.
        host_keys = "var/lib/firstlight/agent/ssh";
        /// Who may log in, and what was done by whom.
        people = "var/lib/firstlight/agent/people";
        /// What people uploaded.
        store = "var/lib/firstlight/agent/store";
        /// What the store put into the registry.
        pushed = "var/lib/firstlight/agent/pushed.json";
        uploaded_images = "var/lib/firstlight/agent/images";
        /// The apt repository of uploaded packages, as it is served.
        apt = "var/lib/firstlight/agent/apt";
        apt_key = "var/lib/firstlight/agent/apt-key.asc";
        /// The stick's apt repository, as it is served.
        apt_base = "usr/share/firstlight/apt/base";
        /// The `site.yaml` that was used last.
        last_site = LAST_SITE;
        /// The time, for the next start.
        kept_clock = "var/lib/firstlight/agent/clock";
        /// By how much `firstlight-clock.service` set the clock forward.
        clock_moved = "run/firstlight-clock/moved";
        /// Those that the box made by itself: of `firstlight-update`.
        backups = "var/lib/firstlight/backups";
        /// Where else they are.
        backup_copies = "var/lib/firstlight/agent/backup-copies.json";
        /// The box's key for a place outside.
        outside = "var/lib/firstlight/agent/outside";
        /// All Secrets in etcd are encrypted.
        encrypted_secrets = "var/lib/firstlight/agent/secrets-encrypted";
        /// The newest versions that have data on the state partition.
        state_versions = "var/lib/firstlight/agent/versions.json";
        /// What keeps the key of the state partition: of `firstlight-update`.
        seal = "run/firstlight-seal/status.json";
        damaged_ironic = "var/lib/firstlight/ironic/ironic.sqlite.damaged";
        damaged_layers = "run/firstlight-scrub/damaged";
        /// The last warnings of the journal.
        warnings = "var/lib/firstlight/agent/warnings.log";
        boot_id = "proc/sys/kernel/random/boot_id";
        /// An update that is on its way, and what came of the last one: of `firstlight-update`.
        trial = "var/lib/firstlight/update/trial.json";
        update_outcome = "var/lib/firstlight/update/outcome.json";
        update_socket = "run/firstlight-update.sock";
        /// `firstlight-update` has put the state partition right.
        state_prepared = "run/firstlight-update/ready";
        /// What worked before an update.
        before_update = "var/lib/firstlight/agent/before-update.json";
        /// What a system that is tried waits for.
        run_trial = "run/firstlight/trial";
        restored_etcd = "var/lib/firstlight/etcd/restored";
        leases = "var/lib/firstlight/agent/leases.log";
        /// The MAC address of the NIC that the box serves on.
        provisioning_nic = "var/lib/firstlight/agent/provisioning-nic";
        site_pki = "var/lib/firstlight/pki";
        /// A certificate of somebody else's authority for the page, with its key.
        page_certificate = "var/lib/firstlight/pki/page-own.pem";
        site_ca = "var/lib/firstlight/pki/ca.crt";
        kube_pki = "var/lib/firstlight/kube/pki";
        kube = "var/lib/firstlight/kube";
        agent_kubeconfig = "var/lib/firstlight/kube/agent.conf";
        run = "run/firstlight";
        run_ironic = "run/firstlight/ironic";
        run_monitoring = "run/firstlight/monitoring";
        /// Judges the box's metrics; a desk has none.
        vmalert = "usr/bin/vmalert";
        run_registry = "run/firstlight/registry";
        run_manifests = "run/firstlight/manifests";
        run_ssh = "run/firstlight/ssh";
        run_addons = "run/firstlight/addons";
        /// Files for systemd-networkd: `/run/systemd/network` is a link to it.
        networkd = "run/firstlight/networkd";
        /// What systemd-networkd tells of each device, by its index.
        networkd_links = "run/systemd/netif/links";
        /// `/etc/resolv.conf` is a link to it.
        resolver = "run/firstlight/resolv.conf";
        /// For chronyd.
        clock_sources = "run/firstlight/chrony/uplink.sources";
        /// Shown by getty above the login prompt: `/etc/issue.d/firstlight.issue` is a link to it.
        issue = "run/firstlight/issue";
        share = "usr/share/firstlight";
        /// Addons that the stick brings, a folder each.
        addons = "usr/share/firstlight/addons";
        helm = "usr/bin/helm";
        versions = "usr/share/firstlight/versions.json";
        netboot = "usr/share/firstlight/netboot";
        images = "usr/share/firstlight/images";
        manifests = "usr/share/firstlight/manifests";
        mountinfo = "proc/self/mountinfo";
        kernel_line = "proc/cmdline";
        net_devices = "sys/class/net";
        /// What the firmware says of its machine.
        firmware_said = "sys/class/dmi/id";
        ipv4_sysctls = "proc/sys/net/ipv4";
        /// Of the same for the screen: its getty reads it (`getty@tty1.service.d`).
        screen_issue = "run/firstlight/issue-screen";
        /// agetty shows prompts anew when it is written to.
        prompts = "run/agetty.reload";
    }
}
