//! What a host boots, decided by the agent, and the pieces that all boot scripts share.
//!
//! Everything that gets into a script is a type that cannot hold a space too much, a quote or a `$`: scripts are made
//! from what machines on the network say.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{BoxHttp, MacAddr};

/// What a host does at its next network boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootTarget {
    /// The deploy ramdisk: unknown hosts, and those that have something to do for Ironic.
    Ramdisk,
    /// Its own operating system.
    Disk,
    /// Not decided yet, for example while the box itself starts: ask again in a few seconds, showing why.
    Wait {
        /// A sentence for the screen of the machine; what is not plain text in it is shown as `?`.
        reason: String,
    },
}

/// SHA-256 of the DER form of the box's CA certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaFingerprint([u8; 32]);

impl CaFingerprint {
    /// `digest`: of the DER form, not of the PEM text.
    pub fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl fmt::Display for CaFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a text is no kernel argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one kernel argument of letters, digits and _-.,:=/@+% (at most 200)")]
pub struct KernelArgError(String);

/// One word of a kernel command line that means the same to iPXE, GRUB and the kernel: no spaces, quotes, `$`, `;`, braces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KernelArg(String);

impl KernelArg {
    /// As it stands on the command line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KernelArg {
    type Err = KernelArgError;

    fn from_str(text: &str) -> Result<Self, KernelArgError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.,:=/@+%".contains(&b);
        if (1..=200).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(KernelArgError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for KernelArg {
    type Error = KernelArgError;

    fn try_from(text: String) -> Result<Self, KernelArgError> {
        text.parse()
    }
}

impl From<KernelArg> for String {
    fn from(arg: KernelArg) -> Self {
        arg.0
    }
}

/// What is the same for all hosts of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSite {
    /// Where the ramdisk finds the box.
    pub http: BoxHttp,
    /// Port of Ironic's API on the box.
    pub ironic_port: u16,
    /// What the ramdisk trusts Ironic by.
    pub ca: CaFingerprint,
    /// From `site.yaml`, behind ours, so that they win.
    pub extra_args: Vec<KernelArg>,
}

/// The ramdisk's kernel command line, see docs/reference.md.
///
/// `panic=` is there because neither GRUB nor iPXE can be trusted to stop when the initramfs is missing: the kernel panics
/// then, and the host should try again.
pub fn kernel_command_line(site: &BootSite, mac: MacAddr) -> String {
    let BootSite {
        http,
        ironic_port,
        ca,
        extra_args,
    } = site;
    let mut line = format!(
        "firstlight.box={http} ipa-api-url=https://{}:{ironic_port} firstlight.ca={ca} BOOTIF=01-{} \
         console=tty0 console=ttyS0,115200 quiet panic=30",
        http.address(),
        mac.dashed()
    );
    for arg in extra_args {
        line.push(' ');
        line.push_str(arg.as_str());
    }
    line
}

/// A sentence as both script languages print it unchanged.
pub(crate) fn plain_text(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() || " .,:/()-_".contains(c) => c,
            _ => '?',
        })
        .take(200)
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
