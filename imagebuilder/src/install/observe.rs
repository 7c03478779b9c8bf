//! Looks at a machine: the files of the kernel, dpkg and systemd, and nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{SockaddrIn, SockaddrStorage};

use super::checks::{MODULES, Machine, SIGNS, State};
use super::layout::{Files, Found, Item, LeaveOut, Shape};
use super::manifest::Manifest;
use super::nics::Nic;
use super::packages::parse_installed;
use super::ports::{Listener, Protocol, parse_listeners};
use super::services;
use super::system::{is_true, owners};
use crate::build::cache::digest_file;

pub fn observe_machine(manifest: Option<&Manifest>) -> Result<Machine> {
    let release = read("/etc/os-release");
    let field = |name: &str| {
        let lines = release.lines().filter_map(|line| line.split_once('='));
        let found = lines.into_iter().find(|(key, _)| *key == name);
        found.map_or_else(String::new, |(_, value)| value.trim_matches('"').to_owned())
    };
    let missing = MODULES
        .into_iter()
        .filter(|module| !is_true("modprobe", &["--dry-run", "--quiet", module]));
    let signs = SIGNS.iter().map(|(path, _)| *path);
    Ok(Machine {
        system: (field("ID"), field("VERSION_ID")),
        arch: std::env::consts::ARCH.to_owned(),
        systemd: Path::new("/run/systemd/system").is_dir(),
        container: Path::new("/run/systemd/container").exists(),
        memory: parse_memory(&read("/proc/meminfo")).context("reading /proc/meminfo")?,
        room: (room("/var/lib")?, room("/usr")?),
        packages: parse_installed(&read("/var/lib/dpkg/status")),
        users: parse_accounts(&read("/etc/passwd")),
        groups: parse_accounts(&read("/etc/group")),
        listeners: observe_listeners(),
        nics: observe_nics()?,
        signs: signs
            .filter(|path| Path::new("/").join(path).exists())
            .collect(),
        missing_modules: missing.collect(),
        forwards: read("/proc/sys/net/ipv4/ip_forward").trim() == "1",
        state: observe_state(manifest),
    })
}

/// Kernel files have no errors worth a refusal: what cannot be read is not there.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub fn machine_id() -> String {
    read("/etc/machine-id").trim().to_owned()
}

fn observe_state(manifest: Option<&Manifest>) -> State {
    match manifest {
        Some(manifest) if manifest.machine != machine_id() => State::Foreign,
        Some(manifest) if services::is_running(&manifest.files) => State::Running,
        Some(_) => State::Ours,
        None if Path::new("/var/lib/firstlight").exists() => State::Foreign,
        None => State::Absent,
    }
}

fn room(path: &str) -> Result<u64> {
    let stat =
        nix::sys::statvfs::statvfs(path).with_context(|| format!("asking for room in {path}"))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

/// `MemTotal` in bytes.
fn parse_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Names and numbers out of `passwd(5)` or `group(5)`, which agree so far.
fn parse_accounts(text: &str) -> Vec<(String, u32)> {
    let parse = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(parse).collect()
}

fn observe_listeners() -> Vec<Listener> {
    let lists = [
        (Protocol::Tcp, "/proc/net/tcp"),
        (Protocol::Tcp, "/proc/net/tcp6"),
        (Protocol::Udp, "/proc/net/udp"),
        (Protocol::Udp, "/proc/net/udp6"),
    ];
    let mut listeners: Vec<Listener> = lists
        .into_iter()
        .flat_map(|(protocol, path)| parse_listeners(protocol, &read(path)))
        .collect();
    for process in children(Path::new("/proc")) {
        for descriptor in children(&process.join("fd")) {
            let Ok(target) = fs::read_link(&descriptor) else {
                continue;
            };
            let target = target.to_string_lossy();
            let ours = |listener: &&mut Listener| *target == format!("socket:[{}]", listener.inode);
            for listener in listeners.iter_mut().filter(ours) {
                let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
                listener.program = Some(name.trim().to_owned());
            }
        }
    }
    listeners
}

/// Processes come and go while they are looked at.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn observe_nics() -> Result<Vec<Nic>> {
    let routes = read("/proc/net/route");
    let mut nics: Vec<Nic> = children(Path::new("/sys/class/net"))
        .into_iter()
        .filter_map(|device| {
            let name = device.file_name()?.to_string_lossy().into_owned();
            let mac = fs::read_to_string(device.join("address")).unwrap_or_default();
            Some(Nic {
                mac: mac.trim().parse().ok(),
                hardware: device.join("device").exists(),
                addresses: Vec::new(),
                default_route: has_default_route(&routes, &name),
                name,
            })
        })
        .collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in getifaddrs().context("listing addresses")? {
        let part = |address: Option<SockaddrStorage>| {
            address.and_then(|address| address.as_sockaddr_in().map(SockaddrIn::ip))
        };
        let (Some(address), Some(mask)) = (part(entry.address), part(entry.netmask)) else {
            continue;
        };
        let nic = nics.iter_mut().find(|nic| nic.name == entry.interface_name);
        if let Some(nic) = nic {
            nic.addresses.push((address, prefix(mask)));
        }
    }
    Ok(nics)
}

