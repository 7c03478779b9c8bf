//! One server's life: firmware that boots from the network first, the ramdisk, the installed system.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use firstlight_ramdisk::{cmdline::parse_cmdline, ipa::event::Departure};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use super::{
    ramdisk, talk,
    wire::{self, Asker, Wire},
};
use crate::rack::server::{Boot, parse_script};

/// What a server reaches, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has sent its first packet.
    On,
    Loaded,
    /// Ironic knows its ramdisk.
    Registered,
    /// Ironic has called it.
    Called,
    Written,
    /// Its own system runs.
    Booted,
}

pub const MARKS: [Mark; 6] = [
    Mark::On,
    Mark::Loaded,
    Mark::Registered,
    Mark::Called,
    Mark::Written,
    Mark::Booted,
];

/// When each was reached for the first time.
#[derive(Clone, Debug, Default)]
pub struct Marks(Arc<Mutex<[Option<Instant>; MARKS.len()]>>);

impl Marks {
    pub fn set(&self, mark: Mark) {
        self.0.lock().unwrap()[mark as usize].get_or_insert_with(Instant::now);
    }

    pub fn get(&self, mark: Mark) -> Option<Instant> {
        self.0.lock().unwrap()[mark as usize]
    }
}

/// Locally administered, none like another.
pub fn mac_of(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [0x52, 0x54, 0, 1, high, low]
}

pub fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// For ever.
pub async fn live(number: u16, wire: Arc<Wire>, marks: Marks) {
    let mac = mac_of(number);
    let mut seed = u64::from(number) << 32;
    let address = loop {
        marks.set(Mark::On);
        match boot(mac, &wire).await {
            (
                address,
                Boot::Ramdisk {
                    kernel,
                    initrd,
                    cmdline,
                },
            ) => {
                for url in [kernel, initrd] {
                    // The loader asks again, too.
                    while let Err(error) = talk::get(address, &None, &url).await {
                        eprintln!("{address}: {error}");
                    }
                }
                let lease = wire.ask(mac, Asker::System).await;
                assert_eq!(lease.address, address, "one NIC, one address");
                marks.set(Mark::Loaded);
                seed += 1;
                let cmdline = parse_cmdline(&cmdline);
                let text = text_of(mac);
                match ramdisk::run(seed, &text, address, &cmdline, &marks).await {
                    Departure::Reboot | Departure::BootDisk | Departure::Kexec => {}
                    Departure::PowerOff => panic!("{text} has no remote power"),
                }
            }
            (address, Boot::Disk) => break address,
            (_, Boot::Again(pause)) => tokio::time::sleep(pause).await,
        }
    };
    run_installed(address, &marks).await;
}

/// A BIOS fetches iPXE, which fetches its script.
async fn boot(mac: [u8; 6], wire: &Wire) -> (Ipv4Addr, Boot) {
    let offer = wire.ask(mac, Asker::Firmware).await;
    wire::take_address(offer.address).await;
    wire::load(offer.address, offer.server, &offer.file).await;
    let lease = wire.ask(mac, Asker::Ipxe).await;
    let address = lease.address;
    match talk::get(address, &None, &lease.file).await {
        Ok(script) => (address, parse_script(&String::from_utf8_lossy(&script))),
        Err(error) => {
            eprintln!("{address}: {error}");
            (address, Boot::Again(Duration::from_secs(5)))
        }
    }
}

/// Of it the box sees that it has a login.
async fn run_installed(address: Ipv4Addr, marks: &Marks) {
    let listener = TcpListener::bind((address, 22)).await.unwrap();
    marks.set(Mark::Booted);
    loop {
        if let Ok((mut stream, _)) = listener.accept().await {
            drop(stream.write_all(b"SSH-2.0-OpenSSH_10.0\r\n").await);
        }
    }
}
