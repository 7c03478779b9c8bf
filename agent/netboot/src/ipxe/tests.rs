//! Scripts as files in `golden/`.

use super::*;
use crate::testing::{expect_golden, mac, site};

#[test]
fn scripts_are_the_golden_ones() {
    let script = |target| ipxe_script(&site(), mac(1), &target);
    expect_golden("ramdisk.ipxe", &script(BootTarget::Ramdisk));
    expect_golden("disk.ipxe", &script(BootTarget::Disk));
    let reason = "the box is still starting ${evil} || shell".to_owned();
    expect_golden("wait.ipxe", &script(BootTarget::Wait { reason }));
}

/// iPXE falls to its shell when a script ends with an error, and every command line that fails is such an end.
#[test]
fn no_command_can_end_in_the_shell() {
    for target in [BootTarget::Ramdisk, BootTarget::Disk] {
        let script = ipxe_script(&site(), mac(1), &target);
        let risky = ["kernel ", "initrd ", "boot ", "sanboot ", "chain ", "iseq "];
        for line in script
            .lines()
            .filter(|line| risky.iter().any(|command| line.starts_with(command)))
        {
            assert!(line.contains("||"), "{line}");
        }
    }
}
