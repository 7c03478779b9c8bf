//! The box's account in a BMC: looked for, made, and taken away. Each may be done twice, and broken off anywhere.
//!
//! A place that somebody has is never touched: ours is the one with our name, or one that has none and that nobody uses.

use std::net::Ipv4Addr;

use crate::command::{Access, Command, Lan};
use crate::{Channel, Refusal};

/// Its name in every BMC.
pub const USER: &str = "firstlight";

/// Channels that may be a LAN (table 6-1).
const CHANNELS: std::ops::RangeInclusive<u8> = 1..=11;
/// The first is for who logs in without a name.
const FIRST_USER: u8 = 2;
/// Completion codes that pass: node busy, timeout, and a firmware that is being brought up to date.
const PASSING: [u8; 4] = [0xc0, 0xc3, 0xd1, 0xd2];
/// For a command whose answer passes.
const TRIES: u32 = 4;

/// What a BMC says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its way to the network.
    pub lan: Lan,
    /// On that network; `None` if it has none there.
    pub address: Option<Ipv4Addr>,
    /// The user ID of our account.
    pub account: Option<u8>,
}

/// A password: at most 16 characters, as every BMC takes it. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    const LENGTH: usize = 16;

    /// 94 random bits or more: 16 of 64 characters, such as BMCs with a rule for passwords take.
    pub fn random() -> Result<Self, Refusal> {
        loop {
            let mut bytes = [0; Self::LENGTH];
            getrandom::fill(&mut bytes).map_err(|_| Refusal::NoRandom)?;
            let letters = bytes.map(|byte| Self::LETTERS[usize::from(byte & 63)]);
            let has = |kind: fn(&u8) -> bool| letters.iter().any(kind);
            // Most are of all kinds; nothing is gained by a guess at which are not.
            if has(u8::is_ascii_uppercase)
                && has(u8::is_ascii_lowercase)
                && has(u8::is_ascii_digit)
                && has(u8::is_ascii_punctuation)
            {
                return Ok(Self(letters.map(char::from).iter().collect()));
            }
        }
    }

    /// For who has to say it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

/// Changes nothing.
pub fn look(bmc: &mut dyn Channel) -> Result<Found, Refusal> {
    let (lan, address) = find_lan(bmc)?;
    let account = users(bmc, lan.channel)?.account;
    Ok(Found {
        lan,
        address,
        account,
    })
}

/// Makes it, or gives it this password if it is there: an administrator on the channel to the network, which is opened if it was closed.
pub fn make(bmc: &mut dyn Channel, password: &Password) -> Result<(), Refusal> {
    let (lan, _) = find_lan(bmc)?;
    let users = users(bmc, lan.channel)?;
    let user = users.account.or(users.free);
    let user = user.ok_or(Refusal::Full(users.most))?;
    // The name first: broken off here, the place is found again. It may log in last.
    if users.account.is_none() {
        order(bmc, &Command::set_user_name(user, USER))?;
    }
    order(bmc, &Command::set_password(user, password.reveal()))?;
    order(bmc, &Command::grant(lan.channel, user))?;
    order(bmc, &Command::enable(user))?;
    match order(bmc, &Command::test_password(user, password.reveal())) {
        // 22.30: 80h no, 81h no by its length.
        Err(Refusal::Code {
            code: 0x80 | 0x81, ..
        }) => return Err(Refusal::Forgetful),
        // Some BMCs have no test.
        Err(Refusal::Code { .. }) | Ok(()) => {}
        Err(other) => return Err(other),
    }
    if !lan.is_open() {
        for command in Command::open_channel(lan.opened()) {
            order(bmc, &command)?;
        }
    }
    Ok(())
}

/// The same, with a password that nobody has had before.
pub fn make_anew(bmc: &mut dyn Channel) -> Result<Password, Refusal> {
    let password = Password::random()?;
    make(bmc, &password)?;
    Ok(password)
}

