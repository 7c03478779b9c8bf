//! Fuzzing of what the segment, disks and uploads say: functions of bytes that must not panic, whole conversations among them.
//!
//! Every run of the tests plays their seeds and random changes of these. A driver that goes by coverage calls [`run`].
//!
//! To add a target: a function in the module of what it reads, and a line in [`TARGETS`].

mod artifact;
mod dhcp;
mod disk;
#[cfg(test)]
mod exchanges;
mod http;
mod measured;
mod ramdisk;
mod tftp;

/// One target of fuzzing.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As `docs/dev/decoders.toml` names it.
    pub name: &'static str,
    /// Panics where something is wrong.
    pub run: fn(&[u8]),
    /// What a well-behaved sender says.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 9] = [
    Target {
        name: "artifact",
        run: artifact::run,
        seeds: artifact::seeds,
    },
    Target {
        name: "dhcp_client",
        run: dhcp::client,
        seeds: dhcp::client_seeds,
    },
    Target {
        name: "dhcp_relay",
        run: dhcp::relay,
        seeds: dhcp::relay_seeds,
    },
    Target {
        name: "dhcp_server",
        run: dhcp::server,
        seeds: dhcp::server_seeds,
    },
    Target {
        name: "disk",
        run: disk::run,
        seeds: disk::seeds,
    },
    Target {
        name: "http",
        run: http::run,
        seeds: http::seeds,
    },
    Target {
        name: "measured",
        run: measured::run,
        seeds: measured::seeds,
    },
    Target {
        name: "ramdisk",
        run: ramdisk::run,
        seeds: ramdisk::seeds,
    },
    Target {
        name: "tftp",
        run: tftp::run,
        seeds: tftp::seeds,
    },
];

/// Runs the target of this name.
///
/// # Panics
/// When there is none, or when something is wrong with what it does with `bytes`.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("the name of a target").run)(bytes);
}

/// Messages of up to 64 KiB one after the other: two bytes of length, lowest first, and the message.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        bytes = rest;
        Some(message)
    })
}

fn join(messages: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
        bytes.extend(length.to_le_bytes());
        bytes.extend_from_slice(&message[..usize::from(length)]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_target_has_seeds_and_takes_them() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{}", target.name);
            for seed in seeds {
                (target.run)(&seed);
            }
        }
    }

    /// What fuzzing by coverage has found in its hours, as little of it as covers the same.
    #[test]
    fn the_corpus_breaks_no_target() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for target in TARGETS {
            let folder = corpus.join(target.name);
            let files = fs::read_dir(&folder).expect("each target has a corpus");
            let mut played = 0;
            for file in files {
                let file = file.expect("a corpus can be listed").path();
                (target.run)(&fs::read(file).expect("a corpus can be read"));
                played += 1;
            }
            assert!(played > 10, "{played} in {}", folder.display());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn changes_of_what_is_usual_break_no_target(
            which in any::<prop::sample::Index>(),
            seed in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            noise in prop::collection::vec(any::<u8>(), 0..60),
            cut in any::<prop::sample::Index>(),
        ) {
            let target = which.get(&TARGETS);
            let mut bytes = seed.get(&(target.seeds)()).clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(cut.index(bytes.len() * 2));
            bytes.extend(noise);
            (target.run)(&bytes);
        }
    }
}
