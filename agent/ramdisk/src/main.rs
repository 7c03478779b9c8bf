//! `/init` of the initramfs, and `/sbin/modprobe` for the kernel's own requests.

use std::process::{ExitCode, id};

use firstlight_ramdisk::{init, modules};

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    if arguments
        .next()
        .is_some_and(|name| name.ends_with("modprobe"))
    {
        return if modules::answer_kernel_request(arguments) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    if id() != 1 {
        eprintln!(
            "firstlight-ramdisk is PID 1 of an initramfs: boot it with `firstlight boot`, do not start it by hand"
        );
        return ExitCode::from(2);
    }
    init::run()
}
