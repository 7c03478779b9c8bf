//! The ramdisk's TPM commands against a real emulator, and what its box is told of a TPM.
#![allow(clippy::unwrap_used)]

#[path = "support/swtpm.rs"]
mod swtpm;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use firstlight_api::measured::{Boot, Event, Evidence, qualifying};
use firstlight_api::signed::PublicKey;
use firstlight_api::tpm::{Challenge, Claim, Digest, Point, Tpm};
use firstlight_efi::vars::EfiVars;
use firstlight_measured::{Booted, Files, Log, Served, judge};
use firstlight_ramdisk::deploy::device::BlockDevice;
use firstlight_ramdisk::inventory::sys::SysTree;
use firstlight_ramdisk::ipa::machine::{Access, Machine};
use firstlight_ramdisk::ipa::prover::{Patience, Prover};
use firstlight_ramdisk::tpm::{self, Channel, Refusal};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::SystemRandom;
use swtpm::{Swtpm, connect};

fn public(tpm: &Swtpm) -> Point {
    tpm::public(&mut connect(&tpm.way()).unwrap()).unwrap()
}

/// `TPM2_Clear` and `TPM2_HierarchyChangeAuth` of the endorsement hierarchy, to the password `x`.
const CLEAR: &[u8] =
    b"\x80\x02\0\0\0\x1b\0\0\x01\x26\x40\0\0\x0a\0\0\0\x09\x40\0\0\x09\0\0\x01\0\0";
const LOCK: &[u8] =
    b"\x80\x02\0\0\0\x1e\0\0\x01\x29\x40\0\0\x0b\0\0\0\x09\x40\0\0\x09\0\0\x01\0\0\0\x01x";

fn order(tpm: &Swtpm, command: &[u8]) {
    let mut way = connect(&tpm.way()).unwrap();
    way.write_all(command).unwrap();
    let mut answer = [0; 64];
    let length = way.read(&mut answer).unwrap();
    assert_eq!(answer[6..10], [0; 4], "{:x?}", &answer[..length]);
}

#[test]
fn the_key_is_the_same_at_each_start_and_another_in_each_tpm() {
    let (one, other) = (Swtpm::new(), Swtpm::new());
    let key = public(&one);
    assert_ne!(public(&other), key);
    one.power_cycle();
    assert_eq!(public(&one), key);
    // Who takes the TPM into use again, as an operating system does, changes nothing.
    order(&one, CLEAR);
    assert_eq!(public(&one), key);
}

#[test]
fn both_sides_come_to_the_same_secret_as_often_as_they_are_asked() {
    let tpm = Swtpm::new();
    let key = public(&tpm);
    // More often than there are places for keys in a TPM, so none is left behind.
    for _ in 0..8 {
        let random = SystemRandom::new();
        let mine = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
        let point = mine.compute_public_key().unwrap();
        let point = Point::new(point.as_ref().try_into().unwrap());
        let theirs = tpm::agree(&mut connect(&tpm.way()).unwrap(), &point).unwrap();
        let key = UnparsedPublicKey::new(&ECDH_P256, key.as_bytes());
        agree_ephemeral(mine, &key, |ours| assert_eq!(ours, theirs)).unwrap();
    }
}

#[test]
fn a_point_that_is_none_is_refused_and_leaves_nothing_behind() {
    let tpm = Swtpm::new();
    for _ in 0..4 {
        let refused = tpm::agree(&mut connect(&tpm.way()).unwrap(), &Point::new([4; 65]));
        assert!(matches!(refused, Err(Refusal::Code(_))), "{refused:?}");
    }
    public(&tpm);
}

#[test]
fn a_tpm_whose_endorsement_keys_need_a_password_refuses() {
    let tpm = Swtpm::new();
    order(&tpm, LOCK);
    let refused = tpm::public(&mut connect(&tpm.way()).unwrap());
    assert!(matches!(refused, Err(Refusal::Code(_))), "{refused:?}");
}

