//! Configurations as files in `golden/`.

use super::*;
use crate::testing::{expect_golden, mac, site};

fn all() -> [(&'static str, String); 4] {
    let config = |target| host_grub_config(&site(), mac(1), &target);
    let reason = "the box is still starting; $evil \"".to_owned();
    [
        ("grub.cfg", generic_grub_config(site().http)),
        ("ramdisk.cfg", config(BootTarget::Ramdisk)),
        ("disk.cfg", config(BootTarget::Disk)),
        ("wait.cfg", config(BootTarget::Wait { reason })),
    ]
}

#[test]
fn configurations_are_the_golden_ones() {
    for (name, config) in all() {
        expect_golden(name, &config);
    }
}
