use firstlight_api::{
    measured::{Attest, Event, MOST_STEPS, PCRS, qualifying},
    tpm::{Bytes, Point},
};
use firstlight_netboot::{
    BootSite, BootTarget, BoxHttp, CaFingerprint, GRUB_WAITS, MacAddr, generic_grub_config,
    host_grub_config, kernel_command_line, medium_config,
};
use proptest::prelude::*;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use sha2::{Digest as _, Sha256};
use tpm2_protocol::{
    TpmMarshal as _, TpmWriter,
    constant::TPM_MAX_COMMAND_SIZE,
    data::{
        Tpm2bData, Tpm2bDigest, Tpm2bName, TpmAlgId, TpmSt, TpmlPcrSelection, TpmsAttest,
        TpmsClockInfo, TpmsPcrSelect, TpmsPcrSelection, TpmsQuoteInfo, TpmuAttest,
    },
};

use super::*;

const BY_GRUB: &[u8] = include_bytes!("../fixtures/secure-boot-grub.log");
const BY_UEFI_HTTP: &[u8] = include_bytes!("../fixtures/uefi-http.log");
const BY_CD: &[u8] = include_bytes!("../fixtures/virtual-cd.log");
const BY_IPXE: &[u8] = include_bytes!("../fixtures/ipxe.log");
const ALTERED_INITRD: &[u8] = include_bytes!("../fixtures/altered-initrd.log");
const ALTERED_SCRIPT: &[u8] = include_bytes!("../fixtures/altered-script.log");

// What the machines of the fixtures were served: Debian's files, as firmware measures them and as they are.
const SHIM: [&str; 2] = [
    "f4166948f7adafa71e45c7ca5d30d97f78f382ecf1e3c8e4767b1ec1770cd52f",
    "e103c5d02657879f141b086ed703584d28bb9e2721b423333be085ee1b4d397b",
];
const GRUB: [&str; 2] = [
    "e2fb9e92c430ea5ebcc4fa4cd023d2bac585c561d4f960e1ff6e9f3b56d0c00a",
    "cb5fe145c2c3ac6dd090b191ff2cbba70b9a344eb5e9cf817636aa947f0f723d",
];
const IPXE: [&str; 2] = [
    "0ebcad6add7eecc12eaddd32524e15f2b55e866062a01050306d371b08d54d58",
    "9a624b4e05ebc25718a7658356628a352532bd278e7a50465a36ab94a7c4e580",
];
const KERNEL: [&str; 2] = [
    "798246871df714e0bfd8c7cae1ac5a69498011a0e3712429c45963d24bf57bc0",
    "f080f76ab2012d27d408635dab803f4cda43f706639c8f98515702762df60b2d",
];
const INITRD: &str = "e522774be49addc4eb8d4b2dbf5383f18e14010c743884def8a7d9b2553bb091";

fn digest(hex: &str) -> Digest {
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
    Digest::new(std::array::from_fn(byte))
}

fn served_files() -> Files {
    let loaders = [SHIM, GRUB, IPXE];
    let contents = loaders.iter().chain([&KERNEL]).map(|[_, file]| *file);
    Files {
        programs: loaders.iter().map(|[program, _]| digest(program)).collect(),
        kernel: Some(digest(KERNEL[0])),
        contents: contents.chain([INITRD]).map(digest).collect(),
        initrd: Some(digest(INITRD)),
    }
}

fn mac() -> MacAddr {
    "52:54:00:00:00:01".parse().unwrap()
}

fn site() -> BootSite {
    BootSite {
        http: BoxHttp::new([172, 22, 0, 1].into(), 80),
        ironic_port: 6385,
        ca: CaFingerprint::new([7; 32]),
        extra_args: Vec::new(),
    }
}

/// By a box that serves these files.
fn judged_with(files: &Files, evidence: &Evidence, about: &Digest) -> Booted {
    let script = |target| host_grub_config(&site(), mac(), &target).into_bytes();
    let waiting = |reason: &str| {
        script(BootTarget::Wait {
            reason: reason.to_owned(),
        })
    };
    let served = Served {
        files,
        command_line: &kernel_command_line(&site(), mac()),
        scripts: vec![
            generic_grub_config(site().http).into_bytes(),
            script(BootTarget::Ramdisk),
            medium_config(&site(), mac()).unwrap(),
        ],
        waits: GRUB_WAITS,
        waiting: &waiting,
    };
    judge(evidence, about, &served)
}

