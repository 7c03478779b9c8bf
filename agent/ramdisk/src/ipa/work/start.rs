//! The way into the installed system: its kernel loaded while the ramdisk still runs, and the arguments that a rule gives that kernel.

use anyhow::{Context as _, Result};
use firstlight_api::start::{KernelArguments, Start, StartOrder};

use super::{Worker, sentence};
use crate::deploy::device::BlockDevice;
use crate::deploy::start::{self, Use};

impl Worker {
    /// Before the kernel is loaded, so that it gets them too. Who asked for them would not know that they are missing: this fails.
    pub(super) fn add_arguments(
        &self,
        arguments: Option<&KernelArguments>,
        device: &dyn BlockDevice,
    ) -> Result<()> {
        let Some(arguments) = arguments else {
            return Ok(());
        };
        let why = || {
            format!(
                "the kernel arguments `{arguments}` of site.yaml cannot be given to this image; take them out of the rule, or put them into the image"
            )
        };
        let mounted = self.machine.mount(device, Use::Change).with_context(why)?;
        start::write_arguments(&mounted.system, arguments.as_str()).with_context(why)?;
        tracing::info!(
            disk = device.name(),
            arguments = arguments.as_str(),
            "kernel arguments written"
        );
        Ok(())
    }

    /// How the system will be started: a kernel that cannot be started directly is started by the firmware.
    pub(super) fn prepare(&self, order: &StartOrder, device: &dyn BlockDevice) -> Start {
        if !order.kexec {
            return Start::default();
        }
        match self.load(device) {
            Ok(()) => Start::Kexec,
            Err(error) => {
                let reason = sentence(&error);
                tracing::warn!(
                    disk = device.name(),
                    reason,
                    "its kernel cannot be started directly; the machine will restart"
                );
                Start::Restart { reason }.bounded()
            }
        }
    }

    fn load(&self, device: &dyn BlockDevice) -> Result<()> {
        let mounted = self
            .machine
            .mount(device, Use::Read)
            .context("looking into the written disk")?;
        let entry = start::find(&mounted.system)?;
        let files = start::open(&mounted.system, &entry)?;
        self.machine.load(&files)?;
        tracing::info!(
            disk = device.name(),
            kernel = entry.kernel.map(|kernel| kernel.path),
            options = entry.options,
            "its kernel is loaded"
        );
        Ok(())
    }
}
