//! The commands, byte by byte (IPMI 2.0, revision 1.1: chapters 20 to 23). Pure.
//!
//! To add one: a constructor of [`Command`], and a function that reads the data of its answer.

use std::net::Ipv4Addr;

use crate::Refusal;

const APP: u8 = 0x06;
const TRANSPORT: u8 = 0x0c;
/// Bytes of a user's name.
pub const NAME: usize = 16;
/// Bytes of a password as every BMC since IPMI 1.5 takes it. IPMI 2.0 has room for 20.
pub const PASSWORD: usize = 16;
/// Privilege levels (table 6-1).
const ADMINISTRATOR: u8 = 4;
const NO_ACCESS: u8 = 0x0f;
/// The medium of table 6-3.
const LAN_802_3: u8 = 4;

/// A request. `Debug` shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// Of a request: an even number.
    pub network_function: u8,
    /// Within the network function.
    pub number: u8,
    /// What follows.
    pub data: Vec<u8>,
    /// As a noun, for people.
    pub what: &'static str,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Command({})", self.what)
    }
}

/// What a user ID may be asked to do with its password (22.30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Disable = 0,
    Enable = 1,
    Set = 2,
    Test = 3,
}

/// Whether remote consoles reach the BMC over a channel (22.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lan {
    /// Its number, 1 to 11.
    pub channel: u8,
    /// Bits of the access mode's byte, as the BMC has them now.
    pub mode: u8,
    /// The highest privilege that it gives anybody.
    pub limit: u8,
}

impl Lan {
    /// Nobody gets in, or only before the system starts.
    pub const fn is_closed(self) -> bool {
        self.mode & 7 < 2
    }

    /// An account may do as an administrator here.
    pub const fn is_open(self) -> bool {
        !self.is_closed() && self.limit & 0x0f >= ADMINISTRATOR
    }

    /// The same, open at any time.
    #[must_use]
    pub const fn opened(self) -> Self {
        let mode = if self.is_closed() {
            self.mode & !7 | 2
        } else {
            self.mode
        };
        Self {
            mode,
            limit: self.limit & !0x0f | ADMINISTRATOR,
            ..self
        }
    }
}

/// How many users a channel has room for, and what one of them may (22.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The highest user ID.
    pub most: u8,
    /// Users with IDs up to this have names that cannot be changed.
    pub fixed: u8,
    /// It may log in, as far as the BMC tells.
    pub enabled: bool,
}

impl Command {
    fn app(number: u8, what: &'static str, data: impl Into<Vec<u8>>) -> Self {
        Self {
            network_function: APP,
            number,
            data: data.into(),
            what,
        }
    }

    /// Of one channel.
    pub fn channel_info(channel: u8) -> Self {
        Self::app(0x42, "the description of a channel", [channel])
    }

    /// As it is in force now.
    pub fn channel_access(channel: u8) -> Self {
        Self::app(0x41, "the access mode of a channel", [channel, 0x80])
    }

    /// `lan`, in force now and after a restart of the BMC.
    pub fn open_channel(lan: Lan) -> [Self; 2] {
        // Bits 7:6: 01 what is kept, 10 what is in force.
        [0x40, 0x80].map(|kind| {
            let mode = kind | lan.mode & 0x3f;
            let limit = kind | lan.limit & 0x0f;
            Self::app(
                0x40,
                "the opening of a channel to the network",
                [lan.channel, mode, limit],
            )
        })
    }

    /// Parameter 3 of the channel's LAN.
    pub fn address(channel: u8) -> Self {
        Self {
            network_function: TRANSPORT,
            number: 0x02,
            data: vec![channel, 3, 0, 0],
            what: "its address",
        }
    }

    /// Of a user on a channel.
    pub fn user_access(channel: u8, user: u8) -> Self {
        Self::app(0x44, "the rights of a user", [channel, user])
    }

    /// An administrator by IPMI messages.
    pub fn grant(channel: u8, user: u8) -> Self {
        // Change the bits; link authentication and messages.
        let bits = 0x80 | 0x20 | 0x10 | channel;
        Self::app(0x43, "rights for a user", [bits, user, ADMINISTRATOR, 0])
    }

    /// Nothing at all.
    pub fn withdraw(channel: u8, user: u8) -> Self {
        let data = [0x80 | channel, user, NO_ACCESS, 0];
        Self::app(0x43, "the end of a user's rights", data)
    }

    /// Of a user.
    pub fn user_name(user: u8) -> Self {
        Self::app(0x46, "the name of a user", [user])
    }

    /// At most [`NAME`] bytes of it; none frees the place.
    pub fn set_user_name(user: u8, name: &str) -> Self {
        let mut data = vec![user];
        data.extend(name.bytes().chain(std::iter::repeat(0)).take(NAME));
        Self::app(0x45, "a name for a user", data)
    }

    fn password(what: &'static str, user: u8, operation: Operation, password: &str) -> Self {
        let mut data = vec![user, operation as u8];
        if matches!(operation, Operation::Set | Operation::Test) {
            let padded = password.bytes().chain(std::iter::repeat(0));
            data.extend(padded.take(PASSWORD));
        }
        Self::app(0x47, what, data)
    }