fn judged(evidence: &Evidence) -> Booted {
    judged_with(&served_files(), evidence, &about())
}

fn about() -> Digest {
    qualifying(b"this start")
}

/// Signs whatever it is told.
struct Tpm(EcdsaKeyPair);

impl Tpm {
    fn new() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            made.unwrap().as_ref(),
            &random,
        );
        Self(key.unwrap())
    }

    fn signs(&self, attest: &[u8], log: Log) -> Evidence {
        let signature = self.0.sign(&SystemRandom::new(), attest).unwrap();
        Evidence {
            key: Point::new(self.0.public_key().as_ref().try_into().unwrap()),
            attest: Attest::new(attest).unwrap(),
            signature: Bytes::new(signature.as_ref().try_into().unwrap()),
            events: log.events,
            steps: log.steps,
        }
    }

    /// As a TPM that was told what is in the log.
    fn quotes(&self, log: Log) -> Evidence {
        self.signs(&quote(sum_of(&log), &about(), &PCRS), log)
    }
}

/// Of the registers, without the help of what is tested.
fn sum_of(log: &Log) -> [u8; 32] {
    let mut registers = [[0; 32]; 24];
    for step in &log.steps {
        let Event { pcr, digest, .. } = &log.events[usize::from(*step)];
        let register = &mut registers[usize::from(*pcr)];
        *register = Sha256::digest([&register[..], digest.as_bytes()].concat()).into();
    }
    let chosen = PCRS.map(|pcr| registers[usize::from(pcr)]);
    Sha256::digest(chosen.concat()).into()
}

fn quote(sum: [u8; 32], about: &Digest, pcrs: &[u8]) -> Vec<u8> {
    let mut bits = [0; 3];
    for pcr in pcrs {
        bits[usize::from(pcr / 8)] |= 1 << (pcr % 8);
    }
    let mut pcr_select = TpmlPcrSelection::new();
    let selection = TpmsPcrSelection {
        hash: TpmAlgId::Sha256,
        pcr_select: TpmsPcrSelect::try_from(&bits[..]).unwrap(),
    };
    pcr_select.try_push(selection).unwrap();
    let attest = TpmsAttest {
        attest_type: TpmSt::AttestQuote,
        qualified_signer: Tpm2bName::new(),
        extra_data: Tpm2bData::try_from(&about.as_bytes()[..]).unwrap(),
        clock_info: TpmsClockInfo::default(),
        firmware_version: 1.into(),
        attested: TpmuAttest::Quote(TpmsQuoteInfo {
            pcr_select,
            pcr_digest: Tpm2bDigest::try_from(&sum[..]).unwrap(),
        }),
    };
    let mut bytes = [0; TPM_MAX_COMMAND_SIZE];
    let mut writer = TpmWriter::new(&mut bytes);
    attest.marshal(&mut writer).unwrap();
    writer.as_bytes().to_vec()
}

fn log(bytes: &[u8]) -> Log {
    Log::parse(bytes).unwrap()
}

