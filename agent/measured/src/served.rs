//! What one server may have started: the box's files, its scripts and its command line.

use std::collections::BTreeSet;

use firstlight_api::{bounded, measured::Event, tpm::Digest};
use sha2::{Digest as _, Sha256};

use crate::program::{NoProgram, program_digest};

/// What firmware says itself (PC Client Platform Firmware Profile 1.06, 3.3.4.5 and 10.4.3).
const FIRMWARE_SAYS: [&[u8]; 5] = [
    b"Calling EFI Application from Boot Option",
    b"Returning from EFI Application from Boot Option",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"Booting BCV Device",
];
/// Commands of GRUB that load nothing: what they read of files is measured by itself.
const HARMLESS: [&str; 12] = [
    "[",
    "true",
    "false",
    "echo",
    "sleep",
    "set",
    "source",
    "configfile",
    "search",
    "boot",
    "exit",
    "reboot",
];
/// Commands that load what is measured by its content.
const LOADING: [&str; 2] = ["chainloader", "initrd"];
/// `SecureBoot` with the value 1 as firmware measures it: a `UEFI_VARIABLE_DATA` of EFI's global variables.
const SECURE_BOOT: &[u8] = b"\x61\xdf\xe4\x8b\xca\x93\xd2\x11\xaa\x0d\x00\xe0\x98\x03\x2b\x8c\
    \x0a\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0S\0e\0c\0u\0r\0e\0B\0o\0o\0t\0\x01";

/// The box's files for the start of servers, whoever asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// As firmware measures programs.
    pub(crate) programs: BTreeSet<Digest>,
    pub(crate) kernel: Option<Digest>,
    /// As GRUB and the kernel measure files.
    pub(crate) contents: BTreeSet<Digest>,
    pub(crate) initrd: Option<Digest>,
}

impl Files {
    /// One of the loaders.
    pub fn add_loader(&mut self, file: &[u8]) -> Result<(), NoProgram> {
        self.programs.insert(Digest::new(program_digest(file)?));
        self.contents.insert(of(file));
        Ok(())
    }

    pub fn add_kernel(&mut self, file: &[u8]) -> Result<(), NoProgram> {
        self.kernel = Some(Digest::new(program_digest(file)?));
        self.contents.insert(of(file));
        Ok(())
    }

    pub fn add_initrd(&mut self, file: &[u8]) {
        self.initrd = Some(of(file));
        self.contents.insert(of(file));
    }
}

/// What one server is served.
pub struct Served<'a> {
    pub files: &'a Files,
    pub command_line: &'a str,
    /// GRUB's.
    pub scripts: Vec<Vec<u8>>,
    /// What GRUB is told to say before the reason why it waits.
    pub waits: &'a str,
    /// GRUB's script that says it.
    pub waiting: &'a dyn Fn(&str) -> Vec<u8>,
}

pub struct Found {
    pub before: BTreeSet<Digest>,
    pub secure_boot: bool,
}

