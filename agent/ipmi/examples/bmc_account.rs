//! `bmc_account look | make | remove`: what a ramdisk does to the BMC of the machine it runs on, by hand, as root, with `ipmi_si` and
//! `ipmi_devintf` loaded. `make` prints the password.
#![allow(clippy::print_stdout, reason = "it is its output")]

use std::error::Error;
use std::path::Path;

use firstlight_ipmi::account::{Password, USER, look, make, remove};
use firstlight_ipmi::device::{Device, PATH};

fn main() -> Result<(), Box<dyn Error>> {
    let mut bmc = Device::open(Path::new(PATH))?;
    match std::env::args().nth(1).as_deref() {
        Some("look") => println!("{:?}", look(&mut bmc)?),
        Some("make") => {
            let password = Password::random()?;
            make(&mut bmc, &password)?;
            println!("{USER} {}", password.reveal());
        }
        Some("remove") => println!("{}", remove(&mut bmc)?),
        _ => return Err("bmc_account look | make | remove".into()),
    }
    Ok(())
}
