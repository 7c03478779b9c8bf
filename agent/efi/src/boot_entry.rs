//! The entry of an installed disk, first in `BootOrder`; and `BootNext`.

use std::io;

use crate::load_option::{self, Boots, DiskPath, HardDrive};
use crate::vars::EfiVars;

const DESCRIPTION: &str = "Firstlight";

/// Makes `path` on `drive` the first boot entry, and the next; entries of earlier installations go. Its number.
pub fn write_entry(vars: &EfiVars, drive: &HardDrive, path: &str) -> io::Result<u16> {
    let data = load_option::encode(DESCRIPTION, drive, path);
    let own = own_entries(vars);
    let number = own.first().copied().map_or_else(|| free_number(vars), Ok)?;
    vars.write(&entry_name(number), &data)?;
    let stale = own.get(1..).unwrap_or_default();
    for other in stale {
        vars.remove(&entry_name(*other))?;
    }
    let order: Vec<u8> = std::iter::once(number)
        .chain(
            boot_order(vars)
                .into_iter()
                .filter(|n| *n != number && !stale.contains(n)),
        )
        .flat_map(u16::to_le_bytes)
        .collect();
    vars.write("BootOrder", &order)?;
    vars.write("BootNext", &number.to_le_bytes())?;
    Ok(number)
}

/// Entries that an earlier installation made, in order of number.
fn own_entries(vars: &EfiVars) -> Vec<u16> {
    entry_numbers(vars)
        .into_iter()
        .filter(|number| {
            let data = vars.read(&entry_name(*number));
            data.and_then(|d| load_option::description(&d)).as_deref() == Some(DESCRIPTION)
        })
        .collect()
}

/// Each once: `Boot00ab` is another variable than `Boot00AB`, and no entry.
fn entry_numbers(vars: &EfiVars) -> Vec<u16> {
    let number = |name: &String| {
        let number = u16::from_str_radix(name.strip_prefix("Boot")?, 16).ok()?;
        (entry_name(number) == *name).then_some(number)
    };
    vars.names().iter().filter_map(number).collect()
}

fn free_number(vars: &EfiVars) -> io::Result<u16> {
    let taken = entry_numbers(vars);
    (0..=u16::MAX)
        .find(|number| !taken.contains(number))
        .ok_or_else(|| io::Error::other("every boot entry is taken"))
}

fn entry_name(number: u16) -> String {
    format!("Boot{number:04X}")
}

fn boot_order(vars: &EfiVars) -> Vec<u16> {
    let data = vars.read("BootOrder").unwrap_or_default();
    data.chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}

/// The disks that the firmware boots from, first to last, where their own places say so. Entries that the box made are left out: it
/// comes first there by our own doing. What comes after a partition that only its disk can tell is nobody's first.
pub fn boot_disks(vars: &EfiVars) -> Vec<DiskPath> {
    let own = own_entries(vars);
    let others = boot_order(vars)
        .into_iter()
        .filter(|number| !own.contains(number));
    others
        .filter_map(|number| vars.read(&entry_name(number)))
        .map(|data| load_option::boots(&data))
        .take_while(|boots| *boots != Boots::Partition)
        .filter_map(|boots| match boots {
            Boots::Disk(path) => Some(path),
            Boots::Partition | Boots::Other => None,
        })
        .collect()
}

/// Makes the next boot use the entry of an installed disk; false when there is none.
pub fn boot_next(vars: &EfiVars) -> io::Result<bool> {
    match own_entries(vars).first() {
        Some(number) => vars.write("BootNext", &number.to_le_bytes()).map(|()| true),
        None => Ok(false),
    }
}

/// The next boot goes by `BootOrder` again.
pub fn forget_next(vars: &EfiVars) -> io::Result<()> {
    match vars.read("BootNext") {
        Some(_) => vars.remove("BootNext"),
        None => Ok(()),
    }
}

/// Makes the next boot come from the network: by the entry of this NIC, else of any; false when there is none.
pub fn boot_network_next(vars: &EfiVars, mac: [u8; 6]) -> io::Result<bool> {
    match network_entry(vars, mac) {
        Some(number) => vars.write("BootNext", &number.to_le_bytes()).map(|()| true),
        None => Ok(false),
    }
}

/// IPv4 before the rest, because the box answers there; then in the firmware's own order.
fn network_entry(vars: &EfiVars, mac: [u8; 6]) -> Option<u16> {
    let order = boot_order(vars);
    let place = |number: &u16| order.iter().position(|n| n == number).unwrap_or(usize::MAX);
    let network = |number: u16| {
        let path = load_option::network_path(&vars.read(&entry_name(number))?)?;
        Some((number, path))
    };
    entry_numbers(vars)
        .into_iter()
        .filter_map(network)
        .min_by_key(|(number, path)| (path.mac != mac, !path.ipv4, place(number)))
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests;
