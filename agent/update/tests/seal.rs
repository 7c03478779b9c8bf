//! Which registers a start to come leaves, out of logs of real ones (OVMF, Secure Boot, QEMU's TPM), and headers that anybody may have
//! written. Sealing itself is seen in virtual machines: the story `sealed`.
#![allow(clippy::unwrap_used)]

use firstlight_api::boot_choice::{SystemSlot, boot_config};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::tpm::Digest;
use firstlight_measured::Log;
use firstlight_update::seal::expect::{Files, Registers, Start, expect, registers};
use sha2::{Digest as _, Sha256};

/// From the image's first system, as it starts always.
const USUAL: &[u8] = include_bytes!("../../measured/fixtures/box-secure-boot.log");
const CONFIG: &str = "# How GRUB starts this system. Whoever writes it beside another one fills in which it is, and on which partition.
linux /boot/@SLOT@/vmlinuz firstlight.slot=PARTUUID=@SYSTEM@ $word console=tty0 console=ttyS0,115200 quiet panic=30 systemd.gpt_auto=0
initrd /boot/@SLOT@/initrd
boot
";
/// Not in the command line of these logs.
const TABLE: [u8; 32] = [0; 32];
const PARTITION: &str = "2bb43f84-a026-84b5-afa4-fd36a5b6c159";

fn digest(hex: &str) -> Digest {
    Digest::new(Sha256Digest::parse(hex).unwrap().bytes())
}

fn of(bytes: &[u8]) -> Digest {
    Digest::new(Sha256::digest(bytes).into())
}

/// What the log is of: the last program that the firmware tells of, and the last files that GRUB does.
fn files(log: &Log) -> Files {
    let last = |pcr: u8, back: usize| {
        let told: Vec<_> = log.steps().filter(|event| event.pcr == pcr).collect();
        told[told.len() - 1 - back].digest
    };
    Files {
        slot: SystemSlot::A,
        kernel: last(9, 3),
        program: last(4, 0),
        initrd: last(9, 0),
        config: boot_config(CONFIG, SystemSlot::A, PARTITION, TABLE.into()),
    }
}

fn usual(files: &Files) -> Start<'_> {
    Start {
        files,
        trial_from: None,
    }
}

#[test]
fn the_log_of_a_start_is_what_the_tpm_held() {
    let log = Log::parse(USUAL).unwrap();
    let held = [
        (
            4,
            "702635815a125a4be5e8cc0f0cb9505dd8aa4a2389319b8eb42b271d12f2b574",
        ),
        (
            7,
            "75677db6f14082d3bfec4d14bdd75c8d72612ef6914ca99cd5a5997b7a21309d",
        ),
        (
            9,
            "3c59088398bd7318473f76d814a49488c996689550c50941a17459f96549f782",
        ),
    ];
    let held: Registers = held
        .into_iter()
        .map(|(pcr, hex)| (pcr, Sha256Digest::parse(hex).unwrap()))
        .collect();
    assert_eq!(registers(&log), held);
    let files = files(&log);
    assert_eq!(
        files.initrd,
        digest("e4341f7e800042ed422656dbedb063abc85ef32ef10c80b3485612375275b67e")
    );
    assert_eq!(expect(&log, usual(&files), usual(&files)).unwrap(), held);
}

#[test]
fn each_file_of_the_other_system_counts() {
    let log = Log::parse(USUAL).unwrap();
    let this = files(&log);
    let expected = |next: &Files, trial_from| {
        let next = Start {
            files: next,
            trial_from,
        };
        expect(&log, usual(&this), next).unwrap()
    };
    let mut seen = vec![registers(&log)];
    let mut differs = |next: &Files, trial_from, pcrs: &[u8]| {
        let expected = expected(next, trial_from);
        for (pcr, value) in &expected {
            let same = seen[0][pcr] == *value;
            assert_eq!(same, !pcrs.contains(pcr), "{pcr}");
        }
        assert!(!seen.contains(&expected));
        seen.push(expected);
    };
    let change = |change: fn(&mut Files)| {
        let mut files = this.clone();
        change(&mut files);
        files
    };
    differs(&change(|it| it.kernel = of(b"k")), None, &[9]);
    differs(&change(|it| it.program = of(b"k")), None, &[4]);
    differs(&change(|it| it.initrd = of(b"i")), None, &[9]);
    differs(
        &change(|it| it.config = it.config.replace("quiet", "init=/bin/sh")),
        None,
        &[9],
    );
    let other = change(|it| {
        it.slot = SystemSlot::B;
        it.config = boot_config(CONFIG, SystemSlot::B, PARTITION, TABLE.into());
    });
    differs(&other, None, &[9]);
    differs(&other, Some(SystemSlot::A), &[9]);
}

#[test]
fn what_was_not_started_from_this_stick_is_told() {
    let log = Log::parse(USUAL).unwrap();
    let this = files(&log);
    let refused = |files: &Files| {
        let refused = expect(&log, usual(files), usual(&this)).unwrap_err();
        refused.to_string()
    };
    let mut other = this.clone();
    other.program = of(b"another kernel");
    assert!(refused(&other).contains("not boot/a/vmlinuz"));
    let mut other = this.clone();
    other.initrd = of(b"another initramfs");
    assert!(refused(&other).contains("measured of initrd"));
    let mut other = this.clone();
    other.config = other.config.replace("panic=30", "panic=31");
    assert!(refused(&other).contains("measured of boot.cfg"));
    let mut other = this.clone();
    other.slot = SystemSlot::B;
    assert!(refused(&other).contains("measured of boot/grubenv"));
    let nothing = Log::default();
    assert!(expect(&nothing, usual(&this), usual(&this)).is_err());
}
