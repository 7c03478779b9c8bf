//! The agent's DHCP server alone: its real sockets, probes and lease file, with the guard against floods down, as the others have
//! none.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use firstlight_agent::{
    dhcp::{self, Dhcp},
    fleet,
    network::Segment,
    paths::Paths,
    status,
};
use firstlight_api::site::parse_site;
use firstlight_netboot::{BootSite, BoxHttp, CaFingerprint, Guard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub fn run(interface: &str, folder: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serve(interface, folder));
}

async fn serve(interface: &str, folder: &Path) {
    let site = "name: bench\ncluster: none\nprovisioning: {address: 10.55.0.1/16, range: 10.55.1.0-10.55.250.255}\n";
    let site = Arc::new(parse_site(site).unwrap());
    let stop = CancellationToken::new();
    let (sender, _page, owner) = status::channel("bench");
    tokio::spawn(status::own(owner, stop.clone()));
    let (fleet, _controller) = fleet::channel();
    let device = Path::new("/sys/class/net").join(interface);
    let of = |file: &str| fs::read_to_string(device.join(file)).unwrap();
    let segment = Segment {
        index: of("ifindex").trim().parse().unwrap(),
        interface: interface.to_owned(),
        mac: of("address").trim().parse().unwrap(),
        address: site.provisioning.address,
    };
    let boot = BootSite {
        http: BoxHttp::new([10, 55, 0, 1].into(), 80),
        ironic_port: 6385,
        ca: CaFingerprint::new([7; 32]),
        extra_args: vec![],
    };
    let paths = Paths::new(folder);
    fs::create_dir_all(paths.leases().parent().unwrap()).unwrap();
    let (link_ups, name_servers) = (watch::Sender::default(), watch::Sender::default());
    let dhcp = Dhcp {
        paths,
        site,
        fleet,
        status: sender,
        link_ups: link_ups.subscribe(),
        name_servers: name_servers.subscribe(),
        heard: watch::Sender::new(None),
        leased: watch::Sender::new(Arc::new(BTreeSet::new())),
        guard: Guard::Down,
    };
    let (_segment, segments) = watch::channel(Some(segment));
    let (_boot, boots) = watch::channel(Some(boot));
    dhcp::run(dhcp, segments, boots, stop).await.unwrap();
}
