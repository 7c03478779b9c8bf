//! The encrypted state partition: a LUKS2 header whose key slots are opened by a TPM or by a recovery key. systemd's own programs write
//! and open them, so that whoever knows `systemd-cryptenroll` can read what is there.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use firstlight_api::bounded;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expect::Registers;

/// Of the opened partition, below `/dev/mapper`.
const NAME: &str = "firstlight-state";
/// Of all that has to do with keys, and more, in bytes.
pub const HEADER: u64 = 32 << 20;
const MAGIC: &[u8] = b"LUKS\xba\xbe";
/// What the registers were at the starts that it is sealed to: for people, when it does not open. Nothing believes it.
const STARTS: &str = "firstlight-starts";
const STARTS_ID: &str = "31";
const ENROLL: &str = "systemd-cryptenroll";
const ATTACH: &str = "/usr/lib/systemd/systemd-cryptsetup";

/// A partition with such a header.
#[derive(Clone, Copy, Debug)]
pub struct Luks<'a>(&'a Path);

/// What its header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// A TPM opens it.
    pub tpm: bool,
    /// And only after the starts that it is sealed to.
    pub bound_to_starts: bool,
    pub recovery_key: bool,
    pub starts: Vec<Registers>,
}

#[derive(Deserialize, Serialize)]
struct StartsToken {
    #[serde(rename = "type")]
    kind: String,
    keyslots: [String; 0],
    starts: Vec<Registers>,
}

/// With what a person, or this machine, opens it.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    Tpm,
    Recovery(&'a str),
}

