//! What the client's firmware is: DHCP option 93 (RFC 4578 section 2.1, IANA "Processor Architecture Types").

use std::fmt;

/// Client system architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientArch {
    /// 0
    Bios,
    /// 7, and 9: some firmware of x86-64 machines says "EFI byte code", as RFC 4578 was printed with the two swapped.
    UefiX64,
    /// 16
    UefiX64Http,
    /// 6
    UefiIa32,
    /// 15
    UefiIa32Http,
    /// 10
    Arm32,
    /// 18
    Arm32Http,
    /// 11
    Arm64,
    /// 19
    Arm64Http,
    /// Any other number, which IANA may know and the stick has nothing for.
    Other(u16),
}

impl ClientArch {
    /// By the number in option 93, host byte order.
    pub fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Bios,
            6 => Self::UefiIa32,
            7 | 9 => Self::UefiX64,
            10 => Self::Arm32,
            11 => Self::Arm64,
            15 => Self::UefiIa32Http,
            16 => Self::UefiX64Http,
            18 => Self::Arm32Http,
            19 => Self::Arm64Http,
            other => Self::Other(other),
        }
    }

    /// The first supported of the types in an option 93, or else the first; `None` if it holds no whole number.
    pub(crate) fn from_option(data: &[u8]) -> Option<Self> {
        let mut types = data
            .chunks_exact(2)
            .map(|pair| Self::from_code(u16::from_be_bytes([pair[0], pair[1]])));
        let first = types.next()?;
        Some(
            std::iter::once(first)
                .chain(types)
                .find(|arch| arch.is_supported())
                .unwrap_or(first),
        )
    }

    /// Whether there is an operating system for it on the stick.
    pub fn is_supported(self) -> bool {
        matches!(self, Self::Bios | Self::UefiX64 | Self::UefiX64Http)
    }
}

impl fmt::Display for ClientArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bios => f.write_str("BIOS"),
            Self::UefiX64 => f.write_str("UEFI x86-64"),
            Self::UefiX64Http => f.write_str("UEFI x86-64 HTTP boot"),
            Self::UefiIa32 => f.write_str("32-bit UEFI"),
            Self::UefiIa32Http => f.write_str("32-bit UEFI HTTP boot"),
            Self::Arm32 => f.write_str("UEFI arm"),
            Self::Arm32Http => f.write_str("UEFI arm HTTP boot"),
            Self::Arm64 => f.write_str("UEFI arm64"),
            Self::Arm64Http => f.write_str("UEFI arm64 HTTP boot"),
            Self::Other(code) => write!(f, "architecture {code}"),
        }
    }
}
