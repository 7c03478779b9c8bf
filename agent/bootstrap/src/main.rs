//! `firstlight-bootstrap`: see the library. Started by firstlight-bootstrap.service, before cloud-init.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use firstlight_api::account::Ask;
use firstlight_api::mirror;
use firstlight_api::packages::Order;
use firstlight_api::ramdisk_order::{self, RamdiskOrder};
use firstlight_api::repository::METADATA_KEY as REPOSITORY;
use firstlight_bootstrap::access::{self, parse_access};
use firstlight_bootstrap::backups;
use firstlight_bootstrap::bmc::{ThisServer as ThisBmc, obey as obey_bmc};
use firstlight_bootstrap::destination::{self, plan_destination};
use firstlight_bootstrap::drive::{Drive, find_drive, load_drive, settle_devices};
use firstlight_bootstrap::files::write_files;
use firstlight_bootstrap::follow::follow;
use firstlight_bootstrap::invitation::parse_invitation;
use firstlight_bootstrap::journal;
use firstlight_bootstrap::link::Link;
use firstlight_bootstrap::machine::{self, ThisMachine, restart_from_network};
use firstlight_bootstrap::metrics;
use firstlight_bootstrap::mirror::{look as mirror_of, root_device};
use firstlight_bootstrap::packages::{ThisServer, obey};
use firstlight_bootstrap::plan::Held;
use firstlight_bootstrap::proxy::plan_proxy;
use firstlight_bootstrap::ramdisk::{self, ThisKernel};
use firstlight_bootstrap::seed::Seed;
use firstlight_bootstrap::sources::plan_sources;
use firstlight_bootstrap::trust::plan_trust;
use firstlight_client::net;
use firstlight_client::net::interface::{clear_address, parse_mac};
use firstlight_client::signed_client::SignedClient;
use serde::Serialize;

/// Between two attempts after something on this machine failed: ending would let cloud-init start without its data.
const AGAIN: Duration = Duration::from_secs(10);
/// Two hundred packages with the longest names and versions.
const LONGEST_ORDER: u64 = 128 * 1024;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .with_ansi(false)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["restart"] => return restart(None),
        ["restart", mac] => return restart(Some(mac)),
        ["packages"] => return packages(),
        ["backup"] => return keep_backup(),
        ["journal"] => return tell_the_box(&send_journal),
        ["metrics"] => return tell_the_box(&|the_box| metrics::keep(the_box)),
        ["kexec", mac] => return kexec(mac),
        ["mirror"] => return tell(&look_at_mirror),
        ["bmc", word] => match Ask::of(word) {
            Some(ask) => return tell(&|| Ok(obey_bmc(&mut ThisBmc, ask))),
            None => return usage(),
        },
        _ => return usage(),
    }
    while let Err(error) = run(Path::new("/")) {
        tracing::error!("{error:#}; trying again");
        thread::sleep(AGAIN);
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    tracing::error!(
        "usage: firstlight-bootstrap (by its service), or firstlight-bootstrap restart [MAC]: restarts this server, \
         with MAC from the network, by that NIC, or firstlight-bootstrap packages: reads one order of the box as JSON, \
         or firstlight-bootstrap bmc look|make|remove: the box's account in this server's BMC, answers as JSON, \
         or firstlight-bootstrap mirror: which disks hold this server's root, as JSON, \
         or firstlight-bootstrap journal, or metrics (by their services): brings them to the box, \
         or firstlight-bootstrap kexec MAC: starts the box's ramdisk as one order on standard input says"
    );
    ExitCode::from(2)
}

/// The box's question, over SSH; the answer on standard output, for a password may be in it.
fn tell<T: Serialize>(answer: &dyn Fn() -> io::Result<T>) -> ExitCode {
    let told = answer().and_then(|told| Ok(serde_json::to_vec(&told)?));
    match told.and_then(|told| io::stdout().write_all(&told)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the answer cannot be given: {error}");
            ExitCode::FAILURE
        }
    }
}

fn look_at_mirror() -> io::Result<mirror::Told> {
    mirror_of(Path::new("/sys"), &root_device()?)
}