impl<'a> Luks<'a> {
    /// `None`: it is not encrypted, or there is nothing yet.
    pub fn on(device: &'a Path) -> Result<Option<Self>> {
        let mut start = [0; MAGIC.len()];
        let read = File::open(device).and_then(|mut file| file.read_exact(&mut start));
        match read {
            Ok(()) => Ok((start == MAGIC).then_some(Self(device))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", device.display())),
        }
    }

    /// Asks nobody.
    pub fn open_by_tpm(self) -> Result<()> {
        run(&mut self.attach("tpm2-device=auto,headless=true"), "")?;
        Ok(())
    }

    /// Asks at the console, again and again.
    pub fn open_by_recovery_key(self) -> Result<()> {
        run(&mut self.attach("tries=0"), "")?;
        Ok(())
    }

    fn attach(self, options: &str) -> Command {
        let mut command = Command::new(ATTACH);
        command
            .args(["attach", NAME])
            .arg(self.0)
            .args(["none", options]);
        command
    }

    pub fn slots(self) -> Result<Slots> {
        let mut command = Command::new("cryptsetup");
        command.args(["luksDump", "--dump-json-metadata"]);
        let text = run(command.arg(self.0), "")?;
        let header: Value = serde_json::from_str(&text).context("the header of the state")?;
        Ok(slots(&header))
    }

    /// Another recovery key, which is the only one from now on.
    pub fn new_recovery_key(self, key: Key<'_>) -> Result<String> {
        let key = self.enroll(key, &["--recovery-key", "--wipe-slot=recovery"])?;
        Ok(key.trim().to_owned())
    }

    /// This machine's TPM opens it after one of `starts`, the first of which is this one, and after no other; without any after each.
    pub fn seal(self, key: Key<'_>, starts: &[Registers]) -> Result<()> {
        let arguments: Vec<String> = match starts {
            [] => vec!["--tpm2-pcrs=".to_owned()],
            starts => starts.iter().map(pcrs).collect(),
        };
        for (at, pcrs) in arguments.iter().enumerate() {
            let mut arguments = vec!["--tpm2-device=auto", pcrs];
            if at == 0 {
                arguments.push("--wipe-slot=tpm2");
            }
            self.enroll(key, &arguments)?;
        }
        self.tell(starts)
    }

    /// No key opens it any more.
    pub fn erase(self) -> Result<()> {
        let mut command = Command::new("cryptsetup");
        run(command.args(["erase", "--batch-mode"]).arg(self.0), "")?;
        Ok(())
    }

    fn enroll(self, key: Key<'_>, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(ENROLL);
        command.args(arguments).arg(self.0);
        match key {
            Key::Tpm => run(command.arg("--unlock-tpm2-device=auto"), ""),
            Key::Recovery(key) => run(command.arg("--unlock-key-file=/dev/stdin"), key),
        }
    }

    fn tell(self, starts: &[Registers]) -> Result<()> {
        let token = StartsToken {
            kind: STARTS.to_owned(),
            keyslots: [],
            starts: starts.to_vec(),
        };
        let token = serde_json::to_string(&token)?;
        let mut command = Command::new("cryptsetup");
        command.args(["token", "import", "--token-id", STARTS_ID]);
        command.args(["--token-replace", "--json-file", "-"]);
        run(command.arg(self.0), &token)?;
        Ok(())
    }
}

/// As `systemd-cryptenroll` takes them.
fn pcrs(registers: &Registers) -> String {
    let values = registers
        .iter()
        .map(|(pcr, value)| format!("{pcr}:sha256={value}"));
    format!("--tpm2-pcrs={}", values.collect::<Vec<_>>().join("+"))
}

/// Of a header that anybody may have written.
fn slots(header: &Value) -> Slots {
    let mut slots = Slots::default();
    let tokens = header.get("tokens").and_then(Value::as_object);
    for token in tokens.into_iter().flat_map(|tokens| tokens.values()) {
        match token.get("type").and_then(Value::as_str) {
            Some("systemd-tpm2") => {
                let pcrs = token.get("tpm2-pcrs").and_then(Value::as_array);
                let is_bound = pcrs.is_some_and(|pcrs| !pcrs.is_empty());
                // One that opens always makes the others idle.
                slots.bound_to_starts = is_bound && (slots.bound_to_starts || !slots.tpm);
                slots.tpm = true;
            }
            Some("systemd-recovery") => slots.recovery_key = true,
            Some(STARTS) => {
                let read = serde_json::from_value(token.clone());
                slots.starts = read.map_or_else(|_| Vec::new(), |read: StartsToken| read.starts);
            }
            _ => {}
        }
    }
    slots
}

/// What it says, if it does what it is for.
fn run(command: &mut Command, input: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {program}"))?;
    let mut stdin = child.stdin.take().context("its input")?;
    // It may have ended, and says why.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program}: {}",
        bounded::sentence(said.trim())
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_opens_it_is_read() {
        let tpm =
            |pcrs: &[u8]| json!({"type": "systemd-tpm2", "keyslots": ["0"], "tpm2-pcrs": pcrs});
        let recovery = json!({"type": "systemd-recovery", "keyslots": ["1"]});
        let read = |tokens: Value| slots(&json!({"tokens": tokens}));
        assert_eq!(slots(&json!({})), Slots::default());
        let first = read(json!({"0": tpm(&[])}));
        assert!(first.tpm && !first.bound_to_starts && !first.recovery_key);
        let sealed = read(json!({"1": recovery, "2": tpm(&[4, 7, 9]), "3": tpm(&[4, 7, 9])}));
        assert!(sealed.tpm && sealed.bound_to_starts && sealed.recovery_key);
        // In whatever order they come.
        for tokens in [
            json!({"0": tpm(&[]), "1": tpm(&[7])}),
            json!({"0": tpm(&[7]), "1": tpm(&[])}),
        ] {
            assert!(!read(tokens).bound_to_starts);
        }
    }

    #[test]
    fn starts_are_told_and_read_again() {
        let start: Registers = [(4, [1; 32].into()), (9, [2; 32].into())].into();
        let token = StartsToken {
            kind: STARTS.to_owned(),
            keyslots: [],
            starts: vec![start.clone(), Registers::new()],
        };
        let header = json!({"tokens": {STARTS_ID: serde_json::to_value(&token).unwrap()}});
        assert_eq!(slots(&header).starts, [start.clone(), Registers::new()]);
        assert_eq!(
            pcrs(&start),
            format!(
                "--tpm2-pcrs=4:sha256={}+9:sha256={}",
                "01".repeat(32),
                "02".repeat(32)
            )
        );
    }

    proptest! {
        #[test]
        fn any_header_has_slots_or_none(
            kind in "(systemd-tpm2|systemd-recovery|firstlight-starts|x)?",
            pcrs in "(\\[[0-9,]{0,6}\\]|null|\"4\"|\\{\\})",
            starts in "(\\[(\\{\"[0-9]{1,3}\":\"[0-9a-f]{0,66}\"\\},?){0,3}\\]|7|\\{\\})",
        ) {
            let text = format!(r#"{{"tokens":{{"0":{{"type":"{kind}","keyslots":[],"tpm2-pcrs":{pcrs},"starts":{starts}}},"1":3}}}}"#);
            if let Ok(header) = serde_json::from_str(&text) {
                let slots = slots(&header);
                prop_assert!(slots.tpm || !slots.bound_to_starts);
            }
        }
    }
}
