//! What the box's machine is: product and serial number, network cards with their links, and the space of its state partition.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::Result;
use firstlight_api::{
    bounded,
    status::{BoxNic, MachineStatus, Space},
};
use tokio_util::sync::CancellationToken;

use crate::{
    paths::Paths,
    status::{StatusSender, Update},
};

/// A cable that somebody plugs in shows at the next look.
const EVERY: Duration = Duration::from_secs(5);
/// Of network cards.
const MOST: usize = 64;
/// What firmware says where nobody has filled it in.
const NOTHING: [&str; 6] = [
    "To Be Filled By O.E.M.",
    "To be filled by O.E.M.",
    "System Product Name",
    "System manufacturer",
    "Default string",
    "Not Specified",
];

/// Until the agent stops.
pub async fn run(paths: Paths, status: StatusSender, stop: CancellationToken) -> Result<()> {
    let mut told = None;
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let found = look(&paths);
        if told.as_ref() != Some(&found) {
            status.send(Update::Machine(found.clone()));
            told = Some(found);
        }
    }
}

fn look(paths: &Paths) -> MachineStatus {
    let said = |name: &str| {
        let text = read(&paths.firmware_said().join(name));
        if NOTHING.contains(&text.as_str()) {
            String::new()
        } else {
            text
        }
    };
    let product = format!("{} {}", said("sys_vendor"), said("product_name"));
    MachineStatus {
        product: product.trim().to_owned(),
        serial: said("product_serial"),
        nics: nics(&paths.net_devices()),
        state: space(&paths.state()),
    }
}

fn nics(devices: &Path) -> Vec<BoxNic> {
    let names = fs::read_dir(devices).into_iter().flatten().flatten();
    let names: BTreeSet<_> = names.map(|entry| entry.file_name()).collect();
    let hardware = names.iter().filter_map(|name| {
        let device = devices.join(name);
        device.join("device").exists().then(|| BoxNic {
            name: bounded::text(&name.to_string_lossy()),
            mac: read(&device.join("address")),
            link: read(&device.join("carrier")) == "1",
            // It says -1 without a link.
            speed: read(&device.join("speed")).parse().unwrap_or(0),
        })
    });
    hardware.take(MOST).collect()
}

/// The kernel's word; a card that is off has none.
fn read(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    bounded::text(String::from_utf8_lossy(&text).trim())
}

/// So coarse that it does not change with every line of a log.
fn space(state: &Path) -> Option<Space> {
    let found = nix::sys::statvfs::statvfs(state).ok()?;
    let size = found.blocks() * found.fragment_size();
    let free = found.blocks_available() * found.fragment_size();
    let hundredth = (size / 100).max(1);
    Some(Space {
        size,
        free: free / hundredth * hundredth,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_machine_is_what_its_kernel_says_and_what_is_no_hardware_is_no_card() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let firmware = paths.firmware_said();
        write(&firmware.join("sys_vendor"), "Dell Inc.\n");
        write(&firmware.join("product_name"), "PowerEdge R660\n");
        write(&firmware.join("product_serial"), "Default string\n");
        let devices = paths.net_devices();
        for (name, carrier, speed) in [("eno1", "1\n", "25000\n"), ("eno2", "0\n", "-1\n")] {
            let device = devices.join(name);
            write(&device.join("device/vendor"), "0x8086\n");
            write(&device.join("address"), "52:54:00:00:00:01\n");
            write(&device.join("carrier"), carrier);
            write(&device.join("speed"), speed);
        }
        write(&devices.join("box0/address"), "02:00:00:00:00:01\n");
        let found = look(&paths);
        assert_eq!(
            (found.product.as_str(), found.serial.as_str()),
            ("Dell Inc. PowerEdge R660", "")
        );
        let cards: Vec<_> = found
            .nics
            .iter()
            .map(|nic| (nic.name.as_str(), nic.link, nic.speed))
            .collect();
        assert_eq!(cards, [("eno1", true, 25000), ("eno2", false, 0)]);
        assert_eq!(found.state, None, "it is not there yet");
        fs::create_dir_all(paths.state()).unwrap();
        let state = look(&paths).state.unwrap();
        assert!(state.free <= state.size && state.size > 0);
        assert_eq!(look(&Paths::new("/nowhere")), MachineStatus::default());
    }
}