/// A machine with nothing but a TPM, reached as told.
struct Bench(Box<dyn Fn() -> io::Result<Box<dyn Channel>> + Send + Sync>);

impl Machine for Bench {
    fn sys(&self) -> SysTree {
        SysTree::new("/nowhere")
    }
    fn open(&self, _: &str, _: Access) -> io::Result<Box<dyn BlockDevice>> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn efi_vars(&self) -> Option<EfiVars> {
        None
    }
    fn tpm(&self) -> io::Result<Box<dyn Channel>> {
        (self.0)()
    }
    fn log(&self) -> Vec<u8> {
        Vec::new()
    }
    fn sync(&self) {}
}

fn prover(
    patience: Patience,
    tpm: impl Fn() -> io::Result<Box<dyn Channel>> + Send + Sync + 'static,
) -> Prover {
    Prover::start(Arc::new(Bench(Box::new(tpm))), patience)
}

const PATIENCE: Patience = Patience {
    first: Duration::from_secs(20),
    longest: Duration::from_mins(1),
    again: Duration::from_millis(1),
};

/// A TPM that takes what it is told and says nothing until the gate is opened; then it is the one behind.
struct Late {
    gate: Arc<Mutex<()>>,
    tpm: UnixStream,
}

impl Read for Late {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let _open = self.gate.lock().unwrap();
        self.tpm.read(buffer)
    }
}

