//! The box's account in this machine's BMC: a thread of its own tells the box what the BMC says of itself, and does to it what the box
//! orders. Nobody waits for it: a BMC may take its time, or never answer.
//!
//! A password is made here, told to the box by TLS, and kept nowhere. Must not: speak to anybody who has not the box's certificate.

use std::io;
use std::thread;
use std::time::Duration;

use firstlight_api::account::{self, Bmc, Order, Outcome, PATH, Password, Post, Reply};
use firstlight_api::report::Fresh;
use firstlight_api::signed;
use firstlight_client::chain;
use firstlight_client::http::{Client, Request};
use firstlight_client::key::Key;
use firstlight_ipmi::{Channel, Refusal, account as ipmi};

use super::facts::Facts;
use super::machine::Machine;

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between two looks for a BMC whose driver is being loaded.
    pub pause: Duration,
    /// How often is looked.
    pub looks: u32,
    /// One second of the box's.
    pub second: Duration,
    /// After a box that could not be asked, and between two orders.
    pub again: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            pause: Duration::from_secs(5),
            looks: 12,
            second: Duration::from_secs(1),
            again: Duration::from_secs(5),
        }
    }
}

/// What asks the box; an error is a sentence.
pub type Ask<'a> = dyn FnMut(Bmc, Outcome) -> Result<Order, String> + 'a;

/// `ask`: none where there is no box that shows who it is. Comes back where there is nothing to do, or no BMC.
pub fn keep(machine: &dyn Machine, facts: &Facts, ask: Option<&mut Ask<'_>>, patience: Patience) {
    let Some(mut bmc) = open(machine, patience) else {
        return;
    };
    let bmc = bmc.as_mut();
    let (mut found, mut failed) = look(bmc, facts);
    let Some(ask) = ask else {
        return;
    };
    let mut said = Outcome::Ready;
    loop {
        let tells = match (&said, failed.take()) {
            (Outcome::Ready, Some(reason)) => Outcome::Failed { reason },
            _ => said.clone(),
        };
        let (next, pause) = match ask(found, tells) {
            Ok(Order::Rest { seconds }) => (Outcome::Ready, patience.second * seconds.min(300)),
            Ok(Order::Repeat { seconds }) => (said, patience.second * seconds.min(300)),
            Ok(Order::Make) => (make(bmc), Duration::ZERO),
            Ok(Order::Remove) => (remove(bmc), Duration::ZERO),
            Ok(Order::Again) => (said, patience.again),
            Err(reason) => {
                tracing::debug!(reason, "the box does not hear of this machine's BMC");
                (said, patience.again)
            }
        };
        said = next;
        thread::sleep(pause.max(patience.again));
        (found, failed) = look(bmc, facts);
    }
}

/// The kernel may still be loading its driver.
fn open(machine: &dyn Machine, patience: Patience) -> Option<Box<dyn Channel>> {
    for _ in 0..patience.looks {
        match machine.bmc() {
            Ok(bmc) => return Some(bmc),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "this machine's BMC cannot be spoken to");
                return None;
            }
        }
        thread::sleep(patience.pause);
    }
    None
}

/// What the BMC says of itself, and why it does not.
fn look(bmc: &mut dyn Channel, facts: &Facts) -> (Bmc, Option<String>) {
    match ipmi::look(bmc) {
        Ok(found) => {
            facts.has_bmc(found.address);
            let found = Bmc {
                address: found.address,
                account: found.account.is_some(),
            };
            (found, None)
        }
        Err(error) => (Bmc::default(), Some(error.to_string())),
    }
}

fn make(bmc: &mut dyn Channel) -> Outcome {
    let made = ipmi::make_anew(bmc);
    let said = |password: ipmi::Password| {
        let password = Password::try_from(password.reveal().to_owned());
        Outcome::Made {
            password: password.expect("16 letters, digits and signs are a password"),
        }
    };
    told(made, "The box has an account in this machine's BMC.").map_or_else(|failed| failed, said)
}

fn remove(bmc: &mut dyn Channel) -> Outcome {
    let removed = ipmi::remove(bmc);
    told(removed, "The box's account in this machine's BMC is gone.")
        .map_or_else(|failed| failed, |_| Outcome::Removed)
}

fn told<T>(result: Result<T, Refusal>, done: &str) -> Result<T, Outcome> {
    match result {
        Ok(it) => {
            tracing::info!("{done}");
            Ok(it)
        }
        Err(error) => {
            let reason = error.to_string();
            tracing::warn!(reason, "the BMC does not do what the box wants of it");
            Err(Outcome::Failed { reason })
        }
    }
}

/// The box, by TLS.
pub struct BoxClient {
    /// That trusts the box's certificate and no other.
    pub client: Client,
    /// `https://BOX:8443`
    pub base: String,
    pub key: Key,
    pub boot_mac: String,
    pub boot_id: String,
    /// As the box said last.
    pub session: String,
    pub sequence: u64,
}

impl BoxClient {
    /// Signed, in the box's session; once more where that has changed.
    pub fn ask(&mut self, bmc: Bmc, said: &Outcome) -> Result<Order, String> {
        for _ in 0..2 {
            self.sequence += 1;
            let post = Post {
                boot_mac: self.boot_mac.clone(),
                boot_id: self.boot_id.clone(),
                bmc,
                outcome: said.clone(),
                fresh: Fresh {
                    session: self.session.clone(),
                    sequence: self.sequence,
                },
            };
            let reply = self.send(&post)?;
            self.session = reply.session;
            if reply.order != Order::Again {
                return Ok(reply.order);
            }
        }
        Err("the box is restarting".to_owned())
    }

    fn send(&self, post: &Post) -> Result<Reply, String> {
        let bytes = serde_json::to_vec(post).map_err(|e| e.to_string())?;
        let (public, signature) = self.key.sign(PATH, &bytes);
        let url = format!("{}{PATH}", self.base);
        let request = Request::post_json(&url, &bytes)
            .header(signed::KEY_HEADER, &public)
            .header(signed::SIGNATURE_HEADER, &signature);
        let mut reply = self.client.send(&request).map_err(|e| chain(&e))?;
        let body = reply.read_body(account::LARGEST as u64);
        let body = body.map_err(|e| e.to_string())?;
        if reply.status() != 200 {
            return Err(format!("the box answers with status {}", reply.status()));
        }
        Reply::parse(&body).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests;