    /// At most [`PASSWORD`] bytes of it.
    pub fn set_password(user: u8, password: &str) -> Self {
        Self::password("a password", user, Operation::Set, password)
    }

    /// Whether it is this one.
    pub fn test_password(user: u8, password: &str) -> Self {
        Self::password("the test of a password", user, Operation::Test, password)
    }

    /// The user may log in.
    pub fn enable(user: u8) -> Self {
        Self::password("the beginning of an account", user, Operation::Enable, "")
    }

    /// The user may not log in.
    pub fn disable(user: u8) -> Self {
        Self::password("the end of an account", user, Operation::Disable, "")
    }

    fn nonsense(&self) -> Refusal {
        Refusal::Nonsense(self.what)
    }

    /// What follows the completion code of `answer`, if that is good.
    pub fn data<'a>(&self, answer: &'a [u8]) -> Result<&'a [u8], Refusal> {
        match answer {
            [] => Err(self.nonsense()),
            [0, data @ ..] => Ok(data),
            [code, ..] => Err(Refusal::Code {
                what: self.what,
                code: *code,
            }),
        }
    }

    /// The first bytes of `data`.
    fn first<const N: usize>(&self, data: &[u8]) -> Result<[u8; N], Refusal> {
        let first = data.first_chunk::<N>();
        first.copied().ok_or_else(|| self.nonsense())
    }

    /// The data of [`Command::channel_info`]: is it a LAN?
    pub fn is_lan(&self, data: &[u8]) -> Result<bool, Refusal> {
        let [_, medium] = self.first(data)?;
        Ok(medium & 0x7f == LAN_802_3)
    }

    /// The data of [`Command::channel_access`] of `channel`.
    pub fn lan(&self, channel: u8, data: &[u8]) -> Result<Lan, Refusal> {
        let [mode, limit] = self.first(data)?;
        Ok(Lan {
            channel,
            mode,
            limit,
        })
    }

    /// The data of [`Command::address`]; `None` for a BMC that has none.
    pub fn ipv4(&self, data: &[u8]) -> Result<Option<Ipv4Addr>, Refusal> {
        let [_revision, a, b, c, d] = self.first(data)?;
        let address = Ipv4Addr::new(a, b, c, d);
        let is_set = !address.is_unspecified()
            && !address.is_broadcast()
            && !address.is_multicast()
            && !address.is_loopback();
        Ok(is_set.then_some(address))
    }

    /// The data of [`Command::user_access`].
    pub fn access(&self, data: &[u8]) -> Result<Access, Refusal> {
        let [most, enabled, fixed, _] = self.first(data)?;
        Ok(Access {
            most: most & 0x3f,
            fixed: fixed & 0x3f,
            enabled: enabled >> 6 == 1,
        })
    }

    /// The data of [`Command::user_name`]: up to its first zero byte; what is no ASCII is somebody's name all the same.
    pub fn name(&self, data: &[u8]) -> Result<String, Refusal> {
        let name: [u8; NAME] = self.first(data)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        assert_eq!(Command::grant(1, 3).data, [0xb1, 3, 4, 0]);
        assert_eq!(Command::withdraw(1, 3).data, [0x81, 3, 0x0f, 0]);
        assert_eq!(
            Command::set_user_name(3, "firstlight").data,
            *b"\x03firstlight\0\0\0\0\0\0"
        );
        assert_eq!(Command::enable(3).data, [3, 1]);
        let set = Command::set_password(3, "0123456789abcdefgh");
        assert_eq!(set.data, *b"\x03\x020123456789abcdef");
        assert_eq!(format!("{set:?}"), "Command(a password)");
        let closed = Lan {
            channel: 1,
            mode: 0x28,
            limit: 3,
        };
        assert!(closed.is_closed() && !closed.is_open() && closed.opened().is_open());
        let data = Command::open_channel(closed.opened()).map(|it| it.data);
        assert_eq!(data, [[1, 0x6a, 0x44], [1, 0xaa, 0x84]]);
    }

    #[test]
    fn an_address_that_is_none_is_none() {
        let of = |bytes: [u8; 4]| {
            let data = [&[0x11], &bytes[..]].concat();
            Command::address(1).ipv4(&data).unwrap()
        };
        assert_eq!(of([10, 0, 0, 9]), Some(Ipv4Addr::new(10, 0, 0, 9)));
        for none in [[0; 4], [255; 4], [127, 0, 0, 1], [224, 0, 0, 1]] {
            assert_eq!(of(none), None);
        }
    }

    proptest! {
        #[test]
        fn whatever_a_bmc_answers_is_read_or_refused(answer: Vec<u8>) {
            let command = Command::user_name(2);
            if let Ok(data) = command.data(&answer) {
                prop_assert_eq!(answer[0], 0);
                let name = command.name(data);
                prop_assert_eq!(name.is_ok(), data.len() >= NAME);
                let access = Command::user_access(1, 2).access(data);
                prop_assert!(access.is_err() || access.unwrap().most < 64);
                let _ = Command::channel_info(1).is_lan(data);
                let _ = Command::channel_access(1).lan(1, data);
                let address = Command::address(1).ipv4(data);
                prop_assert_eq!(address.is_ok(), data.len() >= 5);
            }
        }
    }
}
