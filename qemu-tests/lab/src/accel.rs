//! Chooses the acceleration by trying it.
//!
//! `/dev/kvm` that opens proves nothing: a host whose KVM takes paravirtual guests only hangs an ordinary guest after its
//! boot loader. So the kernel of the image itself is started under KVM, until it asks for a root file system.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use time::OffsetDateTime;

use super::machine::{Setting, Vm};
use super::qemu::{Accel, Begin, BootFirst, DirectKernel, Firmware, NicModel, VmSpec};

/// Under KVM the kernel gets there in two or three seconds.
const PROBE: Duration = Duration::from_secs(20);

/// KVM if the kernel that `load_kernel` gives runs under it, else TCG. The answer is kept in `cache` until the host boots again.
/// `dir` is for temporary files.
pub fn choose_accel(
    cache: &Path,
    dir: &Path,
    load_kernel: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Accel> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .context("reading the host's boot id")?;
    let cache = cache.join("accel");
    if let Some(known) = fs::read_to_string(&cache)
        .ok()
        .and_then(|text| parse_answer(&text, boot.trim()))
    {
        return Ok(known);
    }
    let accel = if kvm_opens() && runs_under_kvm(&load_kernel()?, dir)? {
        Accel::Kvm
    } else {
        Accel::Tcg
    };
    let word = if accel == Accel::Kvm { "kvm" } else { "tcg" };
    fs::write(&cache, format!("{} {word}\n", boot.trim()))
        .with_context(|| format!("writing {}", cache.display()))?;
    Ok(accel)
}

fn parse_answer(text: &str, boot: &str) -> Option<Accel> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [of, "kvm"] if of == boot => Some(Accel::Kvm),
        [of, "tcg"] if of == boot => Some(Accel::Tcg),
        _ => None,
    }
}

fn kvm_opens() -> bool {
    fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_ok()
}

fn runs_under_kvm(bytes: &[u8], dir: &Path) -> Result<bool> {
    let kernel = dir.join("probe.vmlinuz");
    fs::write(&kernel, bytes).with_context(|| format!("writing {}", kernel.display()))?;
    let spec = VmSpec {
        name: "probe".to_owned(),
        firmware: Firmware::Bios,
        cpus: 1,
        memory_mib: 512,
        mac: [0x52, 0x54, 0, 0xf1, 0, 0xff],
        nic: NicModel::Virtio,
        second_nic: None,
        disks: Vec::new(),
        cd: None,
        boot: BootFirst::Disk,
        direct: Some(DirectKernel {
            kernel,
            initrd: None,
            command_line: "console=ttyS0".to_owned(),
        }),
        tpm: false,
        self_test: Duration::ZERO,
        kcs: None,
    };
    let (wire, _nobody) = UnixStream::pair().context("a socket for the probe")?;
    // QEMU that does not start with KVM is the answer "no"; that QEMU is there at all shows with the real machine.
    let setting = Setting {
        accel: Accel::Kvm,
        environment: &[],
        flash: None,
        wire,
        second_wire: None,
        dir,
        begin: Begin::PowerOn(OffsetDateTime::now_utc()),
    };
    let Ok(vm) = Vm::start(&spec, setting) else {
        return Ok(false);
    };
    Ok(vm.console().wait_for("Kernel panic", PROBE).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_own_boot_of_the_host() {
        assert_eq!(parse_answer("b1 tcg\n", "b1"), Some(Accel::Tcg));
        assert_eq!(parse_answer("b1 kvm", "b1"), Some(Accel::Kvm));
        assert_eq!(parse_answer("b1 kvm", "b2"), None);
        assert_eq!(parse_answer("nonsense", "b1"), None);
    }
}