impl Write for Late {
    fn write(&mut self, command: &[u8]) -> io::Result<usize> {
        self.tpm.write(command)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says the same to everything.
struct Parrot(io::Cursor<&'static [u8]>);

impl Read for Parrot {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Parrot {
    fn write(&mut self, command: &[u8]) -> io::Result<usize> {
        self.0.set_position(0);
        Ok(command.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn until(prover: &Prover, what: &str, is: impl Fn(&Tpm) -> bool) -> Tpm {
    let started = Instant::now();
    loop {
        let said = prover.said();
        if is(&said) {
            return said;
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "waited for {what}: {said:?}"
        );
        std::thread::yield_now();
    }
}

fn challenge() -> Challenge {
    let mine = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
    let point = mine.compute_public_key().unwrap();
    Challenge {
        point: Point::new(point.as_ref().try_into().unwrap()),
        ticket: Digest::new([7; 32]),
    }
}

fn claim(tpm: Point) -> Claim<'static> {
    Claim {
        session: "ab",
        boot_mac: "52:54:00:12:34:56",
        boot_id: "b",
        key: PublicKey::new([1; 32]),
        tpm,
    }
}

fn is_silent(said: &Tpm) -> bool {
    matches!(said, Tpm::Silent { .. })
}

#[test]
fn a_machine_without_a_tpm_says_so_at_once() {
    let none = prover(PATIENCE, || Err(io::ErrorKind::NotFound.into()));
    assert_eq!(none.said(), Tpm::Absent);
    none.prove(challenge(), claim);
    assert_eq!(none.said(), Tpm::Absent);
}

#[test]
fn a_proof_is_made_and_stays_with_what_is_said() {
    let tpm = Swtpm::new();
    let (key, way) = (public(&tpm), tpm.way());
    let prover = prover(PATIENCE, move || Ok(Box::new(connect(&way)?)));
    let boot = Boot::Unsaid;
    let (point, proof) = (key, None);
    assert_eq!(prover.said(), Tpm::Key { point, proof, boot });
    let asked = challenge();
    prover.prove(asked, claim);
    let Tpm::Key {
        point,
        proof: Some(proof),
        boot,
    } = prover.said()
    else {
        panic!("{:?}", prover.said());
    };
    assert_eq!((point, proof.challenge), (key, asked));
    assert!(matches!(boot, Boot::Unmeasured { .. }), "{boot:?}");
    let proof = Some(proof);
    assert_eq!(prover.said(), Tpm::Key { point, proof, boot });
    // It is long, and the box has it now.
    prover.heard();
    let boot = Boot::Told;
    assert_eq!(prover.said(), Tpm::Key { point, proof, boot });
}

#[test]
fn a_tpm_vouches_for_what_it_was_told_and_for_nothing_once_another_kernel_goes_on() {
    let log = include_bytes!("../../measured/fixtures/secure-boot-grub.log");
    let tpm = Swtpm::new();
    let Log { events, steps } = Log::parse(log).unwrap();
    for step in &steps {
        let Event { pcr, digest, .. } = &events[usize::from(*step)];
        tpm::extend(&mut connect(&tpm.way()).unwrap(), *pcr, *digest.as_bytes()).unwrap();
    }
    let about = qualifying(b"this start");
    let judged = || {
        let quote = tpm::quote(&mut connect(&tpm.way()).unwrap(), &about).unwrap();
        let evidence = Evidence {
            key: quote.key,
            attest: quote.attest,
            signature: quote.signature,
            events: events.clone(),
            steps: steps.clone(),
        };
        let served = Served {
            files: &Files::default(),
            command_line: "",
            scripts: Vec::new(),
            waits: "",
            waiting: &|_| Vec::new(),
        };
        (evidence.key, judge(&evidence, &about, &served))
    };
    // The log is what the TPM was told; a box without files serves none of it.
    let (key, found) = judged();
    assert!(matches!(found, Booted::Altered { .. }), "{found:?}");
    assert_ne!(key, public(&tpm), "a key for one purpose each");
    tpm::extend(&mut connect(&tpm.way()).unwrap(), 9, [0xff; 32]).unwrap();
    let (same, found) = judged();
    assert!(matches!(found, Booted::Unmeasured { .. }), "{found:?}");
    assert_eq!(same, key);
}

#[test]
fn a_tpm_that_does_not_answer_is_not_waited_for_and_is_taken_when_it_does() {
    let tpm = Swtpm::new();
    let (key, way) = (public(&tpm), tpm.way());
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let theirs = Arc::clone(&gate);
    let patience = Patience {
        first: Duration::from_millis(10),
        longest: Duration::from_secs(2),
        ..PATIENCE
    };
    let prover = prover(patience, move || {
        Ok(Box::new(Late {
            gate: Arc::clone(&theirs),
            tpm: connect(&way)?,
        }))
    });
    assert_eq!(prover.said(), Tpm::Asked);
    let silent = until(&prover, "silence", is_silent);
    assert!(
        format!("{silent:?}").contains("no answer for"),
        "{silent:?}"
    );
    drop(closed);
    let is_key = |said: &Tpm| matches!(said, Tpm::Key { .. });
    until(&prover, "the late answer", is_key);
    // It falls silent again, in the middle of a proof.
    let closed = gate.lock().unwrap();
    let started = Instant::now();
    prover.prove(challenge(), claim);
    assert!(is_silent(&prover.said()), "{:?}", prover.said());
    assert!(started.elapsed() < Duration::from_secs(20));
    drop(closed);
    let said = until(&prover, "the late proof", is_key);
    assert!(matches!(said, Tpm::Key { point, proof: Some(_), .. } if point == key));
}

#[test]
fn a_tpm_that_answers_nonsense_is_silent_with_the_reason_and_is_asked_again() {
    let tpm = Swtpm::new();
    let way = tpm.way();
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let prover = prover(PATIENCE, move || {
        if is_broken.load(Ordering::SeqCst) {
            let nonsense: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            return Ok(Box::new(Parrot(io::Cursor::new(nonsense))));
        }
        Ok(Box::new(connect(&way)?))
    });
    let silent = until(&prover, "the nonsense", is_silent);
    assert!(
        format!("{silent:?}").contains("longer than 4096 bytes"),
        "{silent:?}"
    );
    prover.prove(challenge(), claim);
    broken.store(false, Ordering::SeqCst);
    until(&prover, "the key", |said| matches!(said, Tpm::Key { .. }));
    // It breaks in the middle of a proof.
    broken.store(true, Ordering::SeqCst);
    prover.prove(challenge(), claim);
    assert!(is_silent(&prover.said()), "{:?}", prover.said());
}
