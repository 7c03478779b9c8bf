//! The box's account in this server's own BMC, on the box's order over SSH: looked for, made, and taken away, as the ramdisk does it.
//!
//! One word comes as an argument ([`Ask`]), one answer goes to the standard output ([`Told`]): there is the password, and nowhere else.
//! Must not: say the password in a message, or load a module that this server's administrator has put on a blacklist.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use firstlight_api::account::{Ask, Bmc, Outcome, Password, Told};
use firstlight_ipmi::device::{Device, PATH};
use firstlight_ipmi::{Channel, Refusal, account};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

const LOCK: &str = "/run/firstlight-bmc.lock";
/// The way to the BMC, and the kernel's door to it.
const DRIVER: &str = "ipmi_si";
const DOOR: &str = "ipmi_devintf";
/// What the driver says where it finds no BMC (`ENODEV`).
const NO_DEVICE: &str = "No such device";
/// Until the door of a driver that was just loaded is there.
const APPEARS: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// Where a BMC is; tests put another one in its place.
pub trait WayToBmc {
    /// `None`: there is no BMC here that the kernel could speak to. An error is a sentence.
    fn open(&mut self) -> Result<Option<Box<dyn Channel>>, String>;
}

/// Carries out one order.
pub fn obey(place: &mut impl WayToBmc, ask: Ask) -> Told {
    let mut bmc = match place.open() {
        Ok(Some(bmc)) => bmc,
        Ok(None) => return without(Outcome::Ready),
        Err(reason) => return without(Outcome::Failed { reason }),
    };
    let bmc = bmc.as_mut();
    let outcome = match ask {
        Ask::Look => Ok(Outcome::Ready),
        Ask::Make => account::make_anew(bmc).map(|password| made(&password)),
        Ask::Remove => account::remove(bmc).map(|_| Outcome::Removed),
    };
    let failed = |refusal: Refusal| Outcome::Failed {
        reason: refusal.to_string(),
    };
    // What came of it counts, also where the BMC says nothing of itself after that.
    let (found, outcome) = match (account::look(bmc), outcome) {
        (Ok(found), outcome) => {
            let found = Bmc {
                address: found.address,
                account: found.account.is_some(),
            };
            (found, outcome.unwrap_or_else(failed))
        }
        (Err(refusal), Ok(Outcome::Ready)) | (_, Err(refusal)) => (Bmc::default(), failed(refusal)),
        (Err(_), Ok(outcome)) => (Bmc::default(), outcome),
    };
    Told {
        bmc: Some(found),
        outcome,
    }
}

fn without(outcome: Outcome) -> Told {
    Told { bmc: None, outcome }
}

fn made(password: &account::Password) -> Outcome {
    let password = Password::try_from(password.reveal().to_owned());
    Outcome::Made {
        password: password.expect("16 letters, digits and signs are a password"),
    }
}

/// The BMC of the server that this program runs on.
#[derive(Debug)]
pub struct ThisServer;

impl WayToBmc for ThisServer {
    fn open(&mut self) -> Result<Option<Box<dyn Channel>>, String> {
        // Until this program ends: two of them at once would take each other's password for their own.
        lock()?;
        if let Some(bmc) = open()? {
            return Ok(Some(bmc));
        }
        for module in [DRIVER, DOOR] {
            if !load(module)? {
                return Ok(None);
            }
        }
        let since = Instant::now();
        while since.elapsed() < APPEARS {
            if let Some(bmc) = open()? {
                return Ok(Some(bmc));
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }
}

fn open() -> Result<Option<Box<dyn Channel>>, String> {
    match Device::open(Path::new(PATH)) {
        Ok(device) => Ok(Some(Box::new(device))),
        // The node of a driver that is going, or has not come.
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(format!("{PATH} cannot be opened: {error}")),
    }
}

fn is_absent(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO))
}

/// An order that lost its connection goes on here.
fn lock() -> Result<(), String> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(LOCK);
    let file = file.map_err(|error| format!("{LOCK} cannot be opened: {error}"))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            std::mem::forget(lock);
            Ok(())
        }
        Err((_, Errno::EWOULDBLOCK)) => Err("an earlier order is still at work there".to_owned()),
        Err((_, error)) => Err(format!("{LOCK} cannot be locked: {error}")),
    }
}

