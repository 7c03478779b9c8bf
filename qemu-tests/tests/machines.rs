//! The matrix of machines, each installed to a login: `scripts/test-machines [PART-OF-A-NAME …]`.
//!
//! Firmware, network cards and buses meet each other in pairs, not in every combination. Rows go on after one that fails.

#[path = "machines/rows.rs"]
mod rows;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::mirror;
use firstlight_api::status::{HardwareSummary, HostState};
use imagebuilder::build::cache::digest_file;
use lab::wire::format_mac;
use lab::{
    BoxSpec, DiskContent, Firmware, NicModel, ServerDisk, ServerSpec, data_disk, disk_serial,
};
use qemu_tests::scene::{Scene, find_host, host_in, installs};
use qemu_tests::site::{Purpose, TestSite, build_site};
use qemu_tests::ssh::Ssh;
use serde_json::{Value, json};

use rows::{Beside, ROWS, Row};

/// Large enough to be chosen.
const DATA_DISK: u64 = 8 << 30;
const HOST: &str = "row";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("not started: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let mut parts = Vec::new();
    for word in std::env::args().skip(1) {
        match word.as_str() {
            // Of cargo's own.
            "--quiet" | "--nocapture" => {}
            option if option.starts_with('-') => bail!("{option}: not known here"),
            _ => parts.push(word),
        }
    }
    let asked = |row: &&Row| parts.is_empty() || parts.iter().any(|part| row.name.contains(part));
    let rows: Vec<&Row> = ROWS.iter().filter(asked).collect();
    ensure!(
        !rows.is_empty(),
        "no row is called so; there are: {}",
        ROWS.map(|row| row.name).join(", ")
    );
    let site = build_site(Purpose::Plain)?;
    let mut results = Vec::new();
    for row in rows {
        say(&format!("\n{}", row.name));
        let began = Instant::now();
        let result = tell(row, &site);
        let seconds = began.elapsed().as_secs();
        let line = match result {
            Ok(()) => format!("ok      {:24} {seconds:5} s", row.name),
            Err(error) => format!("FAILED  {:24} {seconds:5} s  {error:#}", row.name),
        };
        say(&line);
        results.push(line);
    }
    say(&format!("\n{}", results.join("\n")));
    Ok(results.iter().all(|line| line.starts_with("ok")))
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn tell(row: &Row, site: &TestSite) -> Result<()> {
    let mut scene = Scene::set(site, row.name)?;
    install(row, &mut scene).inspect_err(|error| {
        let written = scene.write_failure(error);
        say(&match written {
            Ok(dir) => format!("consoles, status and journal are in {}", dir.display()),
            Err(other) => format!("what happened could not be written down: {other:#}"),
        });
    })
}

fn install(row: &Row, scene: &mut Scene<'_>) -> Result<()> {
    let data = scene.lab.dir().join("somebodys.raw");
    let mut before = None;
    if row.beside != Beside::Nothing {
        data_disk(&data, DATA_DISK)?;
        before = Some(digest_file(&data)?);
    }
    let server = row.server(&data);
    if row.beside == Beside::DataInTheBox {
        scene.switch_box_on(&BoxSpec {
            data_disk: Some(data.clone()),
            ..BoxSpec::default()
        })?;
        scene.wait_status("the box is ready", Duration::from_mins(4), |status| {
            status.ready.then_some(())
        })?;
    } else {
        scene.ready_box()?;
    }
    let mac = format_mac(server.mac());
    if let Some(spec) = asked_for(row, &mac)? {
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": HOST, "namespace": "default"}, "spec": spec,
        });
        scene
            .box_ssh()
            .run(&format!("sudo kubectl apply -f - <<'EOF'\n{host}\nEOF"))?;
    }
    let power_on = scene.switch_server_on(&server)?;
    let host = scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(6),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    ensure!(installs(&host) == 1, "its history: {:#?}", host.history);
    let system = scene.host_ssh(&mac)?;
    scene.wait("a login on the server", Duration::from_mins(1), |_| {
        Ok(system.run("true").ok())
    })?;
    scene.tell(format_args!(
        "from its power-on: {:.0} s",
        power_on.elapsed().as_secs_f64()
    ));
    is_as_built(&system, &server, row)?;
    let hardware = host.hardware.context("the status has no hardware")?;
    is_reported(&hardware, &server)?;
    if row.mirror {
        loses_each_disk(&system, &server, scene)?;
        // It is asked once in ten minutes.
        scene.wait_status(
            "the page tells that its mirror has lost a disk",
            Duration::from_mins(12),
            |status| {
                let problem = find_host(status, &mac)?.problem.as_ref()?;
                problem.what.contains("its mirror has lost").then_some(())
            },
        )?;
    }
    scene.nothing_leaked()?;
    if let Some(before) = before {
        scene.shut_box_down()?;
        scene.switch_servers_off()?;
        ensure!(digest_file(&data)? == before, "somebody's disk was changed");
        scene.tell("somebody's disk is unchanged");
    }
    Ok(())
}