/// The box's order on standard input, over SSH. Nothing has changed if it fails.
fn kexec(mac: &str) -> ExitCode {
    let Some(nic) = parse_mac(mac) else {
        return usage();
    };
    let mut text = Vec::new();
    let read = io::stdin()
        .take(ramdisk_order::LARGEST as u64 + 1)
        .read_to_end(&mut text);
    let order = read.map_err(anyhow::Error::from);
    let order = order.and_then(|_| Ok(RamdiskOrder::parse(&text)?));
    let loaded = order.and_then(|order| ramdisk::prepare(&mut ThisKernel, &order));
    let started = loaded.and_then(|()| {
        // The network may go before the box has heard how this ended.
        drop(writeln!(std::io::stdout(), "restarting"));
        machine::start_loaded(nic)
    });
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The box's order, over SSH.
fn restart(mac: Option<&str>) -> ExitCode {
    let nic = mac.map(parse_mac);
    if nic == Some(None) {
        tracing::error!(
            "`{}` is no MAC address, such as 52:54:00:12:34:56",
            mac.unwrap_or_default()
        );
        return ExitCode::from(2);
    }
    // The network may go before the box has heard how this ended.
    drop(writeln!(std::io::stdout(), "restarting"));
    match nic
        .flatten()
        .map_or_else(machine::restart, restart_from_network)
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The box's order on standard input, over SSH; the report on standard output.
fn keep_backup() -> ExitCode {
    let free = |folder: &Path| {
        let found = nix::sys::statvfs::statvfs(folder);
        found.map_or(0, |found| found.blocks_available() * found.fragment_size())
    };
    match backups::keep(Path::new("/"), &mut io::stdin().lock(), free) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// By firstlight-journal.service and firstlight-metrics.service, whose environment says where everything is.
fn tell_the_box(what: &dyn Fn(&SignedClient) -> Result<()>) -> ExitCode {
    let Some(credentials) = folder("CREDENTIALS_DIRECTORY") else {
        return usage();
    };
    if let Err(error) = destination::open(&credentials).and_then(|the_box| what(&the_box)) {
        tracing::error!("{error:#}");
    }
    ExitCode::FAILURE
}

fn folder(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn send_journal(the_box: &SignedClient) -> Result<()> {
    let state = folder("STATE_DIRECTORY").context("there is no STATE_DIRECTORY")?;
    journal::keep(the_box, &state)
}

fn packages() -> ExitCode {
    let order = io::read_to_string(io::stdin().take(LONGEST_ORDER)).map_err(anyhow::Error::from);
    let order = match order.and_then(|text| Ok(Order::parse(text.as_bytes())?)) {
        Ok(order) => order,
        Err(error) => {
            tracing::error!("{error:#}");
            return ExitCode::from(2);
        }
    };
    let told = obey(&mut ThisServer, &order)
        .and_then(|report| Ok(io::stdout().write_all(&serde_json::to_vec(&report)?)?));
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path) -> Result<()> {
    let Some(device) = find_drive()? else {
        return Ok(());
    };
    let drive = load_drive(&device)?;
    let_the_box_in(root, &drive);
    match plan_sources(&drive.meta_data) {
        Ok(mut files) => {
            // What is there may be newer than the drive: an order of the box's brings the key of another stick.
            files.retain(|file| !root.join(&file.path).exists());
            write_files(root, &files)?;
        }
        // A server without packages is better than none.
        Err(error) => tracing::error!("the config drive names no package repository: {error}"),
    }
    let host = drive
        .meta_data
        .get(REPOSITORY)
        .and_then(|it| it["host"].as_str());
    write_files(root, &plan_proxy(&drive.meta_data, host))?;
    let seed = Seed::new(root);
    let Some(invitation) = parse_invitation(&drive.meta_data)? else {
        return seed.keep(&drive);
    };
    write_files(root, &plan_trust(&invitation))?;
    if let Some(file) = plan_destination(&invitation) {
        write_files(root, &[file])?;
    }
    if seed.held()? == Held::Confirmed {
        return Ok(());
    }
    // A NIC that is up before udev has named it would keep the kernel's name.
    settle_devices();
    // Other NICs may be on networks with DHCP servers of their own.
    let access = parse_access(&drive.meta_data).ok().flatten();
    let (session, lease) = net::connect(access.as_ref().map(|it| it.mac.as_str()))?;
    let nic = session.nic().clone();
    tracing::info!(nic = nic.name, address = %lease.address, "address received");
    thread::spawn(move || session.keep());
    let mut link = Link::new(&invitation)?;
    follow(&mut link, &mut ThisMachine { mac: nic.mac }, &seed, &drive)?;
    // systemd-networkd starts from nothing.
    Ok(clear_address(&nic.name)?)
}

/// Without it a person has to do what the box would; without bootstrap data there is no server. So it holds nothing up.
fn let_the_box_in(root: &Path, drive: &Drive) {
    let done = match parse_access(&drive.meta_data) {
        Ok(None) => return,
        Ok(Some(access)) => access::apply(root, &access),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = done {
        tracing::error!("the box cannot log in here: {error:#}");
    }
}
