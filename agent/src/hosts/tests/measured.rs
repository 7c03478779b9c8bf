//! How a host was started: the ramdisk's own reports, with real (emulated) TPMs that were told what firmware would have told them, over HTTP
//! to the box's own server.

use firstlight_api::{measured::PCRS, status::MeasuredBootStatus};
use firstlight_measured::program_digest;
use firstlight_netboot::{
    BootSite, BoxHttp, CaFingerprint,
    boot_files::{GRUB, INITRD, KERNEL, SHIM, UEFI_LOADER},
    generic_grub_config, host_grub_config, kernel_command_line,
};
use sha2::{Digest as _, Sha256};

use super::{
    running::{IMPATIENT, Running},
    tpm::{
        Board, Boot, Front, approve, board,
        swtpm::{Swtpm, connect},
    },
    *,
};
use crate::paths::Paths;

const PROGRAM: u32 = 0x8000_0003;
const IPL: u32 = 13;
const TAG: u32 = 6;

pub fn boot_site() -> BootSite {
    BootSite {
        http: BoxHttp::new([172, 22, 0, 1].into(), 80),
        ironic_port: 6385,
        ca: CaFingerprint::new([7; 32]),
        extra_args: Vec::new(),
    }
}

/// A program for 64-bit UEFI as far as its digest goes.
fn program(name: &str) -> Vec<u8> {
    let mut program = vec![0; 512];
    program[0x3c] = 64;
    program[64..68].copy_from_slice(b"PE\0\0");
    program[88..90].copy_from_slice(&[0x0b, 2]);
    program.extend(name.as_bytes());
    program
}

/// The box's boot files.
fn lay(site: &Running) {
    let folder = Paths::new(site.state.path()).netboot();
    std::fs::create_dir_all(&folder).unwrap();
    for name in [SHIM, GRUB, UEFI_LOADER, KERNEL] {
        std::fs::write(folder.join(name), program(name)).unwrap();
    }
    std::fs::write(folder.join(INITRD), "the ramdisk").unwrap();
}

/// What firmware, GRUB and kernel tell a TPM, and the log of it.
#[derive(Default)]
struct Start(Vec<(u8, u32, [u8; 32], Vec<u8>)>);

impl Start {
    fn measure(&mut self, pcr: u8, kind: u32, digest: [u8; 32], text: &str) {
        let text = [text.as_bytes(), b"\0"].concat();
        self.0.push((pcr, kind, digest, text));
    }

    fn program(&mut self, name: &str) {
        let digest = program_digest(&program(name)).unwrap();
        self.measure(4, PROGRAM, digest, "");
    }

    fn command(&mut self, what: &str, command: &str) {
        let digest = Sha256::digest(command).into();
        self.measure(8, IPL, digest, &format!("{what}: {command}"));
    }

    fn file(&mut self, name: &str, content: impl AsRef<[u8]>) {
        self.measure(9, IPL, Sha256::digest(content).into(), name);
    }

    /// By GRUB under Secure Boot, as in `agent/measured/fixtures`, with this initramfs.
    fn with(initrd: &str) -> Self {
        let site = boot_site();
        let mut start = Self::default();
        start.program(SHIM);
        start.program(GRUB);
        start.command("grub_cmd", "source (tftp,172.22.0.1)/grub/grub.cfg");
        start.file("/grub/grub.cfg", generic_grub_config(site.http));
        let script = host_grub_config(&site, mac(), &BootTarget::Ramdisk);
        start.file("/grub/mac.cfg", script);
        let line = format!("/boot/kernel {}", kernel_command_line(&site, mac()));
        start.command("grub_cmd", &format!("linux {line}"));
        start.file("/boot/kernel", program(KERNEL));
        start.program(KERNEL);
        start.command("kernel_cmdline", &line);
        start.file("/boot/initrd", initrd);
        let options: Vec<u8> = format!("BOOT_IMAGE={line}")
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        start.measure(9, TAG, Sha256::digest(options).into(), "");
        start.measure(9, TAG, Sha256::digest(initrd).into(), "");
        start
    }

    /// The firmware's log, in the TCG's format.
    fn log(&self) -> Vec<u8> {
        let spec = [
            b"Spec ID Event03\0".as_slice(),
            &[0, 0, 0, 0, 0, 2, 0, 2],
            &1u32.to_le_bytes(),
            &[0x0b, 0, 32, 0],
            &[0],
        ]
        .concat();
        let length = u32::try_from(spec.len()).unwrap();
        let mut log = [&[0; 28], &length.to_le_bytes()[..], &spec].concat();
        for (pcr, kind, digest, text) in &self.0 {
            log.extend(u32::from(*pcr).to_le_bytes());
            log.extend(kind.to_le_bytes());
            log.extend([1, 0, 0, 0, 0x0b, 0]);
            log.extend(digest);
            log.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            log.extend(text);
        }
        log
    }

    /// A machine with this TPM that was started so.
    fn on(&self, tpm: &Swtpm) -> Board {
        tpm.power_cycle();
        for (pcr, _, digest, _) in &self.0 {
            extend(tpm, *pcr, *digest);
        }
        Board::Started(tpm.way(), Arc::new(self.log()))
    }
}