fn altered(bytes: &[u8]) -> String {
    match judged(&Tpm::new().quotes(log(bytes))) {
        Booted::Altered { what } => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_was_started_by_what_the_box_serves_is_measured() {
    for (bytes, secure) in [
        (BY_GRUB, true),
        (BY_UEFI_HTTP, true),
        (BY_CD, true),
        (BY_IPXE, false),
    ] {
        let tpm = Tpm::new();
        let evidence = tpm.quotes(log(bytes));
        let Booted::Measured {
            key,
            before,
            secure_boot,
            quote,
        } = judged(&evidence)
        else {
            panic!("{:?}", judged(&evidence));
        };
        assert_eq!((key, secure_boot), (evidence.key.fingerprint(), secure));
        assert_eq!(before, BTreeSet::new());
        assert!(is_whole(&quote));
        let mut other = quote.clone();
        other.registers[2] = Digest::new([9; 32]);
        assert!(!is_whole(&other), "another register");
        other = quote.clone();
        other.key = Tpm::new().quotes(log(bytes)).key;
        assert!(!is_whole(&other), "another TPM");
    }
}

#[test]
fn another_initramfs_is_found() {
    let what = altered(ALTERED_INITRD);
    assert!(what.contains("read a file"), "{what}");
    assert!(what.contains("/boot/initrd"), "{what}");
}

#[test]
fn another_script_is_found() {
    let what = altered(ALTERED_SCRIPT);
    assert!(what.contains("it has `init=/bin/sh` beside it"), "{what}");
}

#[test]
fn another_kernel_and_another_loader_are_found() {
    let evidence = Tpm::new().quotes(log(BY_GRUB));
    let without = |change: fn(&mut Files)| {
        let mut files = served_files();
        change(&mut files);
        judged_with(&files, &evidence, &about())
    };
    let found = without(|files| files.kernel = Some(Digest::new([1; 32])));
    assert!(format!("{found:?}").contains("program that this box does not serve (798246871df7)"));
    let found = without(|files| assert!(files.programs.remove(&digest(GRUB[0]))));
    assert!(format!("{found:?}").contains("does not serve (e2fb9e92c430)"));
    let found = without(|files| assert!(files.contents.remove(&digest(KERNEL[1]))));
    assert!(format!("{found:?}").contains("(f080f76ab201"), "{found:?}");
}

#[test]
fn what_firmware_starts_first_is_told_and_what_comes_between_is_refused() {
    let with = |at: fn(usize) -> usize| {
        let mut log = log(BY_GRUB);
        let other = log.events.len();
        log.events.push(Event {
            pcr: 4,
            kind: 0x8000_0003,
            digest: Digest::new([9; 32]),
            text: String::new(),
        });
        let shim = log
            .events
            .iter()
            .position(|it| it.digest == digest(SHIM[0]));
        let shim = u8::try_from(shim.unwrap()).unwrap();
        let first = log.steps.iter().position(|step| *step == shim).unwrap();
        log.steps.insert(at(first), u8::try_from(other).unwrap());
        judged(&Tpm::new().quotes(log))
    };
    match with(|shim| shim) {
        Booted::Measured { before, .. } => {
            assert_eq!(before, BTreeSet::from([Digest::new([9; 32])]));
        }
        other => panic!("{other:?}"),
    }
    let found = with(|shim| shim + 1);
    assert!(matches!(found, Booted::Altered { .. }), "{found:?}");
}

/// `BY_IPXE` with another event at its end.
fn longer(log: &[u8], text: &[u8]) -> Vec<u8> {
    let event = [
        &8u32.to_le_bytes()[..],
        &13u32.to_le_bytes(),
        &1u32.to_le_bytes(),
        &[0x0b, 0],
        &[7; 32],
        &u32::try_from(text.len()).unwrap().to_le_bytes(),
        text,
    ];
    [log, &event.concat()].concat()
}

#[test]
fn the_longest_command_line_is_told_and_a_log_without_end_is_not() {
    let line = [b'x'; 2048];
    let told = log(&longer(BY_IPXE, &line));
    assert_eq!(told.events.last().unwrap().text.len(), line.len());
    let mut endless = BY_IPXE.to_vec();
    for _ in 0..MOST_STEPS {
        endless = longer(&endless, b"sleep 5");
    }
    assert_eq!(Log::parse(&endless), Err(LogError::TooLong));
}

#[test]
fn a_log_that_is_not_what_the_tpm_was_told_shows_nothing() {
    let tpm = Tpm::new();
    let full = log(BY_GRUB);
    let quoted = quote(sum_of(&full), &about(), &PCRS);
    // Something has started since, or somebody has taken a line out.
    for cut in [0, 10, full.steps.len() - 1] {
        let mut less = full.clone();
        less.steps.remove(cut);
        let found = judged(&tpm.signs(&quoted, less));
        assert!(matches!(found, Booted::Unmeasured { .. }), "{found:?}");
    }
    let mut nowhere = full.clone();
    nowhere.steps.push(200);
    let found = judged(&tpm.signs(&quoted, nowhere));
    assert!(matches!(found, Booted::Unmeasured { .. }), "{found:?}");
}

#[test]
fn a_word_about_another_start_or_of_other_registers_or_by_another_key_shows_nothing() {
    let tpm = Tpm::new();
    let full = log(BY_GRUB);
    let sum = sum_of(&full);
    let mut stranger = tpm.quotes(full.clone());
    stranger.key = Tpm::new().quotes(full.clone()).key;
    let mut trailing = quote(sum, &about(), &PCRS);
    trailing.push(0);
    for evidence in [
        tpm.signs(
            &quote(sum, &qualifying(b"another start"), &PCRS),
            full.clone(),
        ),
        tpm.signs(&quote(sum, &about(), &[4, 7, 8]), full.clone()),
        tpm.signs(&quote(sum, &about(), &[0, 1, 2, 3]), full.clone()),
        tpm.signs(&trailing, full.clone()),
        tpm.signs(b"", full),
        stranger,
    ] {
        assert_eq!(
            judged(&evidence),
            Booted::Unmeasured {
                reason: "its TPM's word is not about this start".to_owned()
            }
        );
    }
}

/// What is no program of 64-bit UEFI, or lies about its length, has no digest; the checksum and the signature do not count.
#[test]
fn a_program_is_measured_without_its_checksum_and_its_signature() {
    let mut program = vec![0x90; 1024];
    program[0x3c..0x40].copy_from_slice(&64u32.to_le_bytes());
    program[64..68].copy_from_slice(b"PE\0\0");
    program[88..90].copy_from_slice(&[0x0b, 2]);
    program[232..240].fill(0);
    let unsigned = program_digest(&program).unwrap();
    program[152] ^= 1;
    program[232..236].copy_from_slice(&1024u32.to_le_bytes());
    program[236..240].copy_from_slice(&8u32.to_le_bytes());
    program.extend(*b"a stamp!");
    assert_eq!(program_digest(&program), Ok(unsigned));
    program[300] ^= 1;
    assert_ne!(program_digest(&program), Ok(unsigned));
    program.push(0);
    assert_eq!(program_digest(&program), Err(NoProgram));
    assert_eq!(program_digest(b"#!/bin/sh"), Err(NoProgram));
}

proptest! {
    #[test]
    fn any_log_of_a_firmware_is_read_or_refused(noise in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..BY_IPXE.len(), at in 0..BY_IPXE.len(), value: u8) {
        let _ = Log::parse(&noise);
        prop_assert!(Log::parse(&[&BY_IPXE[..cut], &noise].concat()).is_err() || noise.is_empty() || cut > 100);
        let mut damaged = BY_IPXE.to_vec();
        damaged[at] = value;
        if let Ok(log) = Log::parse(&damaged) {
            prop_assert!(log.steps.iter().all(|step| usize::from(*step) < log.events.len()));
        }
    }

    #[test]
    fn no_damage_makes_a_start_another_one(at in 0usize..1 << 16, to: u8) {
        let tpm = Tpm::new();
        let whole = log(BY_IPXE);
        let mut attest = quote(sum_of(&whole), &about(), &PCRS);
        let place = at % attest.len();
        let same = attest[place] == to;
        let mut overheard = tpm.signs(&attest, whole.clone());
        attest[place] = to;
        overheard.attest = Attest::new(&attest).unwrap();
        prop_assert_eq!(matches!(judged(&overheard), Booted::Measured { .. }), same);
        // A key that signs anything, which no TPM has, must not bring the box down either.
        let _ = judged(&tpm.signs(&attest, whole.clone()));
        let mut told = tpm.quotes(whole);
        let step = at % told.steps.len();
        let same = told.steps[step] == to;
        told.steps[step] = to;
        prop_assert_eq!(matches!(judged(&told), Booted::Measured { .. }), same);
    }

    #[test]
    fn any_file_is_a_program_or_none(noise in proptest::collection::vec(any::<u8>(), 0..600), header: u32, place: u32, length: u32) {
        let _ = program_digest(&noise);
        let mut program = noise;
        program.resize(600, 0);
        program[0x3c..0x40].copy_from_slice(&header.to_le_bytes());
        let _ = program_digest(&program);
        program[0x3c..0x40].copy_from_slice(&64u32.to_le_bytes());
        program[64..68].copy_from_slice(b"PE\0\0");
        program[88..90].copy_from_slice(&[0x0b, 2]);
        program[232..236].copy_from_slice(&place.to_le_bytes());
        program[236..240].copy_from_slice(&length.to_le_bytes());
        let _ = program_digest(&program);
    }
}
