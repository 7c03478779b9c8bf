#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use firstlight_efi::vars::EfiVars;
use firstlight_ipmi::{Command, fake};

use super::*;
use crate::deploy::device::BlockDevice;
use crate::inventory::{Link, sys::SysTree};
use crate::ipa::machine::Access;

/// `None`: it has no BMC.
struct Server(tempfile::TempDir, Option<Arc<Mutex<fake::Bmc>>>);

struct Way(Arc<Mutex<fake::Bmc>>);

impl Channel for Way {
    fn ask(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        self.0.lock().unwrap().ask(command)
    }
}

impl Machine for Server {
    fn sys(&self) -> SysTree {
        SysTree::new(self.0.path())
    }
    fn open(&self, _: &str, _: Access) -> io::Result<Box<dyn BlockDevice>> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn efi_vars(&self) -> Option<EfiVars> {
        None
    }
    fn bmc(&self) -> io::Result<Box<dyn Channel>> {
        let bmc = self.1.clone().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Way(bmc)))
    }
    fn log(&self) -> Vec<u8> {
        Vec::new()
    }
    fn sync(&self) {}
}

const SOON: Patience = Patience {
    pause: Duration::ZERO,
    looks: 3,
    second: Duration::ZERO,
    again: Duration::ZERO,
};

/// What the box heard while it gave these orders, one after the other; then it is gone for good.
fn told(server: Server, orders: &[Result<Order, ()>]) -> (Vec<(Bmc, Outcome)>, Option<String>) {
    let server = Arc::new(server);
    let link = Link {
        boot_mac: "52:54:00:00:00:01".into(),
        address: Ipv4Addr::LOCALHOST,
    };
    let facts = Facts::new(server.clone(), link);
    let heard = Mutex::new(Vec::new());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut ask = |bmc, said| {
            let mut heard = heard.lock().unwrap();
            heard.push((bmc, said));
            let order = orders.get(heard.len() - 1).copied();
            // The thread ends with the machine, and this test with the orders.
            if order.is_none() {
                std::panic::resume_unwind(Box::new(()));
            }
            order.unwrap().map_err(|()| "it is not there".to_owned())
        };
        keep(server.as_ref(), &facts, Some(&mut ask), SOON);
    }));
    drop(ended);
    let heard = heard
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    (heard, facts.inventory().bmc_address)
}

fn server() -> (Server, Arc<Mutex<fake::Bmc>>) {
    let bmc = Arc::new(Mutex::new(fake::Bmc::of_somebody()));
    (Server(tempfile::tempdir().unwrap(), Some(bmc.clone())), bmc)
}

#[test]
fn it_makes_what_the_box_orders_says_it_until_it_is_kept_and_takes_it_away() {
    let (server, bmc) = server();
    let orders = [
        Ok(Order::Rest { seconds: 5 }),
        Err(()),
        Ok(Order::Make),
        Ok(Order::Repeat { seconds: 1 }),
        Err(()),
        Ok(Order::Rest { seconds: 5 }),
        Ok(Order::Remove),
        Ok(Order::Rest { seconds: 5 }),
    ];
    let (heard, address) = told(server, &orders);
    assert_eq!(address.as_deref(), Some("10.0.0.9"));
    let said: Vec<&Outcome> = heard.iter().map(|(_, said)| said).collect();
    let made = said[3].clone();
    assert!(matches!(made, Outcome::Made { .. }));
    let ready = &Outcome::Ready;
    let all = [
        ready,
        ready,
        ready,
        &made,
        &made,
        &made,
        ready,
        &Outcome::Removed,
        ready,
    ];
    assert_eq!(said, all);
    let accounts: Vec<bool> = heard.iter().map(|(bmc, _)| bmc.account).collect();
    let (yes, no) = (true, false);
    assert_eq!(accounts, [no, no, no, yes, yes, yes, yes, no, no]);
    assert!(bmc.lock().unwrap().called("firstlight").is_empty());
}

#[test]
fn the_password_that_is_said_is_the_one_that_opens() {
    let (server, bmc) = server();
    let (heard, _) = told(server, &[Ok(Order::Make)]);
    let Outcome::Made { password } = &heard[1].1 else {
        panic!("{heard:?}");
    };
    assert!(bmc.lock().unwrap().logs_in(password.reveal()));
}

#[test]
fn what_the_bmc_refuses_is_said_and_asked_again_later() {
    let (server, bmc) = server();
    bmc.lock().unwrap().forgets = true;
    let orders = [Ok(Order::Make), Ok(Order::Rest { seconds: 60 })];
    let (heard, _) = told(server, &orders);
    let Outcome::Failed { reason } = &heard[1].1 else {
        panic!("{heard:?}");
    };
    assert!(reason.contains("does not know the password"), "{reason}");
    assert_eq!(heard[2].1, Outcome::Ready);
}

#[test]
fn a_bmc_that_says_nothing_is_told_and_without_one_there_is_nothing_to_say() {
    let (silent, bmc) = server();
    bmc.lock().unwrap().lan.channel = 12;
    let (heard, address) = told(silent, &[Ok(Order::Rest { seconds: 60 })]);
    let Outcome::Failed { reason } = &heard[0].1 else {
        panic!("{heard:?}");
    };
    assert!(reason.contains("no channel to a network") && address.is_none());
    let none = Server(tempfile::tempdir().unwrap(), None);
    assert_eq!(told(none, &[]), (Vec::new(), None));
}