fn extend(tpm: &Swtpm, pcr: u8, digest: [u8; 32]) {
    let mut way = connect(&tpm.way()).unwrap();
    firstlight_ramdisk::tpm::extend(&mut way, pcr, digest).unwrap();
}

fn measured(host: &HostStatus) -> MeasuredBootStatus {
    host.hardware.as_ref().unwrap().measured_boot.clone()
}

const MEASURED: MeasuredBootStatus = MeasuredBootStatus::Measured { secure_boot: false };

impl Boot {
    async fn is_misled(&self, site: &mut Running, lack: &str) {
        let refusal = self.refusal().await;
        assert!(
            refusal.contains("how this machine was started"),
            "{refusal}"
        );
        let code = self.key.code();
        let told = site
            .wait_for("why on the page", |host| host.other_code == code)
            .await;
        let problem = told.problem.unwrap();
        assert!(problem.what.contains(lack), "{}", problem.what);
    }
}

#[tokio::test]
async fn a_start_by_the_box_is_shown_and_from_then_on_nothing_less_is_believed() {
    let mut site = Running::start(IMPATIENT).await;
    lay(&site);
    site.kubernetes_comes_up();
    let front = Front::of(&site).await;
    let tpm = Swtpm::new();
    let good = Start::with("the ramdisk");
    let first = Boot::on(&good.on(&tpm), &front);
    assert_eq!(measured(&first.is_believed(&mut site).await), MEASURED);
    // What was shown need not be shown with each report.
    assert_eq!(measured(&first.is_believed(&mut site).await), MEASURED);

    // Somebody has put another ramdisk into its way, which hides nothing, or what it can.
    let evil = Start::with("another ramdisk");
    Boot::on(&evil.on(&tpm), &front)
        .is_misled(&mut site, "does not serve")
        .await;
    let Board::Started(way, _) = evil.on(&tpm) else {
        unreachable!()
    };
    let hides = Board::Started(way, Arc::new(good.log()));
    Boot::on(&hides, &front)
        .is_misled(&mut site, "not what its TPM was told")
        .await;
    Boot::on(&board(&tpm), &front)
        .is_misled(&mut site, "keeps no log")
        .await;
    // The system that was installed, by kexec, starts the ramdisk itself.
    let after = good.on(&tpm);
    extend(&tpm, PCRS[3], [0xff; 32]);
    Boot::on(&after, &front)
        .is_misled(&mut site, "not its firmware that started it")
        .await;

    let again = Boot::on(&good.on(&tpm), &front);
    assert_eq!(measured(&again.is_believed(&mut site).await), MEASURED);
    // The agent restarts and knows it from its disk.
    site.restart_controller();
    let front = Front::of(&site).await;
    Boot::on(&board(&tpm), &front)
        .is_misled(&mut site, "keeps no log")
        .await;
}

#[tokio::test]
async fn another_ramdisk_is_refused_the_first_time_and_a_person_cannot_approve_it() {
    let mut site = Running::start(IMPATIENT).await;
    lay(&site);
    site.kubernetes_comes_up();
    let front = Front::of(&site).await;
    let tpm = Swtpm::new();
    let evil = Start::with("another ramdisk");
    let first = Boot::on(&evil.on(&tpm), &front);
    first.is_misled(&mut site, "does not serve").await;
    let good = Boot::on(&Start::with("the ramdisk").on(&tpm), &front);
    assert_eq!(measured(&good.is_believed(&mut site).await), MEASURED);
    site.wait_for_object(|object| object.spec.boot_mac_address == MAC)
        .await;
    let second = Boot::on(&evil.on(&tpm), &front);
    second.is_misled(&mut site, "does not serve").await;
    approve(&site, &second.key.code());
    // It clears what the page says of the code, also if that was said meanwhile.
    site.wait_for("the approval", |host| host.other_code.is_empty())
        .await;
    second.is_misled(&mut site, "does not serve").await;
}

#[tokio::test]
async fn a_firmware_that_starts_something_new_first_needs_a_persons_word() {
    let mut site = Running::start(IMPATIENT).await;
    lay(&site);
    site.kubernetes_comes_up();
    let front = Front::of(&site).await;
    let tpm = Swtpm::new();
    let first = Boot::on(&Start::with("the ramdisk").on(&tpm), &front);
    first.is_believed(&mut site).await;
    site.wait_for_object(|object| object.spec.boot_mac_address == MAC)
        .await;
    let mut updated = Start::default();
    updated.program("a tool of its vendor");
    updated.0.extend(Start::with("the ramdisk").0);
    let board = updated.on(&tpm);
    let boot = Boot::on(&board, &front);
    boot.is_misled(&mut site, "started another program first")
        .await;
    approve(&site, &boot.key.code());
    site.wait_for("the approval", |host| host.other_code.is_empty())
        .await;
    assert_eq!(measured(&boot.is_believed(&mut site).await), MEASURED);
    let again = Boot::on(&updated.on(&tpm), &front);
    assert_eq!(measured(&again.is_believed(&mut site).await), MEASURED);
}