/// False where the module finds nothing to do.
fn load(module: &str) -> Result<bool, String> {
    // Known, or built in.
    if !modprobe(&["--dry-run", "--quiet", module])?.0 {
        return Err(format!(
            "its system's kernel has no module {module}, without which it cannot speak to a BMC"
        ));
    }
    match modprobe(&["--use-blacklist", module])? {
        (true, _) => Ok(true),
        (false, text) if text.contains(NO_DEVICE) => Ok(false),
        (false, text) => Err(format!(
            "its system's kernel does not take the module {module}: {text}"
        )),
    }
}

/// Whether it went well, and what it said.
fn modprobe(arguments: &[&str]) -> Result<(bool, String), String> {
    let output = Command::new("modprobe")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("its system cannot load modules: modprobe: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok((output.status.success(), text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use firstlight_ipmi::{Command, fake};

    use super::*;

    /// A BMC that outlives the order.
    #[derive(Clone)]
    struct Shared(Arc<Mutex<fake::Bmc>>);

    impl Channel for Shared {
        fn ask(&mut self, command: &Command) -> io::Result<Vec<u8>> {
            self.0.lock().unwrap().ask(command)
        }
    }

    impl WayToBmc for Shared {
        fn open(&mut self) -> Result<Option<Box<dyn Channel>>, String> {
            Ok(Some(Box::new(self.clone())))
        }
    }

    /// A server without one, or with a reason.
    struct Without(Result<(), &'static str>);

    impl WayToBmc for Without {
        fn open(&mut self) -> Result<Option<Box<dyn Channel>>, String> {
            self.0.map(|()| None).map_err(str::to_owned)
        }
    }

    fn of_somebody() -> Shared {
        Shared(Arc::new(Mutex::new(fake::Bmc::of_somebody())))
    }

    fn bmc(account: bool) -> Bmc {
        Bmc {
            address: Some([10, 0, 0, 9].into()),
            account,
        }
    }

    #[test]
    fn the_account_is_looked_for_made_anew_each_time_and_taken_away() {
        let mut place = of_somebody();
        let ready = |account| Told {
            bmc: Some(bmc(account)),
            outcome: Outcome::Ready,
        };
        assert_eq!(obey(&mut place, Ask::Look), ready(false));
        let mut before = String::new();
        for _ in 0..2 {
            let told = obey(&mut place, Ask::Make);
            let Outcome::Made { password } = &told.outcome else {
                panic!("{told:?}")
            };
            assert!(place.0.lock().unwrap().logs_in(password.reveal()));
            assert_ne!(password.reveal(), before);
            password.reveal().clone_into(&mut before);
            assert_eq!(told.bmc, Some(bmc(true)));
        }
        assert_eq!(obey(&mut place, Ask::Look), ready(true));
        for _ in 0..2 {
            let gone = Told {
                bmc: Some(bmc(false)),
                outcome: Outcome::Removed,
            };
            assert_eq!(obey(&mut place, Ask::Remove), gone);
        }
        assert!(!place.0.lock().unwrap().logs_in(&before));
    }

    #[test]
    fn a_bmc_that_falls_silent_anywhere_is_told_or_what_it_did_before() {
        for cut in 0..60 {
            let mut place = of_somebody();
            place.0.lock().unwrap().cut = cut;
            let told = obey(&mut place, Ask::Make);
            match told.outcome {
                Outcome::Made { password } => {
                    assert!(place.0.lock().unwrap().logs_in(password.reveal()));
                }
                Outcome::Failed { reason } => assert!(!reason.is_empty()),
                other => panic!("{cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_bmc_that_refuses_says_why_and_a_server_without_one_that_there_is_none() {
        let mut place = of_somebody();
        place.0.lock().unwrap().forgets = true;
        let told = obey(&mut place, Ask::Make);
        assert!(
            matches!(&told.outcome, Outcome::Failed { reason } if reason.contains("password")),
            "{told:?}"
        );

        for ask in Ask::ALL {
            let none = obey(&mut Without(Ok(())), ask);
            assert_eq!(none, without(Outcome::Ready));
            let reason = "no module".to_owned();
            let failed = obey(&mut Without(Err("no module")), ask);
            assert_eq!(failed, without(Outcome::Failed { reason }));
        }
    }
}