impl Served<'_> {
    /// An error is half a sentence.
    pub fn compare(&self, steps: &[&Event]) -> Result<Found, String> {
        let of_register = |pcr| steps.iter().filter(move |event| event.pcr == pcr);
        let before = self.programs(of_register(4))?;
        let commands: Vec<&str> = of_register(8)
            .map(|event| self.command(event))
            .collect::<Result<_, _>>()?;
        self.contents(of_register(9), &commands)?;
        let secure = of(SECURE_BOOT);
        Ok(Found {
            before,
            secure_boot: of_register(7).any(|event| event.digest == secure),
        })
    }

    /// What was started before the first of ours.
    fn programs<'a>(
        &self,
        started: impl Iterator<Item = &'a &'a Event>,
    ) -> Result<BTreeSet<Digest>, String> {
        let says: BTreeSet<Digest> = FIRMWARE_SAYS.into_iter().map(of).collect();
        let (mut before, mut last) = (BTreeSet::new(), None);
        for event in started {
            let is_ours = self.files.programs.contains(&event.digest)
                || self.files.kernel == Some(event.digest);
            match last {
                _ if says.contains(&event.digest) => {}
                _ if is_ours => last = Some(event.digest),
                None => {
                    before.insert(event.digest);
                }
                Some(_) => {
                    return Err(format!(
                        "it has started a program that this box does not serve ({})",
                        short(event.digest)
                    ));
                }
            }
        }
        if last.is_some() && last == self.files.kernel {
            Ok(before)
        } else {
            Err("its kernel is not the one that this box serves".to_owned())
        }
    }

    /// What GRUB did, without what stands in front of it.
    fn command<'a>(&self, event: &'a Event) -> Result<&'a str, String> {
        let unknown = || {
            format!(
                "its GRUB did what nobody can read ({})",
                short(event.digest)
            )
        };
        let (what, command) = event.text.split_once(": ").ok_or_else(unknown)?;
        if of(command.as_bytes()) != event.digest {
            return Err(unknown());
        }
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        match what {
            "grub_cmd" if verb == "linux" => self.check_command_line(rest)?,
            "kernel_cmdline" => self.check_command_line(command)?,
            "grub_cmd" if HARMLESS.contains(&verb) || LOADING.contains(&verb) => {}
            _ => {
                let command = bounded::text(command);
                return Err(format!(
                    "its GRUB was told `{command}`, which is not what this box says"
                ));
            }
        }
        Ok(command)
    }

    /// Behind the name of the kernel.
    fn check_command_line(&self, text: &str) -> Result<(), String> {
        let (_, line) = text.split_once(' ').unwrap_or_default();
        if line == self.command_line {
            return Ok(());
        }
        let ours: BTreeSet<&str> = self.command_line.split(' ').collect();
        let others: Vec<&str> = line
            .split(' ')
            .filter(|word| !ours.contains(word))
            .collect();
        let others = bounded::text(&others.join(" "));
        Err(format!(
            "its kernel's command line is not what this box says (it has `{others}` beside it)"
        ))
    }

    fn contents<'a>(
        &self,
        read: impl Iterator<Item = &'a &'a Event>,
        commands: &[&str],
    ) -> Result<(), String> {
        let mut ours = self.files.contents.clone();
        // By UEFI's HTTP, GRUB reads the lists of modules that are not there as files without content.
        ours.insert(of(b""));
        ours.extend(self.scripts.iter().map(|script| of(script)));
        let echoed = commands
            .iter()
            .filter_map(|command| command.strip_prefix("echo "));
        let reasons: BTreeSet<&str> = echoed
            .filter_map(|text| text.strip_prefix(self.waits))
            .collect();
        ours.extend(
            reasons
                .into_iter()
                .map(|reason| of(&(self.waiting)(reason))),
        );
        let options: BTreeSet<Digest> = self.load_options(commands).collect();
        let (mut initrd, mut told) = (false, false);
        for event in read {
            let is_options = options.contains(&event.digest);
            if !is_options && !ours.contains(&event.digest) {
                return Err(format!(
                    "it has read a file or a command line that this box does not serve ({}{})",
                    short(event.digest),
                    named(&event.text)
                ));
            }
            initrd |= self.files.initrd == Some(event.digest);
            told |= is_options;
        }
        match (initrd, told) {
            (true, true) => Ok(()),
            (false, _) => Err("its initramfs is not the one that this box serves".to_owned()),
            (_, false) => Err("its kernel's command line is not what this box says".to_owned()),
        }
    }

    /// What the kernel may have found as its options: GRUB and iPXE put its name in front.
    fn load_options(&self, commands: &[&str]) -> impl Iterator<Item = Digest> {
        let by_grub = commands
            .iter()
            .filter(|command| command.starts_with('/') || command.starts_with('('))
            .map(|command| format!("BOOT_IMAGE={command}"));
        let by_ipxe = format!("kernel initrd=initrd {}", self.command_line);
        let both: Vec<String> = by_grub.chain([by_ipxe]).collect();
        both.into_iter().flat_map(|text| {
            let wide = |text: &str| -> Vec<u8> {
                text.encode_utf16().flat_map(u16::to_le_bytes).collect()
            };
            [of(&wide(&text)), of(&wide(&(text + "\0")))]
        })
    }
}

fn of(bytes: &[u8]) -> Digest {
    Digest::new(Sha256::digest(bytes).into())
}

/// As much of it as people compare.
fn short(digest: Digest) -> String {
    let [first @ .., _, _] = digest.as_bytes().first_chunk::<8>().expect("32 bytes");
    first
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn named(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(", it says {}", bounded::text(text))
}
