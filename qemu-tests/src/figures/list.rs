//! Every figure, in the order of the table.

use super::{Figure, Limit, Unit};

macro_rules! value {
    (none) => {
        None
    };
    (most $limit:literal) => {
        Some(Limit::Most($limit))
    };
    (least $limit:literal) => {
        Some(Limit::Least($limit))
    };
    ($value:literal) => {
        Some($value)
    };
}

/// `NAME: id, title, unit, baseline, limit;`
macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident: $id:literal, $title:literal, $unit:ident, $baseline:tt, $limit:tt $($bound:literal)?;)*) => {
        $(
            $(#[$doc])*
            pub const $name: Figure = Figure {
                id: $id,
                title: $title,
                unit: Unit::$unit,
                baseline: value!($baseline),
                limit: value!($limit $($bound)?),
            };
        )*
        pub const ALL: &[Figure] = &[$($name),*];
    };
}

figures! {
    BUILD_COLD: "build-cold", "build, cold", Seconds, none, most 2400.0;
    BUILD_UNCHANGED: "build-unchanged", "build, nothing changed", Seconds, none, most 20.0;
    BUILD_AGENT: "build-agent", "build, agent changed", Seconds, none, most 90.0;
    IMAGE_SIZE: "image-size", "image size", Megabytes, 5600.0, most 1500.0;
    BOX_PAGE: "box-page", "box: power-on to page", Seconds, 62.0, most 70.0;
    BOX_DHCP: "box-dhcp", "box: power-on to first DHCP answer", Seconds, none, most 90.0;
    BOX_NODE: "box-node", "box: power-on to node Ready", Seconds, 141.0, most 200.0;
    BOX_IRONIC: "box-ironic", "box: power-on to Ironic ready", Seconds, none, most 300.0;
    BOX_MEMORY: "box-memory", "box: memory in use when ready", Megabytes, 1600.0, most 2000.0;
    NETBOOT_SIZE: "netboot-size", "kernel + ramdisk", Megabytes, 83.0, most 40.0;
    RAMDISK_LOOKUP: "ramdisk-lookup", "ramdisk: direct boot to its first report", Seconds, 44.0, most 15.0;
    SMALLEST_MEMORY: "smallest-memory", "smallest memory that installs (MiB)", Megabytes, 1024.0, most 512.0;
    SERVER_SSH: "server-ssh", "server: power-on to installed OS on SSH", Seconds, 547.0, most 140.0;
    HOSTS_START_KEXEC: "hosts-start-kexec", "image written to login, started by kexec", Seconds, none, none;
    HOSTS_START_RESTART: "hosts-start-restart", "  by a restart, with a firmware that takes 60 s", Seconds, none, none;
    HOSTS_START_RATIO: "hosts-start-ratio", "  kexec in the time of a restart", Times, 1.0, most 0.5;
    CLUSTER_READY: "cluster-ready", "two blank servers: power-on to both nodes Ready", Seconds, none, most 1200.0;
    CLUSTER_STAGED: "cluster-staged", "  of it until both have their system on disk", Seconds, none, none;
    CLUSTER_DATA: "cluster-data", "  of it until the first has its bootstrap data", Seconds, none, none;
    CLUSTER_CONTROL_PLANE: "cluster-control-plane", "  of it until the control plane is Ready", Seconds, none, none;
    /// No longer than what the first worker took, together with its control plane.
    CLUSTER_SECOND_WORKER: "cluster-second-worker", "third blank server: power-on to node Ready", Seconds, none, most 1200.0;
    CLUSTER_BOX_MEMORY: "cluster-box-memory", "box: memory in use with a cluster", Megabytes, none, most 3000.0;
    CLUSTER_AGENT_MEMORY: "cluster-agent-memory", "agent: memory in use with a cluster", Megabytes, none, most 64.0;
    API_BACK: "cluster-api-back", "the holder of a cluster's address dies: its API answers again", Seconds, none, most 5.0;
    /// With the settings that kubeadm and containerd have when nobody says anything.
    PODS_PLAIN: "cluster-pods-plain", "200 pods on two nodes with plain settings", Seconds, none, none;
    PODS: "cluster-pods", "  on two nodes of ours", Seconds, none, none;
    PODS_RATIO: "cluster-pods-ratio", "  as fast as plain ones", Times, none, least 0.9;
    UPGRADE_OURS: "cluster-upgrade", "upgrade of a minor in place, a node: everything but kubeadm", Seconds, none, most 60.0;
    UPGRADE_SILENCE: "cluster-upgrade-silence", "  of three control planes: longest silence of their API", Seconds, none, most 5.0;
    UPGRADE_LOST: "cluster-upgrade-lost", "  of a thousand requests to a service meanwhile, in vain", Count, none, most 10.0;
    ROTATION_SILENCE: "cluster-rotation-silence", "rotation of authorities, three control planes: longest silence of their API", Seconds, none, most 5.0;
    ROTATION_LOST: "cluster-rotation-lost", "  of a thousand requests to a service of two nodes meanwhile, in vain", Count, none, most 10.0;
    PAYLOAD_UPLOAD: "payload-upload", "2 GiB to the store, verified and on the disk", Seconds, none, none;
    PAYLOAD_NGINX: "payload-nginx", "2 GiB to nginx with WebDAV", Seconds, none, none;
    /// 0.7 times its speed.
    PAYLOAD_UPLOAD_RATIO: "payload-upload-ratio", "  the store's time in nginx's", Times, none, most 1.43;
    PAYLOAD_MEMORY: "payload-memory", "agent: most memory during the upload", Megabytes, none, most 64.0;
    PAYLOAD_APT_INDEX: "payload-apt-index", "apt repository of 500 packages: index", Seconds, none, most 5.0;
    PAYLOAD_SOFTWARE_3: "payload-software-3", "Software on 3 servers that share this machine", Seconds, none, none;
    PAYLOAD_SOFTWARE_50: "payload-software-50", "Software on 50 of them", Seconds, none, none;
    PAYLOAD_SOFTWARE_RATIO: "payload-software-ratio", "  50 in the time of 3", Times, none, most 3.0;
    PAYLOAD_SOFTWARE_3_OWN: "payload-software-3-own", "Software on 3 servers with 20 s of their own", Seconds, none, none;
    PAYLOAD_SOFTWARE_50_OWN: "payload-software-50-own", "Software on 50 of them", Seconds, none, none;
    PAYLOAD_SOFTWARE_RATIO_OWN: "payload-software-ratio-own", "  50 in the time of 3", Times, none, most 3.0;
    PAYLOAD_ADDONS: "payload-addons", "stick: grows by its addons", Megabytes, none, most 150.0;
    /// `scripts/bench hosts`: no machine, no disk, no image; all of a box's programs.
    HOSTS_COUNT: "hosts-count", "simulated servers beside one box", Count, none, none;
    HOSTS_SECONDS: "hosts-seconds", "  first packet to the last one provisioned", Seconds, none, none;
    HOSTS_ALONE: "hosts-alone", "  Ironic alone, as many of its fake nodes", Seconds, none, none;
    HOSTS_RATIO: "hosts-ratio", "  as fast as that", Times, none, least 0.8;
    HOSTS_MEMORY: "hosts-memory", "  agent: most memory meanwhile", Megabytes, none, most 64.0;
    HOSTS_CALLS: "hosts-calls", "  agent: calls for each, first packet to provisioned", Count, none, most 60.0;
    HOSTS_KUBERNETES_CALLS: "hosts-kubernetes-calls", "    of them of the API server", Count, none, none;
    HOSTS_IRONIC_CALLS: "hosts-ironic-calls", "    of them of Ironic", Count, none, none;
    HOSTS_QUIET: "hosts-quiet", "  calls of the API server while nothing changes", Count, none, most 0.0;
    HOSTS_EDIT: "hosts-edit", "  edit of a host to its answer, longest of 100", Seconds, none, most 1.0;
    HOSTS_RACK_ONE: "hosts-rack-one", "one simulated server: first DHCP to bootstrap data", Seconds, none, none;
    HOSTS_RACK_TEN: "hosts-rack-ten", "ten of them at once: to the tenth's", Seconds, none, none;
    /// On a cable of 1 Gb/s.
    HOSTS_RACK_RATIO: "hosts-rack-ratio", "  ten in the time of one, longest of five runs", Times, none, most 1.5;
    HOSTS_RACK_BYTES: "hosts-rack-bytes", "  sent to each server", Megabytes, none, none;
    HOSTS_RACK_BOX_BYTES: "hosts-rack-box-bytes", "  of it by the box", Megabytes, none, none;
    HOSTS_WRONG_PASSWORD: "hosts-wrong-password", "wrong BMC password to its condition", Seconds, none, most 60.0;
    BASE_STORIES: "base-stories", "stories that scripts/test had time for", Count, 2.0, least 8.0;
    BASE_STORIES_TIME: "base-stories-time", "  in", Seconds, 1680.0, most 3600.0;
    /// Where the image was built in the same run.
    BASE_COLD: "base-cold", "scripts/test from nothing", Seconds, 5280.0, most 4200.0;
    BASE_QUICK: "base-quick", "scripts/test --quick, warm", Seconds, none, most 300.0;
    /// Baseline: an image in 25 s and a boot of at least 75 s.
    BASE_EDIT: "base-edit", "edit in the agent to an answer of a running box", Seconds, 100.0, most 20.0;
    BASE_EDIT_COMPILED: "base-edit-compiled", "  of it until it is compiled", Seconds, none, none;
    BASE_SNAPSHOT_SAVED: "base-snapshot-saved", "a box that is ready: stopped and kept", Seconds, none, none;
    BASE_SNAPSHOT_ANSWER: "base-snapshot-answer", "the same box: its page answers again after", Seconds, 75.0, most 20.0;
    BASE_CIRCLES: "base-circles", "import circles in agent/src", Count, 8.0, most 0.0;
    BASE_LARGEST: "base-largest", "largest file (lines without its tests)", Count, 688.0, most 400.0;
    BASE_LINES: "base-lines", "hand-written Rust without tests (lines)", Count, 54_679.0, most 54_679.0;
    BASE_PACKET: "base-packet", "agent, 1000 hosts known: processor time of a DHCP packet (ms)", Count, none, most 1.0;
    /// As servers of a rack say of themselves, with one copy of their objects that a watch has, and the page.
    BASE_HOSTS_MEMORY: "base-hosts-memory", "  memory that those hosts take", Megabytes, none, most 64.0;
    BASE_SCHEDULES: "base-schedules", "seeded schedules with kills and faults", Count, 11.0, least 500.0;
    /// By eight addresses that read nothing, end no request and send 41 MB of JSON.
    BASE_FLOOD_MEMORY: "base-flood-memory", "agent: memory that a flood of HTTP takes", Megabytes, none, most 50.0;
    BASE_FLOOD_SLOWER: "base-flood-slower", "  a server's download, in its time without the flood", Times, none, most 1.1;
    /// Baseline: kinds of bytes from outside that nothing but examples had read.
    BASE_DECODERS: "base-decoders", "decoders without a property test", Count, 20.0, most 0.0;
    /// Of the table of 500 servers, read over loopback by a real browser.
    OPERATE_PAINT: "operate-paint", "page of 500 servers: first paint (ms)", Count, none, most 300.0;
    OPERATE_UPDATE: "operate-update", "  until what changed is shown (ms, median)", Count, none, most 100.0;
    /// Each of the ten tells twice a second how far it is.
    OPERATE_BYTES: "operate-bytes", "  sent while ten of them install (kB/s)", Count, none, most 20.0;
    /// `VictoriaMetrics`, vmalert and Alertmanager, asking one target each second.
    OPERATE_MONITORING: "operate-monitoring", "metrics and alarms: memory of their programs", Megabytes, none, most 250.0;
    /// Of 240,000 lines, one word that ten have.
    OPERATE_SEARCH: "operate-search", "logs: search over a day of ten nodes", Seconds, none, most 1.0;
    /// 24,000 lines a node, and 600 series each half minute: an hour of these, times 24.
    OPERATE_DAY: "operate-day", "  stick for a day of logs and metrics of ten nodes", Megabytes, none, most 200.0;
    /// On an emulated box: written, started, and all well for a minute.
    YEARS_UPDATE: "years-update", "update of a box, from the order to its decision", Seconds, none, most 360.0;
    /// Power-on to ready, under Secure Boot, one after the other.
    YEARS_SEALED: "years-sealed", "first boot with encryption and TPM, in the time of one without", Times, 1.0, most 1.15;
    /// From the power-on of the new stick, under emulation.
    YEARS_RESTORE: "years-restore", "restore onto a new stick, until all is as before", Seconds, none, most 600.0;
}
