//! What a server says it has started: its firmware's log, and programs that are measured.

use firstlight_measured::{Log, program_digest};

/// The first byte says what the rest is.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    if kind % 2 == 0 {
        let Ok(log) = Log::parse(rest) else {
            return;
        };
        assert!(log.events.len() <= 128);
        let known = |step: &u8| usize::from(*step) < log.events.len();
        assert!(log.steps.iter().all(known));
        let plain = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        assert!(log.events.iter().all(|event| plain(&event.text)));
    } else {
        // Whatever it is, it has one digest or none.
        assert_eq!(program_digest(rest), program_digest(rest));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let log = include_bytes!("../../measured/fixtures/ipxe.log");
    let mut program = vec![0; 300];
    program[0x3c] = 64;
    program[64..68].copy_from_slice(b"PE\0\0");
    program[88..90].copy_from_slice(&[0x0b, 2]);
    vec![[&[0], &log[..]].concat(), [&[1], &program[..]].concat()]
}
