//! Options of a read request (RFC 2347), and what the server makes of them.

use std::time::Duration;

/// What the client asked for. Options that are unknown, or whose values are outside their RFC's bounds, are not there: a
/// server answers them by not acknowledging them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedOptions {
    /// RFC 2348: 8 to 65464 bytes.
    pub block_size: Option<u16>,
    /// RFC 2349: the client wants to know the size.
    pub transfer_size: bool,
    /// RFC 2349: 1 to 255 seconds until a retransmission.
    pub timeout: Option<u8>,
    /// RFC 7440: 1 to 65535 blocks.
    pub window: Option<u16>,
}

impl RequestedOptions {
    /// Takes one option; names do not distinguish case (RFC 2347). The first of two equal ones counts.
    pub(crate) fn take(&mut self, name: &[u8], value: &[u8]) {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = || std::str::from_utf8(value).ok()?.parse::<u32>().ok();
        let within = |low: u32, high: u32| number().filter(|n| digits && (low..=high).contains(n));
        if name.eq_ignore_ascii_case(b"blksize") {
            let size = within(8, 65464).and_then(|n| u16::try_from(n).ok());
            self.block_size = self.block_size.or(size);
        } else if name.eq_ignore_ascii_case(b"tsize") {
            self.transfer_size |= digits;
        } else if name.eq_ignore_ascii_case(b"timeout") {
            let seconds = within(1, 255).and_then(|n| u8::try_from(n).ok());
            self.timeout = self.timeout.or(seconds);
        } else if name.eq_ignore_ascii_case(b"windowsize") {
            let window = within(1, 65535).and_then(|n| u16::try_from(n).ok());
            self.window = self.window.or(window);
        }
    }
}

/// The most that the server agrees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiationLimits {
    /// 1468 fills an Ethernet frame; more would be sent in IP fragments, which not all firmware puts together.
    pub block_size: u16,
    /// Blocks before an acknowledgement (RFC 7440).
    pub window: u16,
    /// Seconds until a retransmission. Six times that is how long a client that is gone keeps its place; one that asks for
    /// more gets no such option acknowledged (RFC 2349), and the server's own times hold.
    pub timeout: u8,
}

impl Default for NegotiationLimits {
    fn default() -> Self {
        Self {
            block_size: 1468,
            window: 64,
            timeout: 30,
        }
    }
}

/// How a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Bytes of a full block (RFC 2348).
    pub block_size: u16,
    /// Blocks before an acknowledgement (RFC 7440).
    pub window: u16,
    /// The first retransmission comes after this.
    pub timeout: Duration,
}

impl Negotiated {
    /// Without options: RFC 1350.
    const DEFAULT: Self = Self {
        block_size: 512,
        window: 1,
        timeout: Duration::from_secs(1),
    };

    /// The settings, and the payload of the OACK that tells the client; none if it asked for nothing that we know.
    pub fn new(
        asked: &RequestedOptions,
        size: u64,
        limits: &NegotiationLimits,
    ) -> (Self, Option<Vec<u8>>) {
        let mut settings = Self::DEFAULT;
        let mut oack = vec![0, 6];
        let mut acknowledge = |name: &str, value: u64| {
            oack.extend_from_slice(name.as_bytes());
            oack.push(0);
            oack.extend_from_slice(value.to_string().as_bytes());
            oack.push(0);
        };
        if let Some(asked) = asked.block_size {
            settings.block_size = asked.min(limits.block_size);
            acknowledge("blksize", settings.block_size.into());
        }
        // Of an empty file the size stays unsaid: curl takes a 0 for a broken answer.
        if asked.transfer_size && size > 0 {
            acknowledge("tsize", size);
        }
        if let Some(seconds) = asked.timeout.filter(|asked| *asked <= limits.timeout) {
            settings.timeout = Duration::from_secs(seconds.into());
            acknowledge("timeout", seconds.into());
        }
        if let Some(asked) = asked.window {
            settings.window = asked.min(limits.window);
            acknowledge("windowsize", settings.window.into());
        }
        let any = oack.len() > 2;
        (settings, any.then_some(oack))
    }
}
