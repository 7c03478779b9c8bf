//! What an installed system is told that is to start the box's ramdisk by its own kernel (kexec), instead of its firmware by the network: on
//! the standard input of `firstlight-bootstrap kexec MAC`, over SSH. The files come by plain HTTP, so the order has their digests.

use serde::{Deserialize, Serialize};

use crate::net::ValueError;

/// Bytes of an order.
pub const LARGEST: usize = 8 * 1024;
/// Of one file.
const LARGEST_FILE: u64 = 1 << 30;
/// What x86 kernels take.
const LONGEST_OPTIONS: usize = 2047;
const LONGEST_URL: usize = 256;
/// SHA-256, in hex.
const DIGEST: usize = 64;

/// One start of the ramdisk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RamdiskOrder {
    /// Linux.
    pub kernel: RemoteFile,
    /// Its initramfs.
    pub initrd: RemoteFile,
    /// Its command line, as network boot gives it to this server.
    pub options: String,
}

/// A file that the box serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteFile {
    /// `http://…`
    pub url: String,
    /// In hex, lower case.
    pub sha256: String,
    /// How long it is.
    pub bytes: u64,
}

impl RamdiskOrder {
    /// # Errors
    /// It is none, or something in it is longer or other than it can be.
    pub fn parse(text: &[u8]) -> Result<Self, ValueError> {
        if text.len() > LARGEST {
            return Err(wrong("it is longer than any"));
        }
        let order: Self =
            serde_json::from_slice(text).map_err(|error| wrong(&error.to_string()))?;
        order.kernel.check()?;
        order.initrd.check()?;
        let printed = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if order.options.len() > LONGEST_OPTIONS || !order.options.bytes().all(printed) {
            return Err(wrong("no kernel takes its command line"));
        }
        Ok(order)
    }

    /// Of both files.
    pub fn bytes(&self) -> u64 {
        self.kernel.bytes.saturating_add(self.initrd.bytes)
    }
}

impl RemoteFile {
    fn check(&self) -> Result<(), ValueError> {
        let printed = self.url.bytes().all(|byte| byte.is_ascii_graphic());
        if !self.url.starts_with("http://") || self.url.len() > LONGEST_URL || !printed {
            return Err(wrong("a file of it has no http URL"));
        }
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if self.sha256.len() != DIGEST || !self.sha256.bytes().all(hex) {
            return Err(wrong("a file of it has no SHA-256"));
        }
        if !(1..=LARGEST_FILE).contains(&self.bytes) {
            return Err(wrong("a file of it is empty or larger than any"));
        }
        Ok(())
    }
}

fn wrong(why: &str) -> ValueError {
    ValueError(format!("this is no order to start a ramdisk: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn whole() -> Value {
        json!({
            "kernel": {"url": "http://172.22.0.1/boot/vmlinuz", "sha256": "ab".repeat(32), "bytes": 10},
            "initrd": {"url": "http://172.22.0.1/boot/initrd", "sha256": "cd".repeat(32), "bytes": 20},
            "options": "firstlight.box=http://172.22.0.1 quiet",
        })
    }

    #[test]
    fn an_order_is_whole_or_an_error() {
        let parsed = RamdiskOrder::parse(whole().to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&parsed).unwrap(), whole());
        assert_eq!(parsed.bytes(), 30);
        let cases: [(&str, Value, &str); 9] = [
            ("/kernel/url", json!("https://172.22.0.1/"), "no http URL"),
            ("/kernel/url", json!("http://a b"), "no http URL"),
            ("/initrd/url", json!("file:///etc/shadow"), "no http URL"),
            ("/initrd/sha256", json!("AB".repeat(32)), "no SHA-256"),
            ("/initrd/sha256", json!("ab"), "no SHA-256"),
            ("/kernel/bytes", json!(0), "is empty"),
            ("/kernel/bytes", json!(1_u64 << 31), "larger than any"),
            ("/options", json!("a\nb"), "command line"),
            ("/options", json!("a".repeat(2048)), "command line"),
        ];
        for (place, value, sentence) in cases {
            let mut order = whole();
            *order.pointer_mut(place).unwrap() = value;
            let ValueError(said) = RamdiskOrder::parse(order.to_string().as_bytes()).unwrap_err();
            assert!(said.contains(sentence), "{place}: {said}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_an_order_or_refused(body: Vec<u8>, url in "(http://)?.{0,20}", options in ".{0,20}", bytes: u64) {
            let _ = RamdiskOrder::parse(&body);
            let mut order = whole();
            order["kernel"]["url"] = json!(url);
            order["options"] = json!(options);
            order["initrd"]["bytes"] = json!(bytes);
            if let Ok(order) = RamdiskOrder::parse(order.to_string().as_bytes()) {
                prop_assert!(order.kernel.url.starts_with("http://") && !order.options.contains(char::is_control));
                prop_assert!(order.bytes() <= 2 << 30);
            }
        }
    }
}
