//! A BMC in memory, as far as the commands go that are asked of it: for tests.

#![allow(clippy::unwrap_used, missing_docs, reason = "a double of tests")]

use std::io;

use crate::account::USER;
use crate::{Channel, Command, Lan};

/// One of its users.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    pub name: Vec<u8>,
    pub password: Vec<u8>,
    pub enabled: bool,
    pub privilege: u8,
}

/// What is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bmc {
    pub users: Vec<User>,
    pub lan: Lan,
    pub address: [u8; 4],
    /// Another channel to a network, on which it has no address.
    pub idle_lan: u8,
    pub fixed: u8,
    pub busy: u32,
    pub cut: usize,
    pub takes_no_empty_name: bool,
    pub forgets: bool,
}

impl Bmc {
    /// With an administrator of somebody's.
    #[must_use]
    pub fn of_somebody() -> Self {
        let mut users = vec![User::default(); 10];
        users[1] = User {
            name: b"ADMIN".to_vec(),
            password: b"secret".to_vec(),
            enabled: true,
            privilege: 4,
        };
        Self {
            users,
            lan: Lan {
                channel: 3,
                mode: 0x22,
                limit: 4,
            },
            address: [10, 0, 0, 9],
            idle_lan: 0,
            fixed: 0,
            busy: 0,
            cut: usize::MAX,
            takes_no_empty_name: false,
            forgets: false,
        }
    }

    /// Users of this name.
    pub fn called(&self, name: &str) -> Vec<&User> {
        let mut users = self.users.iter();
        users
            .by_ref()
            .filter(|user| user.name == name.as_bytes())
            .collect()
    }

    /// May the box's account, with this password?
    pub fn logs_in(&self, password: &str) -> bool {
        let all = self.called(USER);
        let may = all.iter().filter(|user| {
            user.enabled && user.privilege == 4 && user.password == password.as_bytes()
        });
        may.count() == 1 && all.len() == 1 && self.lan.is_open()
    }

    fn password(&mut self, data: &[u8]) -> Vec<u8> {
        let forgets = self.forgets;
        let Some(user) = self.users.get_mut(usize::from(data[0]) - 1) else {
            return vec![0xcc];
        };
        let said = data[2..]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        match data[1] {
            0 => user.enabled = false,
            1 => user.enabled = true,
            2 if forgets => {}
            2 => user.password = said.to_vec(),
            _ if user.password != said => return vec![0x80],
            _ => {}
        }
        vec![0]
    }
}

impl Channel for Bmc {
    fn ask(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        self.cut = self.cut.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
        if self.busy > 0 {
            self.busy -= 1;
            return Ok(vec![0xc0]);
        }
        let data = command.data.as_slice();
        let user = |at: usize| self.users.get(usize::from(data[at]) - 1).cloned();
        Ok(match (command.network_function, command.number) {
            (0x06, 0x42) if data[0] == 1 => vec![0, 1, 5, 1],
            (0x06, 0x42) if [self.lan.channel, self.idle_lan].contains(&data[0]) => {
                vec![0, data[0], 4, 1]
            }
            (0x06, 0x42) => vec![0xcc],
            (0x06, 0x41) => vec![0, self.lan.mode, self.lan.limit],
            (0x06, 0x40) => {
                (self.lan.mode, self.lan.limit) = (data[1] & 0x3f, data[2] & 0x0f);
                vec![0]
            }
            (0x0c, 0x02) if data[0] == self.idle_lan => vec![0, 0x11, 0, 0, 0, 0],
            (0x0c, 0x02) => [&[0, 0x11], &self.address[..]].concat(),
            (0x06, 0x44) => {
                let user = user(1).unwrap();
                let most = u8::try_from(self.users.len()).unwrap();
                let enabled = if user.enabled { 0x41 } else { 0x81 };
                vec![0, most, enabled, self.fixed, user.privilege]
            }
            (0x06, 0x43) => {
                self.users[usize::from(data[1]) - 1].privilege = data[2];
                vec![0]
            }
            (0x06, 0x46) => {
                let mut name = user(0).unwrap().name;
                name.resize(16, 0);
                [vec![0], name].concat()
            }
            (0x06, 0x45) => {
                let name = data[1..].split(|byte| *byte == 0).next().unwrap();
                if name.is_empty() && self.takes_no_empty_name {
                    return Ok(vec![0xcc]);
                }
                self.users[usize::from(data[0]) - 1].name = name.to_vec();
                vec![0]
            }
            (0x06, 0x47) => self.password(data),
            _ => vec![0xc1],
        })
    }
}