/// What its `BareMetalHost` says, if a person writes it.
fn asked_for(row: &Row, mac: &str) -> Result<Option<Value>> {
    let mut spec = json!({"bootMACAddress": mac, "online": true});
    if let Some(hints) = row.hints {
        spec["rootDeviceHints"] = serde_json::from_str(hints).context("the row's hints")?;
    }
    if row.mirror {
        spec["raid"] = json!({"softwareRAIDVolumes": [{"level": "1"}]});
    }
    Ok((row.mirror || row.hints.is_some()).then_some(spec))
}

/// Its disks are taken out one after the other, the first one first; it comes up by itself with either.
fn loses_each_disk(system: &Ssh, server: &ServerSpec, scene: &mut Scene<'_>) -> Result<()> {
    for lost in 0..server.disks.len() {
        system.run("sync")?;
        scene.switch_server_off(server)?;
        let mut without = server.clone();
        without.disks[lost].content = DiskContent::Absent;
        scene.tell(format_args!("disk {lost} is taken out"));
        scene.switch_server_on(&without)?;
        // Before that it was whole, or it had the other disk.
        scene.wait(
            "a login with one disk of two",
            Duration::from_mins(6),
            |_| Ok(system.run("grep -F '[2/1]' /proc/mdstat").ok()),
        )?;
        let here = system.run("lsblk -dnbo SIZE /dev/[sv]d?")?;
        let sizes: Vec<String> = without
            .disks
            .iter()
            .filter_map(size_of)
            .map(|gib| (gib << 30).to_string())
            .collect();
        ensure!(
            here.split_whitespace().eq(sizes.iter()),
            "its disks: {here}"
        );
        is_on_the_mirror(system)?;
        let told = mirror::Told::parse(system.run("sudo firstlight-bootstrap mirror")?.as_bytes())?;
        let whole = told.mirror.map(|mirror| mirror.whole.len());
        ensure!(whole == Some(1), "disks that hold its mirror: {whole:?}");
    }
    Ok(())
}

/// GiB.
fn size_of(disk: &ServerDisk) -> Option<u64> {
    match disk.content {
        DiskContent::Blank { gib } => Some(gib.into()),
        DiskContent::Data(_) => Some(DATA_DISK >> 30),
        DiskContent::Absent => None,
    }
}

fn is_on_the_mirror(system: &Ssh) -> Result<()> {
    let kind = system.run("lsblk -rnso TYPE $(findmnt -no SOURCE /)")?;
    ensure!(kind.contains("raid1"), "its root is on {kind}");
    Ok(())
}

/// What the installed system sees is the machine of QEMU's arguments, and its root is on the disk of the row, or on both.
fn is_as_built(system: &Ssh, server: &ServerSpec, row: &Row) -> Result<()> {
    let mode = system.run("test -e /sys/firmware/efi && echo uefi || echo bios")?;
    ensure!(
        mode == firmware_mode(server.firmware),
        "it started by {mode}"
    );
    if server.firmware == Firmware::SecureBoot {
        let lockdown = system.run("cat /sys/kernel/security/lockdown")?;
        ensure!(lockdown.contains("[integrity]"), "lockdown: {lockdown}");
    }
    if row.mirror {
        is_on_the_mirror(system)?;
        let whole = system.run("cat /proc/mdstat")?;
        ensure!(whole.contains("[2/2] [UU]"), "its mirror: {whole}");
    } else {
        let serial =
            system.run("lsblk -dno SERIAL /dev/$(lsblk -no PKNAME $(findmnt -no SOURCE /))")?;
        ensure!(
            serial.trim() == disk_serial(row.root),
            "its root is on {serial}"
        );
    }
    let driver = system.run("basename $(readlink /sys/class/net/e*/device/driver)")?;
    let wanted = match server.nic {
        NicModel::Virtio => "virtio_net",
        NicModel::E1000e => "e1000e",
        NicModel::Rtl8139 => "8139cp",
    };
    ensure!(driver == wanted, "its network card's driver is {driver}");
    Ok(())
}

/// What the ramdisk found is what QEMU was given.
fn is_reported(hardware: &HardwareSummary, server: &ServerSpec) -> Result<()> {
    let memory = u64::from(server.memory_mib);
    let disks = server.disks.iter().filter_map(size_of);
    let mut disks: Vec<u64> = disks.map(|gib: u64| gib << 30).collect();
    let found = hardware.disks.iter().map(|disk| disk.size_bytes);
    let mut found: Vec<u64> = found.collect();
    disks.sort_unstable();
    found.sort_unstable();
    ensure!(
        hardware.cpus == 2
            && (memory * 9 / 10..=memory).contains(&hardware.memory_mib)
            && hardware.nics == 1
            && hardware.boot_mode == firmware_mode(server.firmware)
            && found == disks,
        "reported: {hardware:#?}\nit has 2 processors, {memory} MiB, disks of {disks:?}"
    );
    Ok(())
}

fn firmware_mode(firmware: Firmware) -> &'static str {
    match firmware {
        Firmware::Bios => "bios",
        Firmware::Uefi | Firmware::SecureBoot => "uefi",
    }
}
