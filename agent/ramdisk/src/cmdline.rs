//! The kernel command line, parsed once into a value that the rest of the program reads.
//!
//! Must not: read `/proc` (that is [`load_cmdline`]'s one line at the end). Unknown words are the kernel's and are ignored.
//! To add a case: a field in [`Cmdline`], an arm in [`parse_cmdline`], a line in the tests.

use std::path::Path;

use firstlight_api::digest::Sha256Digest;

/// What the command line asks PID 1 to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cmdline {
    /// `firstlight.slot=PARTUUID=…`, lower case: this machine is the box and boots from that partition.
    pub slot: Option<String>,
    /// `firstlight.table=HEX`: SHA-256 of the slot's table, with which every block of the system is known.
    pub table: Option<Sha256Digest>,
    /// `firstlight.debug`: say every step on the console.
    pub debug: bool,
    /// `firstlight.box=http://BOX`, without a trailing slash: the agent that answers reports.
    pub box_url: Option<String>,
    /// `ipa-api-url=https://BOX:6385`, without a trailing slash: Ironic.
    pub ironic_url: Option<String>,
    /// `ipa-inspection-callback-url=URL`: where a stock Ironic wants the inventory.
    pub inspection_url: Option<String>,
    /// `ipa-insecure=1`: do not check Ironic's certificate.
    pub insecure: bool,
    /// `firstlight.ca=sha256:HEX`: fingerprint of the DER of the only CA to trust.
    pub ca_sha256: Option<[u8; 32]>,
    /// `BOOTIF=01-aa-bb-cc-dd-ee-ff`: the NIC that the firmware booted from, lower case with colons.
    pub boot_mac: Option<String>,
    /// `firstlight.ca=` was there and could not be read: trust nothing rather than everything.
    pub bad: Vec<String>,
}

/// Parses the text of `/proc/cmdline`. Words may be quoted with `"` as the kernel does it; the last of a key wins.
pub fn parse_cmdline(text: &str) -> Cmdline {
    let mut parsed = Cmdline::default();
    for word in words(text) {
        let (key, value) = word.split_once('=').unwrap_or((&word, ""));
        match key {
            "firstlight.slot" => match value.split_once('=') {
                Some((kind, uuid)) if kind.eq_ignore_ascii_case("PARTUUID") && !uuid.is_empty() => {
                    parsed.slot = Some(uuid.to_ascii_lowercase());
                }
                _ => parsed
                    .bad
                    .push(format!("{word}: expected firstlight.slot=PARTUUID=…")),
            },
            "firstlight.table" => match Sha256Digest::parse(value) {
                Some(digest) => parsed.table = Some(digest),
                None => parsed.bad.push(format!(
                    "{word}: expected firstlight.table= and 64 hex digits"
                )),
            },
            "firstlight.debug" => parsed.debug = truth(value),
            "firstlight.box" => parsed.box_url = url(value),
            "ipa-api-url" => parsed.ironic_url = url(value),
            "ipa-inspection-callback-url" => parsed.inspection_url = url(value),
            "ipa-insecure" => parsed.insecure = truth(value),
            "firstlight.ca" => match value.strip_prefix("sha256:").and_then(Sha256Digest::parse) {
                Some(digest) => parsed.ca_sha256 = Some(digest.bytes()),
                None => parsed.bad.push(format!(
                    "{word}: expected firstlight.ca=sha256: and 64 hex digits"
                )),
            },
            "BOOTIF" => match boot_mac(value) {
                Some(mac) => parsed.boot_mac = Some(mac),
                None => parsed
                    .bad
                    .push(format!("{word}: expected BOOTIF=01-aa-bb-cc-dd-ee-ff")),
            },
            _ => {}
        }
    }
    parsed
}

/// Reads the command line of the running kernel.
pub fn load_cmdline(path: &Path) -> std::io::Result<Cmdline> {
    Ok(parse_cmdline(&String::from_utf8_lossy(&std::fs::read(
        path,
    )?)))
}

/// Splits at white space outside of double quotes, and drops the quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// A bare key is "yes", as with the kernel's own switches.
fn truth(value: &str) -> bool {
    !matches!(
        value.to_ascii_lowercase().as_str(),
        "0" | "no" | "off" | "false" | "n"
    )
}

fn url(value: &str) -> Option<String> {
    let value = value.trim_end_matches('/');
    (!value.is_empty()).then(|| value.to_owned())
}

/// pxelinux's form `HW-aa-bb-…` with the hardware type in front, or a plain MAC with `-` or `:`.
fn boot_mac(value: &str) -> Option<String> {
    let parts: Vec<&str> = value.split(['-', ':']).collect();
    let mac = match parts.len() {
        7 => &parts[1..],
        6 => &parts[..],
        _ => return None,
    };
    let valid = mac
        .iter()
        .all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
    valid.then(|| mac.join(":").to_ascii_lowercase())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_box_command_line_names_its_slot() {
        let parsed = parse_cmdline(
            "BOOT_IMAGE=/boot/vmlinuz firstlight.slot=PARTUUID=5F1A57E0-0B0C-4A5E-8D1E-0000000000A1 firstlight.table=0000000000000000000000000000000000000000000000000000000000000000 console=tty0 quiet\n",
        );
        let slot = Some("5f1a57e0-0b0c-4a5e-8d1e-0000000000a1".to_owned());
        assert_eq!(
            parsed,
            Cmdline {
                slot,
                table: Some([0; 32].into()),
                ..Cmdline::default()
            }
        );
    }

    #[test]
    fn a_host_command_line_names_box_ironic_ca_and_nic() {
        let hex = "0123456789abcdefABCDEF000000000000000000000000000000000000000001";
        let parsed = parse_cmdline(&format!(
            "firstlight.box=http://172.22.0.1/ ipa-api-url=https://172.22.0.1:6385 firstlight.ca=sha256:{hex} \
             BOOTIF=01-52-54-00-AA-BB-CC ipa-insecure=1"
        ));
        assert_eq!(parsed.box_url.as_deref(), Some("http://172.22.0.1"));
        assert_eq!(
            parsed.ironic_url.as_deref(),
            Some("https://172.22.0.1:6385")
        );
        assert_eq!(parsed.boot_mac.as_deref(), Some("52:54:00:aa:bb:cc"));
        assert!(parsed.insecure && parsed.bad.is_empty());
        let digest = parsed.ca_sha256.unwrap();
        assert_eq!(
            (digest[0], digest[7], digest[8], digest[31]),
            (0x01, 0xef, 0xab, 0x01)
        );
    }

    #[test]
    fn switches_quotes_and_the_last_word_count() {
        assert!(parse_cmdline("firstlight.debug").debug);
        assert!(!parse_cmdline("firstlight.debug firstlight.debug=0").debug);
        assert!(!parse_cmdline("x=\"a firstlight.debug\" ").debug);
        assert_eq!(
            parse_cmdline("BOOTIF=52:54:00:aa:bb:cc")
                .boot_mac
                .as_deref(),
            Some("52:54:00:aa:bb:cc")
        );
    }

    #[test]
    fn a_value_that_cannot_be_read_is_reported_and_never_becomes_a_weaker_setting() {
        let parsed = parse_cmdline(
            "firstlight.ca=sha256:abcd BOOTIF=zz firstlight.slot=/dev/sda4 firstlight.table=7",
        );
        assert_eq!(parsed.bad.len(), 4);
        assert_eq!(
            (parsed.ca_sha256, parsed.boot_mac, parsed.slot),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn any_text_parses(text in ".{0,200}") {
            parse_cmdline(&text);
        }
    }
}