fn prefix(mask: Ipv4Addr) -> u8 {
    u8::try_from(u32::from(mask).leading_ones()).unwrap_or(32)
}

/// Out of `/proc/net/route`: name, destination and, in the eighth field, mask.
fn has_default_route(routes: &str, name: &str) -> bool {
    routes.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.first() == Some(&name)
            && fields.get(1) == Some(&"00000000")
            && fields.get(7) == Some(&"00000000")
    })
}

/// Every file and link below `tree` that the list does not leave out, in the order of the names.
pub fn collect(tree: &Path, leave_out: &LeaveOut) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    walk(tree, Path::new(""), leave_out, &mut items)?;
    Ok(items)
}

/// A link for each entry of a folder of `tree`, to where the tree is mounted later.
pub fn link_to(tree: &Path, folder: &str, mounted: &str) -> Result<Vec<Item>> {
    let names = sorted_names(&tree.join(folder))?;
    let link = |name: &OsString| {
        let path = Path::new(folder).join(name);
        Item {
            from: tree.join(&path),
            shape: Shape::Link(Path::new(mounted).join(&path)),
            path,
            bytes: 0,
        }
    };
    Ok(names.iter().map(link).collect())
}

fn sorted_names(folder: &Path) -> Result<Vec<OsString>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut names: Vec<_> = entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

fn walk(tree: &Path, below: &Path, leave_out: &LeaveOut, items: &mut Vec<Item>) -> Result<()> {
    let folder = tree.join(below);
    for name in sorted_names(&folder)? {
        let (path, from) = (below.join(&name), folder.join(&name));
        if leave_out.covers(&path) {
            continue;
        }
        let data = fs::symlink_metadata(&from)?;
        if data.is_dir() {
            walk(tree, &path, leave_out, items)?;
        } else if let Some(shape) = observe_shape(&from)? {
            items.push(Item {
                path,
                from,
                shape,
                bytes: data.len(),
            });
        }
    }
    Ok(())
}

/// What is at a path; `None` when nothing is.
pub fn observe_shape(path: &Path) -> Result<Option<Shape>> {
    let data = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        data => data.with_context(|| format!("looking at {}", path.display()))?,
    };
    Ok(Some(if data.is_symlink() {
        Shape::Link(fs::read_link(path)?)
    } else if data.is_file() {
        Shape::File {
            mode: data.permissions().mode() & 0o7777,
            sha256: digest_file(path)?,
        }
    } else {
        Shape::Other
    }))
}

/// What the machine has at all these paths.
pub fn observe_files(
    root: &Path,
    items: &[Item],
    ours: &Files,
) -> Result<BTreeMap<PathBuf, Found>> {
    let paths: BTreeSet<&PathBuf> = items
        .iter()
        .map(|item| &item.path)
        .chain(ours.keys())
        .collect();
    let mut found = BTreeMap::new();
    for path in paths {
        if let Some(shape) = observe_shape(&root.join(path))? {
            let package = None;
            found.insert(path.clone(), Found { shape, package });
        }
    }
    let strange: Vec<String> = found
        .keys()
        .filter(|path| !ours.contains_key(*path))
        .map(|path| format!("/{}", path.display()))
        .collect();
    if !strange.is_empty() {
        for (path, package) in owners(&strange) {
            if let Some(found) = found.get_mut(Path::new(path.trim_start_matches('/'))) {
                found.package = Some(package);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_accounts_and_routes_are_read() {
        let meminfo = "MemTotal:        4013784 kB\nMemFree:  1 kB\n";
        assert_eq!(parse_memory(meminfo), Some(4_013_784 * 1024));
        let accounts = parse_accounts("root:x:0:0:root:/root:/bin/bash\nbroken\nadm:x:4:\n");
        assert_eq!(accounts, [("root".to_owned(), 0), ("adm".to_owned(), 4)]);
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
            a\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            b\t000016AC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(has_default_route(routes, "a") && !has_default_route(routes, "b"));
    }
}
