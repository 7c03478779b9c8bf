//! Whole deploys over real TLS on loopback: the ramdisk with a file for a disk, against a fake Ironic and a fake box.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use firstlight_api::disk::Disk;
use firstlight_api::names::NODE_DISK;
use firstlight_api::order::{DeploymentId, DiskOrder, DiskPolicy, DiskScope, EXTRA, Mark};
use firstlight_api::report::{Directive, LookupState, Phase};
use firstlight_api::signed;
use firstlight_api::start::{self, Start};
use firstlight_client::http::Request;
use firstlight_client::key::Key;
use firstlight_ramdisk::deploy::gpt::Gpt;
use firstlight_ramdisk::ipa::event::Departure;
use serde_json::{Value, json};
use support::ironic::Ironic;
use support::machine::{DISK, TestMachine};
use support::the_box::{Box, Decide, lookup};
use support::{MAC, MIB, Pki, sha256_hex};
use uuid::Uuid;

const DEPLOYMENT: DeploymentId = DeploymentId::new([7; 16]);
const ANOTHER: DeploymentId = DeploymentId::new([8; 16]);

struct Site {
    the_box: Arc<Box>,
    ironic: Arc<Ironic>,
    machine: Arc<TestMachine>,
    box_port: u16,
    ended: std::sync::mpsc::Receiver<anyhow::Result<Departure>>,
}

/// A GPT image of 16 MiB with data all over its partition.
fn image() -> Vec<u8> {
    let packed: &[u8] = include_bytes!("../fixtures/disks/gpt.zst");
    let mut image = zstd::decode_all(packed).unwrap();
    let end = image.len() - 34 * 512;
    let mut state = 1_u32;
    for byte in &mut image[1 << 20..end] {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    }
    image
}

impl Site {
    /// Starts everything; the box lets the ramdisk ask Ironic unless a test decides otherwise.
    fn start(decide: Option<Decide>) -> Self {
        Self::on(TestMachine::new(MAC), decide)
    }

    fn on(machine: TestMachine, decide: Option<Decide>) -> Self {
        let pki = Pki::new();
        let the_box = Arc::new(Box {
            ca_pem: pki.ca_pem.clone(),
            ..Box::default()
        });
        *the_box.decide.lock().unwrap() = decide;
        let ironic = Arc::new(Ironic::default());
        let (box_port, ironic_port) = (the_box.start(), ironic.start(pki.server));
        let machine = Arc::new(machine);
        let settings = support::settings(box_port, ironic_port, pki.ca_sha256);
        let ended = support::start(settings, machine.clone());
        Self {
            the_box,
            ironic,
            machine,
            box_port,
            ended,
        }
    }

    fn want(&self) {
        self.ironic.node.lock().unwrap().wanted = true;
    }

    fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_mins(2);
        while !holds(self) {
            assert!(
                Instant::now() < end,
                "waiting for {what}: {:?}",
                self.ironic.node.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for_heartbeat(&self) {
        self.wait("a heartbeat", |site| {
            site.ironic.node.lock().unwrap().agent.is_some()
        });
    }

    /// A box that believes the first report gives this order.
    fn order(&self, deployment: DeploymentId, policy: DiskPolicy) -> Value {
        let reports = self.the_box.reports.lock().unwrap();
        let disks: Vec<Disk> = reports[0].inventory["disks"]
            .as_array()
            .unwrap()
            .iter()
            .map(Disk::from_inventory)
            .collect();
        let order = DiskOrder {
            deployment: Some(deployment),
            policy,
            scope: DiskScope::Server,
            disks: disks.iter().map(Disk::id).collect(),
            root: Some(disks[0].named()),
            mirror: None,
        };
        json!({EXTRA: order})
    }

    fn step(&self, served: &[u8], name: &str, drive: Option<&str>) -> Value {
        let order = self.order(DEPLOYMENT, DiskPolicy::Blank);
        self.step_ordered(&order, served, name, drive)
    }

    fn step_ordered(&self, extra: &Value, served: &[u8], name: &str, drive: Option<&str>) -> Value {
        let url = format!("http://127.0.0.1:{}/images/{name}", self.box_port);
        json!({
            "node": {
                "driver": "manual-management", "power_interface": "fake", "properties": {}, "instance_info": {},
                "extra": extra,
            },
            "ports": [],
            "step": {"interface": "deploy", "step": "write_image", "args": {"configdrive": drive, "image_info": {
                "id": name, "urls": [url], "disk_format": "raw",
                "os_hash_algo": "sha256", "os_hash_value": sha256_hex(served),
            }}},
        })
    }

    fn write_image(&self, step: &Value) -> Value {
        let (status, running) = self
            .ironic
            .command("deploy.execute_deploy_step", step, false);
        assert_eq!(
            (status, running["command_status"].as_str()),
            (200, Some("RUNNING")),
            "{running}"
        );
        self.wait("the step's end", |site| {
            site.ironic.commands().last().unwrap()["command_status"] != "RUNNING"
        });
        self.ironic.commands().pop().unwrap()
    }

    /// Why an image is not written.
    fn refused(&self, step: &Value) -> String {
        let failed = self.write_image(step);
        assert_eq!(failed["command_status"], "FAILED", "{failed}");
        failed["command_error"]["details"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn clean(&self, extra: &Value) -> Value {
        let step = json!({
            "node": {"extra": extra}, "ports": [],
            "step": {"interface": "deploy", "step": "erase_devices_metadata"},
        });
        let (_, done) = self.ironic.command("clean.execute_clean_step", &step, true);
        done
    }

    fn ready(&self) {
        self.want();
        self.wait_for_heartbeat();
    }

    fn command(&self, name: &str) -> Value {
        let (status, answer) = self.ironic.command(name, &json!({}), true);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    fn lock_down(&self) -> Departure {
        assert_eq!(self.command("standby.sync")["command_status"], "SUCCEEDED");
        let (url, _, client) = self.ironic.agent();
        assert_eq!(
            self.command("system.lockdown")["command_status"],
            "SUCCEEDED"
        );
        // At once: an Ironic that is still answered takes the lockdown for failed.
        let call = Request::get(&url);
        assert!(client.send(&call).is_err(), "the command API must be gone");
        self.ended
            .recv_timeout(Duration::from_secs(30))
            .unwrap()
            .unwrap()
    }

    /// The disk is the image with its table moved, the config drive at its end, and zeros between.
    fn drive_on_disk(&self, length: usize) -> Vec<u8> {
        let head = self.machine.read(0, 1 << 20);
        let gpt = Gpt::parse(&head, 512).unwrap().unwrap();
        self.machine
            .read(gpt.partitions()[1].first_lba * 512, length)
    }

    fn assert_installed(&self, image: &[u8], drive: &[u8]) {
        let head = self.machine.read(0, 1 << 20);
        let gpt = Gpt::parse(&head, 512).unwrap().unwrap();
        let partitions = gpt.partitions();
        assert_eq!(partitions.len(), 2);
        let end = usize::try_from((partitions[0].last_lba + 1) * 512).unwrap();
        assert!(self.machine.read(MIB, end - (1 << 20)) == image[1 << 20..end]);
        assert_eq!(
            self.machine
                .read(partitions[1].first_lba * 512, drive.len()),
            drive
        );
        let backup = gpt.backup();
        assert!(self.machine.read(DISK - backup.len() as u64, backup.len()) == backup);
    }
}

fn packed_drive(bytes: &[u8]) -> String {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    base64::engine::general_purpose::STANDARD.encode(gzip.finish().unwrap())
}

#[test]
fn a_host_is_discovered_inspected_and_deployed_through_broken_downloads() {
    let site = Site::start(None);
    site.wait("a report", |site| {
        site.the_box.reports.lock().unwrap().len() > 1
    });
    let first = site.the_box.reports.lock().unwrap()[0].clone();
    assert_eq!(
        (first.lookup, first.disks[0].signatures.len()),
        (LookupState::NotAsked, 0)
    );
    assert_eq!(first.disks[0].name, "/dev/vda");

    {
        let mut node = site.ironic.node.lock().unwrap();
        (node.inspecting, node.wanted) = (true, true);
    }
    site.wait_for_heartbeat();
    // A lookup may have been faster than the inventory; then it is offered again.
    site.wait("the inventory", |site| {
        site.ironic.node.lock().unwrap().inventory.is_some()
    });
    let inspection = site.ironic.node.lock().unwrap().inventory.clone().unwrap();
    // Another NIC's address may be claimed by somebody else's node, and Ironic takes no inventory of two nodes.
    let macs = |inventory: &Value| {
        let nics = inventory["interfaces"].as_array().unwrap().iter();
        nics.map(|nic| nic["mac_address"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(macs(&inspection["inventory"]), [support::MAC]);
    assert_eq!(macs(&first.inventory).len(), 2);
    assert_eq!(inspection["root_disk"]["name"], "/dev/vda");
    assert_eq!(inspection["inventory"]["cpu"]["architecture"], "x86_64");

    let (image, drive) = (image(), b"an ISO labelled config-2".repeat(1000));
    let served = zstd::encode_all(image.as_slice(), 1).unwrap();
    *site.the_box.image.lock().unwrap() = served.clone();
    // Seeded by hand: two cuts, an outage of many refusals, and a cut right after it.
    let mut cuts = vec![1_000_000, 3_000_000];
    cuts.extend([0; 40]);
    cuts.push(1);
    *site.the_box.cuts.lock().unwrap() = cuts.into();
    assert_eq!(
        site.command("deploy.get_deploy_steps")["command_status"],
        "SUCCEEDED"
    );
    let done = site.write_image(&site.step(&served, "node.raw.zst", Some(&packed_drive(&drive))));
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(done["command_result"]["deploy_step"]["step"], "write_image");
    let ranges = site.the_box.ranges.lock().unwrap().clone();
    assert_eq!(
        ranges[0], "bytes=1000000-",
        "the download goes on where it broke"
    );

    assert_eq!(site.lock_down(), Departure::BootDisk);
    site.assert_installed(&image, &drive);
    let phases = site.the_box.phases.lock().unwrap();
    assert_eq!(phases.last(), Some(&Phase::REBOOTING), "{phases:?}");
}

/// Writes the image with this order; the last word to the box, how the ramdisk ends, and the command lines of kernels that were loaded.
fn starts(machine: TestMachine, order: &Value) -> (Phase, Departure, Vec<String>) {
    let site = Site::on(machine, None);
    site.ready();
    let image = image();
    site.the_box.image.lock().unwrap().clone_from(&image);
    let mut extra = site.order(DEPLOYMENT, DiskPolicy::Blank);
    extra[start::EXTRA] = order.clone();
    let done = site.write_image(&site.step_ordered(&extra, &image, "node.raw", None));
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    let departure = site.lock_down();
    let last = site.the_box.phases.lock().unwrap().last().cloned();
    let loaded = site.machine.loaded.lock().unwrap().clone();
    (last.unwrap(), departure, loaded)
}

#[test]
fn the_installed_kernel_is_started_with_what_its_loader_gives_it_and_what_a_rule_adds() {
    let mut machine = TestMachine::new(MAC);
    machine.add_file("boot/grub/grub.cfg", "linux /vmlinuz root=LABEL=root\n");
    machine.add_file("vmlinuz", "a kernel");
    let order = json!({"kexec": true, "kernelArguments": "iommu=pt"});
    let (last, departure, loaded) = starts(machine, &order);
    let start = Start::Kexec;
    assert_eq!(
        (last, departure),
        (Phase::Rebooting { start }, Departure::Kexec)
    );
    let line = "BOOT_IMAGE=/vmlinuz root=LABEL=root iommu=pt".to_owned();
    assert_eq!(
        loaded,
        [String::new(), line],
        "what was loaded before is forgotten"
    );
}

#[test]
fn a_kernel_that_cannot_be_started_directly_is_started_by_the_firmware_and_the_box_hears_why() {
    let order = json!({"kexec": true});
    let mut unsigned = TestMachine::new(MAC);
    unsigned.add_file("boot/grub/grub.cfg", "linux /vmlinuz\n");
    unsigned.add_file("vmlinuz", "");
    for (machine, why) in [
        (unsigned, "Secure Boot demands one"),
        (TestMachine::new(MAC), "looking into the written disk"),
    ] {
        let (last, departure, loaded) = starts(machine, &order);
        assert_eq!((departure, loaded.len()), (Departure::BootDisk, 1));
        let Phase::Rebooting {
            start: Start::Restart { reason },
        } = last
        else {
            panic!("{last:?}");
        };
        assert!(reason.contains(why), "{reason}");
    }
    let (last, departure, _) = starts(TestMachine::new(MAC), &json!({}));
    assert_eq!((last, departure), (Phase::REBOOTING, Departure::BootDisk));
}

#[test]
fn an_image_that_takes_no_kernel_arguments_is_not_installed_without_them() {
    let site = Site::on(TestMachine::new(MAC), None);
    site.ready();
    let image = image();
    site.the_box.image.lock().unwrap().clone_from(&image);
    let mut extra = site.order(DEPLOYMENT, DiskPolicy::Blank);
    extra[start::EXTRA] = json!({"kexec": true, "kernelArguments": "iommu=pt"});
    let why = site.refused(&site.step_ordered(&extra, &image, "node.raw", None));
    assert!(
        why.starts_with("the kernel arguments `iommu=pt` of site.yaml cannot be given"),
        "{why}"
    );
}

/// The image of nodes says by its disk's GUID that nothing in it goes by GUIDs.
/// A machine with two disks, and what of the installed system is looked into.
fn with_two_disks(files: &[(&str, &str)]) -> TestMachine {
    let mut machine = TestMachine::new(MAC);
    machine.add_disk("vdb");
    for (path, text) in files {
        machine.add_file(path, text);
    }
    machine
}

const SYSTEM: [(&str, &str); 3] = [
    ("boot/grub/grub.cfg", "linux /vmlinuz root=LABEL=root\n"),
    ("etc/os-release", "ID=debian\n"),
    ("usr/sbin/mdadm", ""),
];
const DISKS: [&str; 2] = ["vda", "vdb"];
/// Of md, in the last eight KiB of each half.
const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

impl Site {
    /// The order, with the second disk as the other half of a mirror.
    fn mirrored(&self) -> Value {
        let mut extra = self.order(DEPLOYMENT, DiskPolicy::Blank);
        let reports = self.the_box.reports.lock().unwrap();
        let second = Disk::from_inventory(&reports[0].inventory["disks"][1]);
        extra[EXTRA]["mirror"] = json!(second.named());
        extra
    }

    fn gpt_of(&self, disk: &str) -> Option<Gpt> {
        Gpt::parse(&self.machine.read_of(disk, 0, 1 << 20), 512).unwrap()
    }
}

#[test]
fn a_mirror_is_written_to_both_disks_and_its_kernel_is_told_to_start_from_it() {
    let site = Site::on(with_two_disks(&SYSTEM), None);
    site.ready();
    let (image, drive) = (image(), b"an ISO labelled config-2".repeat(1000));
    site.the_box.image.lock().unwrap().clone_from(&image);
    let mut extra = site.mirrored();
    extra[start::EXTRA] = json!({"kexec": false, "kernelArguments": "iommu=pt"});
    let step = site.step_ordered(&extra, &image, "node.raw", Some(&packed_drive(&drive)));
    let done = site.write_image(&step);
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    let said = &done["command_result"]["deploy_result"]["result"];
    assert_eq!(said, "image written to /dev/vda and /dev/vdb");
    let wrote = &done["command_result"]["deploy_result"]["wrote"];
    let digest = sha256_hex(&drive);
    assert_eq!(
        wrote,
        &json!({"imageBytes": image.len(), "configDrive": digest, "kernelArguments": "iommu=pt"})
    );
    let [first, second] = DISKS.map(|disk| site.gpt_of(disk).unwrap());
    assert_eq!(first, second);
    let config = first.partitions()[1].first_lba * 512;
    for disk in DISKS {
        let read = |offset, length| site.machine.read_of(disk, offset, length);
        assert_eq!(read(config, drive.len()), drive, "{disk}");
        assert!(read(MIB, 14 << 20) == image[1 << 20..15 << 20], "{disk}");
        assert_eq!(read(DISK - 8192, 4), MD_MAGIC, "{disk}");
        // The table ends where the mirror does, in front of what is md's.
        let backup = first.backup();
        let end = DISK - MIB - backup.len() as u64;
        assert!(read(end, backup.len()) == backup, "{disk}");
    }
    let uuid: String =
        site.machine
            .read(DISK - 8192 + 16, 16)
            .chunks(4)
            .fold(String::new(), |text, word| {
                format!(
                    "{text}:{:08x}",
                    u32::from_be_bytes(word.try_into().unwrap())
                )
            });
    let uuid = uuid.trim_start_matches(':');
    let config = site.machine.file("boot/grub/grub.cfg");
    assert_eq!(
        config,
        format!(
            "linux /vmlinuz root=LABEL=root root=/dev/disk/by-id/md-uuid-{uuid}-part1 rd.md.uuid={uuid} iommu=pt\n"
        )
    );
    // Given back, both are erased, and what md knows them by is gone.
    let mut back = site.mirrored();
    back[EXTRA]["policy"] = json!("giveBack");
    let done = site.clean(&back);
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    for disk in DISKS {
        assert_eq!(site.gpt_of(disk), None, "{disk}");
        assert_eq!(site.machine.read_of(disk, DISK - 8192, 4), [0; 4], "{disk}");
    }
}

#[test]
fn an_image_whose_system_cannot_start_from_a_mirror_makes_neither_disk_bootable() {
    let site = Site::on(with_two_disks(&SYSTEM[..2]), None);
    site.ready();
    let image = image();
    site.the_box.image.lock().unwrap().clone_from(&image);
    let step = site.step_ordered(&site.mirrored(), &image, "node.raw", None);
    let refused = site.refused(&step);
    assert!(refused.contains("the image has no mdadm"), "{refused}");
    for disk in DISKS {
        assert_eq!(site.gpt_of(disk), None, "{disk}");
        assert_eq!(site.machine.read_of(disk, DISK - 8192, 4), [0; 4], "{disk}");
    }
    // Both are known for what they are, so that the same deployment tries again, and no other.
    let again = site.refused(&step);
    assert!(again.contains("the image has no mdadm"), "{again}");
    let mut other = site.mirrored();
    other[EXTRA]["deployment"] = json!(ANOTHER);
    let refused = site.refused(&site.step_ordered(&other, &image, "node.raw", None));
    assert!(refused.contains("is not blank"), "{refused}");
}

#[test]
fn a_half_that_got_data_since_it_was_judged_keeps_both_from_being_written() {
    let site = Site::on(with_two_disks(&SYSTEM), None);
    site.ready();
    let image = image();
    let step = site.step_ordered(&site.mirrored(), &image, "node.raw", None);
    site.machine.overwrite("vdb", 1024 + 56, b"\x53\xef");
    let before = DISKS.map(|disk| site.machine.digest(disk));
    let refused = site.refused(&step);
    assert!(refused.contains("/dev/vdb is not blank"), "{refused}");
    assert_eq!(DISKS.map(|disk| site.machine.digest(disk)), before);
}

#[test]
fn two_disks_with_the_node_image_are_never_taken_for_each_other() {
    let mut image = image();
    let mut gpt = Gpt::parse(&image[..1 << 20], 512).unwrap().unwrap();
    let mut numbers = NODE_DISK..;
    gpt.renew_ids(&mut || Uuid::from_u128(numbers.next().unwrap()));
    gpt.write_head(&mut image[..1 << 20]);
    let ids_of = |head: &[u8]| {
        let gpt = Gpt::parse(head, 512).unwrap().unwrap();
        let partitions = gpt.partitions().into_iter().map(|partition| partition.id);
        partitions.chain([gpt.disk_id()]).collect::<Vec<_>>()
    };
    let mut ids = ids_of(&image);
    for _ in 0..2 {
        let site = Site::start(None);
        site.ready();
        *site.the_box.image.lock().unwrap() = image.clone();
        let drive = b"drive";
        let step = site.step(&image, "node.raw", Some(&packed_drive(drive)));
        let done = site.write_image(&step);
        assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
        site.assert_installed(&image, drive);
        ids.extend(ids_of(&site.machine.read(0, 1 << 20)));
    }
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), different.len()), (8, 8), "{ids:?}");
}

#[test]
fn a_corrupt_image_fails_and_the_same_ramdisk_installs_the_right_one() {
    let site = Site::start(None);
    site.want();
    site.wait_for_heartbeat();
    let image = image();
    let step = site.step(&image, "node.raw", None);
    let mut corrupt = image.clone();
    corrupt[5 << 20] ^= 1;
    *site.the_box.image.lock().unwrap() = corrupt;
    let failed = site.write_image(&step);
    assert_eq!(failed["command_status"], "FAILED");
    let details = failed["command_error"]["details"].as_str().unwrap();
    assert!(
        details.contains("sha256") && details.contains(&sha256_hex(&image)),
        "{details}"
    );
    let head = site.machine.read(0, 1 << 20);
    let mark = head.iter().position(|byte| *byte != 0);
    assert_eq!(
        mark,
        Some(512 << 10),
        "no partition table, so nothing can boot, and a mark that says whose image it was"
    );

    let logs = site.command("log.collect_system_logs");
    let packed = logs["command_result"]["system_logs"].as_str().unwrap();
    let packed = base64::engine::general_purpose::STANDARD
        .decode(packed)
        .unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
    let mut text = String::new();
    archive
        .entries()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "the machine's log\n");

    // What Ironic does after a failure.
    site.ironic.wipe_token();
    site.wait_for_heartbeat();
    assert_eq!(
        site.ironic.commands(),
        Vec::<Value>::new(),
        "a new registration begins with no commands"
    );
    *site.the_box.image.lock().unwrap() = image.clone();
    // The box names the ramdisk's public key; the system on the disk gets the private one.
    let public = site.the_box.key.lock().unwrap().unwrap();
    let drive = format!("drive {public} end").into_bytes();
    let done = site.write_image(&site.step(&image, "node.raw", Some(&packed_drive(&drive))));
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(site.lock_down(), Departure::BootDisk);
    let written = site.drive_on_disk(drive.len());
    let private = std::str::from_utf8(&written[6..50]).unwrap();
    assert_eq!(Key::parse(private).unwrap().public(), public);
    site.assert_installed(&image, format!("drive {private} end").as_bytes());

    // With the key on the disk the next start shows that it is on the same machine.
    let again = Site::on(site.machine.after_a_power_cut(MAC), None);
    again.wait("a report", |again| {
        !again.the_box.reports.lock().unwrap().is_empty()
    });
    let report = again.the_box.reports.lock().unwrap()[0].clone();
    let next = again.the_box.key.lock().unwrap().unwrap();
    let [follows] = report.follows[..] else {
        panic!("{:?}", report.follows);
    };
    assert_eq!(follows.before, public);
    ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, public.as_bytes())
        .verify(&signed::succession(MAC, &next), &follows.signature)
        .unwrap();
}

#[test]
fn a_ramdisk_whose_token_went_to_an_earlier_boot_says_so_until_it_gets_one() {
    let site = Site::start(None);
    {
        let mut node = site.ironic.node.lock().unwrap();
        (node.handed_out, node.token, node.wanted) =
            (true, Some("of the boot before".into()), true);
    }
    site.wait("the loss to be reported", |site| {
        site.the_box
            .reports
            .lock()
            .unwrap()
            .iter()
            .any(|r| r.lookup == LookupState::TokenLost)
    });
    site.ironic.wipe_token();
    site.wait_for_heartbeat();
    site.wait("a report of the registration", |site| {
        site.the_box.reports.lock().unwrap().last().unwrap().lookup == LookupState::Registered
    });
}

#[test]
fn cleaning_leaves_a_blank_disk_and_restarts_into_the_network() {
    let site = Site::start(None);
    site.machine.overwrite("vda", 0, &image());
    site.ready();
    let steps = site.command("clean.get_clean_steps");
    assert!(
        steps["command_result"]["clean_steps"]
            .to_string()
            .contains("erase_devices_metadata")
    );
    let done = site.clean(&site.order(DEPLOYMENT, DiskPolicy::Wipe));
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(
        done["command_result"]["clean_step"]["step"],
        "erase_devices_metadata"
    );
    site.wait("a report of the blank disk", |site| {
        site.the_box.reports.lock().unwrap().last().unwrap().disks[0]
            .signatures
            .is_empty()
    });
    assert_eq!(site.lock_down(), Departure::Reboot);
}

/// Whatever the box was told, by whom and when: the ramdisk looks again.
#[test]
fn a_forged_or_stale_report_costs_no_byte_of_a_disk_with_data() {
    let site = Site::start(None);
    site.ready();
    // The report said blank, and the box believed it.
    assert!(
        site.the_box.reports.lock().unwrap()[0].disks[0]
            .signatures
            .is_empty()
    );
    let image = image();
    *site.the_box.image.lock().unwrap() = image.clone();
    site.machine.overwrite("vda", 0, &image);
    let before = site.machine.digest("vda");
    let said = site.refused(&site.step(&image, "node.raw", None));
    assert!(said.contains("/dev/vda is not blank (gpt found)"), "{said}");
    let nothing_said = site.step_ordered(&json!({}), &image, "node.raw", None);
    assert!(site.refused(&nothing_said).contains("nothing was written"));
    assert_eq!(site.machine.digest("vda"), before);
    // The next report does not wait for a minute to pass.
    site.wait("a report of what is there", |site| {
        site.the_box.reports.lock().unwrap().last().unwrap().disks[0].signatures == ["gpt"]
    });
}

#[test]
fn a_disk_that_was_swapped_or_added_after_the_judgement_is_not_written_even_where_wiping_is_allowed()
 {
    for (change, said) in [
        (
            (|machine| machine.swap_serial("file-2")) as fn(&TestMachine),
            "with the serial number file-2 was not in the server",
        ),
        (
            |machine| machine.add_disk("vdb"),
            "with the serial number file-vdb was not in the server",
        ),
    ] {
        let site = Site::start(None);
        site.ready();
        let image = image();
        *site.the_box.image.lock().unwrap() = image.clone();
        let order = site.order(DEPLOYMENT, DiskPolicy::Wipe);
        change(&site.machine);
        let before = site.machine.digest("vda");
        let refused = site.refused(&site.step_ordered(&order, &image, "node.raw", None));
        assert!(refused.contains(said), "{refused}");
        assert_eq!(site.machine.digest("vda"), before);
    }
}

#[test]
fn a_person_who_says_wipe_gets_the_judged_disks_written() {
    let machine = TestMachine::new(MAC);
    machine.overwrite("vda", 0, b"XFSB");
    let site = Site::on(machine, None);
    site.ready();
    let (image, drive) = (image(), b"drive");
    *site.the_box.image.lock().unwrap() = image.clone();
    let order = site.order(DEPLOYMENT, DiskPolicy::Wipe);
    let done = site.write_image(&site.step_ordered(
        &order,
        &image,
        "node.raw",
        Some(&packed_drive(drive)),
    ));
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    site.assert_installed(&image, drive);
}

#[test]
fn after_a_power_cut_in_the_middle_the_same_deployment_goes_on_and_no_other() {
    let first = Site::start(None);
    first.ready();
    let (image, drive) = (image(), b"drive");
    *first.the_box.image.lock().unwrap() = image.clone();
    // Some of it comes, and then nothing for a long time.
    let mut cuts = vec![9_000_000];
    cuts.extend(std::iter::repeat_n(0, 10_000));
    *first.the_box.cuts.lock().unwrap() = cuts.into();
    let step = first.step(&image, "node.raw", None);
    first
        .ironic
        .command("deploy.execute_deploy_step", &step, false);
    first.wait("the stop", |site| {
        let phases = site.the_box.phases.lock().unwrap();
        phases
            .iter()
            .any(|phase| matches!(phase, Phase::Retrying { .. }))
    });
    first.wait("bytes on the disk", |site| {
        site.machine
            .read(4 * MIB, 4096)
            .iter()
            .any(|byte| *byte != 0)
    });
    let second = Site::on(first.machine.after_a_power_cut(MAC), None);
    second.ready();
    let reported = second.the_box.reports.lock().unwrap()[0].disks[0].clone();
    let deployment = DEPLOYMENT;
    assert_eq!(reported.mark, Some(Mark::Unfinished { deployment }));

    *second.the_box.image.lock().unwrap() = image.clone();
    let foreign = second.order(ANOTHER, DiskPolicy::Blank);
    let refused = second.refused(&second.step_ordered(&foreign, &image, "node.raw", None));
    assert!(refused.contains("firstlight-unfinished found"), "{refused}");
    let done = second.write_image(&second.step(&image, "node.raw", Some(&packed_drive(drive))));
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    second.assert_installed(&image, drive);
}

#[test]
fn a_system_that_somebody_installed_by_hand_after_a_failed_deployment_stays() {
    let site = Site::start(None);
    site.ready();
    let image = image();
    let step = site.step(&image, "node.raw", None);
    *site.the_box.image.lock().unwrap() = vec![1; 9 << 20];
    assert!(site.refused(&step).contains("digest"));
    // A table and a file system, as an installer makes them; the rest of our half-written image is still there.
    site.machine.overwrite("vda", 0, &image[..40 * 512]);
    site.machine.overwrite("vda", MIB, b"XFSB");
    let before = site.machine.digest("vda");
    *site.the_box.image.lock().unwrap() = image;
    let said = site.refused(&step);
    assert!(said.contains("gpt found"), "{said}");
    let said = site.clean(&site.order(DEPLOYMENT, DiskPolicy::GiveBack));
    assert!(
        said.to_string().contains("this box did not install"),
        "{said}"
    );
    assert_eq!(site.machine.digest("vda"), before);
}

#[test]
fn a_server_that_is_given_back_loses_what_was_installed_and_nothing_else() {
    let machine = TestMachine::new(MAC);
    machine.add_disk("vdb");
    let site = Site::on(machine, None);
    site.ready();
    let (image, drive) = (image(), b"drive");
    *site.the_box.image.lock().unwrap() = image.clone();
    let done = site.write_image(&site.step(&image, "node.raw", Some(&packed_drive(drive))));
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    site.machine.overwrite("vdb", 512, b"LABELONE");
    let second = site.machine.digest("vdb");

    let nothing_said = site.clean(&json!({}));
    assert_eq!(nothing_said["command_status"], "FAILED", "{nothing_said}");
    site.assert_installed(&image, drive);
    let mut order = site.order(DEPLOYMENT, DiskPolicy::GiveBack);
    order[EXTRA]["disks"].as_array_mut().unwrap().truncate(1);
    let done = site.clean(&order);
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(
        done["command_result"]["clean_result"]["erased"],
        json!(["/dev/vda"])
    );
    assert!(site.machine.read(0, 1 << 20).iter().all(|byte| *byte == 0));
    assert_eq!(
        site.machine.digest("vdb"),
        second,
        "nobody has ordered that"
    );
}

#[test]
fn a_disk_that_was_named_is_written_and_erased_beside_one_that_holds_data() {
    let machine = TestMachine::new(MAC);
    machine.add_disk("vdb");
    let site = Site::on(machine, None);
    site.ready();
    let image = image();
    *site.the_box.image.lock().unwrap() = image.clone();
    site.machine.overwrite("vda", 512, b"LABELONE");
    let (data, blank) = (site.machine.digest("vda"), site.machine.digest("vdb"));
    let order = |policy| {
        let mut order = site.order(DEPLOYMENT, policy);
        order[EXTRA]["root"] = json!({"disk": order[EXTRA]["disks"][1], "name": "/dev/sdz"});
        order
    };
    let step = |extra: &Value| site.step_ordered(extra, &image, "node.raw", None);
    // Where all disks were promised to be blank, one that is not stops the other.
    let said = site.refused(&step(&order(DiskPolicy::Blank)));
    assert!(said.contains("/dev/vda is not blank"), "{said}");
    let mut named = order(DiskPolicy::Blank);
    named[EXTRA]["scope"] = json!("root");
    let mut other = step(&named);
    other["node"]["instance_info"]["root_device"] = json!({"name": "s== /dev/vda"});
    let said = site.refused(&other);
    assert!(said.contains("mean another disk"), "{said}");
    assert_eq!(site.machine.digest("vdb"), blank);

    let mut agreed = step(&named);
    agreed["node"]["instance_info"]["root_device"] = json!({"serial": "s== file-vdb"});
    let done = site.write_image(&agreed);
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(
        done["command_result"]["deploy_result"]["result"],
        "image written to /dev/vdb"
    );
    assert_ne!(site.machine.digest("vdb"), blank);
    assert_eq!(site.machine.digest("vda"), data);

    let mut wipe = order(DiskPolicy::Wipe);
    wipe[EXTRA]["scope"] = json!("root");
    let done = site.clean(&wipe);
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(
        done["command_result"]["clean_result"]["erased"],
        json!(["/dev/vdb"])
    );
    assert_eq!(site.machine.digest("vda"), data);
}

#[test]
fn a_foreign_ca_is_never_spoken_to() {
    let pki = Pki::new();
    let the_box = Arc::new(Box {
        ca_pem: Pki::new().ca_pem,
        ..Box::default()
    });
    // The box's word is all that is left, and it ends the test.
    *the_box.decide.lock().unwrap() = Some(std::boxed::Box::new(counting()));
    let ironic = Arc::new(Ironic::default());
    ironic.node.lock().unwrap().wanted = true;
    let (box_port, ironic_port) = (the_box.start(), ironic.start(pki.server));
    let ended = support::start(
        support::settings(box_port, ironic_port, pki.ca_sha256),
        Arc::new(TestMachine::new(MAC)),
    );
    let departure = ended.recv_timeout(Duration::from_mins(1)).unwrap().unwrap();
    assert_eq!(departure, Departure::BootDisk);
    assert_eq!(ironic.node.lock().unwrap().requests, 0);
}

#[test]
fn a_box_that_restarted_is_told_again_at_once_and_nothing_is_told_twice() {
    let site = Site::start(None);
    let reports = |site: &Site| site.the_box.reports.lock().unwrap().len();
    site.wait("a report", |site| reports(site) > 0);
    let key = *site.the_box.key.lock().unwrap();
    *site.the_box.session.lock().unwrap() = "ab12".to_owned();
    let before = reports(&site);
    site.wait("a report in the new session", |site| reports(site) > before);
    let last = site
        .the_box
        .reports
        .lock()
        .unwrap()
        .last()
        .cloned()
        .unwrap();
    assert_eq!(last.fresh.session, "ab12");
    assert_eq!(*site.the_box.key.lock().unwrap(), key, "one key a boot");
    let sequences = site.the_box.sequences.lock().unwrap();
    assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");
}

/// Lookup twice, then the disk.
fn counting() -> impl Fn(&firstlight_api::report::Report<Value>) -> Directive + Send {
    let count = std::sync::atomic::AtomicU32::new(0);
    move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 | 1 => lookup(),
        _ => Directive::BootDisk,
    }
}
