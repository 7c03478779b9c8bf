//! A server in its ramdisk, and what its system does once it is installed.

use std::sync::atomic::{AtomicU64, Ordering};

use firstlight_api::{order::DiskId, report::DiskSignatures, start::StartOrder};
use firstlight_ironic::fake::{LookupAnswer, Ramdisk};

use super::*;

/// Whoever takes reports: the hosts on a virtual clock, or the whole controller.
pub trait Hears {
    /// `None`: no answer came.
    async fn report(&mut self, from: Speaker, report: Report) -> Option<Directive>;
    async fn progress(&mut self, from: Speaker, progress: Progress) -> bool;
}

/// A server in its ramdisk: reports, does as it is told, and heartbeats.
pub struct Server {
    pub ramdisk: Ramdisk,
    /// What takes its connections; nobody reads them.
    pub door: Option<std::net::TcpListener>,
    pub address: std::net::SocketAddr,
    pub boot_id: String,
    pub key: u8,
    sequence: AtomicU64,
    pub signatures: Vec<String>,
    pub mark: Option<Mark>,
    /// Disks beside `/dev/vda`, whose `signatures` and `mark` those are.
    pub others: Vec<DiskSignatures>,
    pub lookup: LookupState,
    pub known: Option<LookupAnswer>,
    /// A live Ironic would call back, and nobody is there.
    pub beats: bool,
}

impl Server {
    pub fn new(client: firstlight_ironic::Client) -> Self {
        let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = door.local_addr().unwrap();
        Self {
            ramdisk: Ramdisk::new(client, MAC, address),
            door: Some(door),
            address,
            boot_id: "boot-1".into(),
            key: 1,
            sequence: AtomicU64::new(1),
            signatures: vec![],
            mark: None,
            others: vec![],
            lookup: LookupState::NotAsked,
            known: None,
            beats: true,
        }
    }

    /// Power off and on: what the ramdisk knew is gone.
    pub fn power_cycle(&mut self) {
        self.boot_id.push('+');
        self.key += 1;
        (self.lookup, self.known) = (LookupState::NotAsked, None);
    }

    pub fn speaker(&self) -> Speaker {
        Speaker {
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            key: PublicKey::new([self.key; 32]),
            follows: Vec::new(),
            tpm: None,
            boot: None,
        }
    }

    pub fn fresh(&self) -> Fresh {
        Fresh {
            session: String::new(),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub fn report(&self) -> Report {
        let disk = DiskSignatures {
            name: "/dev/vda".into(),
            size_bytes: 8 << 30,
            signatures: self.signatures.clone(),
            mark: self.mark,
            ..DiskSignatures::default()
        };
        Report {
            boot_mac: MAC.into(),
            boot_id: self.boot_id.clone(),
            address: "127.0.0.1".into(),
            inventory: Inventory::from_json(&self.ramdisk.inventory()).unwrap(),
            disks: [vec![disk], self.others.clone()].concat(),
            lookup: self.lookup,
            tpm: Tpm::default(),
            follows: Vec::new(),
            fresh: self.fresh(),
        }
    }

    pub async fn tell(&self, to: &mut impl Hears, phase: Phase) -> bool {
        let progress = Progress {
            boot_mac: MAC.into(),
            boot_id: self.boot_id.clone(),
            phase,
            fresh: self.fresh(),
        };
        to.progress(self.speaker(), progress).await
    }

    /// One round: heartbeat if registered, report, and what the answer says. True once told to boot from disk.
    pub async fn step(&mut self, to: &mut impl Hears) -> bool {
        if self.beats
            && let Some(known) = &self.known
            && self.ramdisk.heartbeat(known).await.is_err()
        {
            (self.known, self.lookup) = (None, LookupState::NotAsked);
        }
        match to.report(self.speaker(), self.report()).await {
            Some(Directive::BootDisk) => true,
            Some(Directive::Lookup { .. }) if self.known.is_none() => {
                self.register().await;
                false
            }
            _ => false,
        }
    }

    async fn register(&mut self) {
        let inspected = match self.ramdisk.continue_inspection().await {
            // Ironic is at something else with the node: the real ramdisk asks again, too.
            Err(error) if error.is_conflict() => return,
            answer => answer.unwrap(),
        };
        let found = match inspected {
            Some(answer) => Some(answer),
            None => self.ramdisk.lookup().await.unwrap(),
        };
        (self.lookup, self.known) = match found {
            None => (LookupState::NotWanted, None),
            Some(answer) if answer.token.is_none() => (LookupState::TokenLost, None),
            Some(answer) => (LookupState::Registered, Some(answer)),
        };
    }

    /// Rounds until the site is as wanted.
    pub async fn until<L: Luck>(
        &mut self,
        what: &str,
        site: &mut Site<L>,
        is: impl Fn(&Site<L>) -> bool,
    ) {
        for _ in 0..ROUNDS {
            if is(site) {
                return;
            }
            self.step(site).await;
            site.pass(ROUND).await;
        }
        panic!("waited for {what}; {}", site.told());
    }

    /// Rounds until Ironic has the node in `state`.
    pub async fn until_ironic<L: Luck>(&mut self, site: &mut Site<L>, state: ProvisionState) {
        let reached = |site: &Site<L>| site.ironic.state(&node()).as_ref() == Some(&state);
        self.until(state.as_str(), site, reached).await;
    }

    /// Rounds until the box says: boot from disk.
    pub async fn until_told_to_boot_disk<L: Luck>(&mut self, site: &mut Site<L>) {
        for _ in 0..ROUNDS {
            if self.step(site).await {
                return;
            }
            site.pass(ROUND).await;
        }
        panic!("never told to boot from disk; {}", site.told());
    }

    /// The image is on the disk and the ramdisk is gone.
    pub async fn finish<L: Luck>(&self, site: &mut Site<L>) {
        self.tell(site, Phase::REBOOTING).await;
        site.ironic.finish_deploy(&node());
    }
}

/// What the ramdisk is sent about the disks.
pub async fn ordered<L>(site: &Site<L>) -> Option<DiskOrder> {
    let known = site.ironic.client().node(&node()).await.unwrap();
    DiskOrder::of_node(&serde_json::json!({"extra": known.extra})).unwrap()
}

/// As the server of these tests shows it.
pub fn its_disk() -> DiskId {
    DiskId::new(None, None, 8 << 30)
}

/// What it is sent about the start of the installed system.
pub async fn start_order<L>(site: &Site<L>) -> StartOrder {
    let known = site.ironic.client().node(&node()).await.unwrap();
    StartOrder::of_node(&serde_json::json!({"extra": known.extra})).unwrap()
}