/// Takes it away: nobody knows its password any more, it may not log in, and its place is free. True if there was one.
pub fn remove(bmc: &mut dyn Channel) -> Result<bool, Refusal> {
    let (lan, _) = find_lan(bmc)?;
    let Some(user) = users(bmc, lan.channel)?.account else {
        return Ok(false);
    };
    // What comes first is the least that has to be: a BMC that takes no more of it has no account that anybody could use.
    order(bmc, &Command::disable(user))?;
    let nobodys = Password::random()?;
    order(bmc, &Command::set_password(user, nobodys.reveal()))?;
    order(bmc, &Command::withdraw(lan.channel, user))?;
    // There are BMCs that want every user to have a name.
    match order(bmc, &Command::set_user_name(user, "")) {
        Err(Refusal::Code { .. }) | Ok(()) => Ok(true),
        Err(other) => Err(other),
    }
}

fn order(bmc: &mut dyn Channel, command: &Command) -> Result<(), Refusal> {
    ask(bmc, command).map(drop)
}

/// The data of the answer.
fn ask(bmc: &mut dyn Channel, command: &Command) -> Result<Vec<u8>, Refusal> {
    let mut tries = 1;
    loop {
        let answer = bmc.ask(command)?;
        match command.data(&answer) {
            Err(Refusal::Code { code, .. }) if PASSING.contains(&code) && tries < TRIES => {
                tries += 1;
            }
            data => return Ok(data?.to_vec()),
        }
    }
}

/// The first channel to a network on which the BMC has an address; where it has none on any, the first.
fn find_lan(bmc: &mut dyn Channel) -> Result<(Lan, Option<Ipv4Addr>), Refusal> {
    let mut without = None;
    for channel in CHANNELS {
        if !is_lan(bmc, channel)? {
            continue;
        }
        let command = Command::address(channel);
        let address = command.ipv4(&ask(bmc, &command)?)?;
        if address.is_none() && without.is_some() {
            continue;
        }
        let command = Command::channel_access(channel);
        let lan = command.lan(channel, &ask(bmc, &command)?)?;
        if address.is_some() {
            return Ok((lan, address));
        }
        without = Some(lan);
    }
    without.map(|lan| (lan, None)).ok_or(Refusal::NoLan)
}

fn is_lan(bmc: &mut dyn Channel, channel: u8) -> Result<bool, Refusal> {
    let command = Command::channel_info(channel);
    match ask(bmc, &command) {
        Ok(data) => command.is_lan(&data),
        // There is no such channel.
        Err(Refusal::Code { code, .. }) if !PASSING.contains(&code) => Ok(false),
        Err(other) => Err(other),
    }
}

/// What the places of a channel's users show.
struct Users {
    most: u8,
    account: Option<u8>,
    free: Option<u8>,
}

fn users(bmc: &mut dyn Channel, channel: u8) -> Result<Users, Refusal> {
    let Access { most, fixed, .. } = access(bmc, channel, 1)?;
    let mut users = Users {
        most,
        account: None,
        free: None,
    };
    for user in FIRST_USER..=most {
        let command = Command::user_name(user);
        let name = match ask(bmc, &command) {
            Ok(data) => command.name(&data)?,
            // Some say this of a user who has no name, others of one who is not to be seen: somebody's, for all that is known.
            Err(Refusal::Code { code, .. }) if !PASSING.contains(&code) => continue,
            Err(other) => return Err(other),
        };
        if name == USER {
            users.account = Some(user);
            break;
        }
        if name.is_empty()
            && users.free.is_none()
            && user > fixed
            && !access(bmc, channel, user)?.enabled
        {
            users.free = Some(user);
        }
    }
    Ok(users)
}

fn access(bmc: &mut dyn Channel, channel: u8, user: u8) -> Result<Access, Refusal> {
    let command = Command::user_access(channel, user);
    command.access(&ask(bmc, &command)?)
}

#[cfg(test)]
mod tests;
