//! How servers were started, as their TPMs vouch for it: compared with what the box serves, and remembered for the ramdisk that said it.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use firstlight_api::{measured::Evidence, signed::PublicKey, tpm::Digest};
use firstlight_measured::{Booted, Files, Served, judge};
use firstlight_netboot::{
    BootSite, BootTarget, GRUB_WAITS, MacAddr,
    boot_files::{GRUB, INITRD, KERNEL, SHIM, UEFI_LOADER},
    generic_grub_config, host_grub_config, kernel_command_line, medium_config,
};
use tokio::sync::OnceCell;

use crate::boot_files::BootFiles;

/// Ramdisks whose starts are remembered; one that was forgotten is asked again.
const MOST: usize = 2048;

#[derive(Clone, Debug, Default)]
pub struct Starts(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// They do not change while the box runs.
    files: OnceCell<Files>,
    judged: Mutex<Judged>,
}

#[derive(Debug, Default)]
struct Judged {
    of: HashMap<PublicKey, Booted>,
    order: VecDeque<PublicKey>,
}

impl Starts {
    pub fn remembered(&self, key: PublicKey) -> Option<Booted> {
        let judged = self.0.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.of.get(&key).cloned()
    }

    pub fn remember(&self, key: PublicKey, booted: &Booted) {
        let mut judged = self.0.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.of.insert(key, booted.clone()).is_none() {
            judged.order.push_back(key);
        }
        if judged.order.len() > MOST
            && let Some(oldest) = judged.order.pop_front()
        {
            judged.of.remove(&oldest);
        }
    }

    /// `qualifying`: what the quote has to be about.
    pub async fn judge(
        &self,
        boot_files: &BootFiles,
        mac: MacAddr,
        evidence: &Evidence,
        qualifying: &Digest,
    ) -> Booted {
        let site = boot_files.site.borrow().clone();
        let Some(site) = site else {
            return Booted::Unmeasured {
                reason: "the box is still starting".to_owned(),
            };
        };
        let folder = boot_files.paths.netboot();
        let look = async || {
            let looked = tokio::task::spawn_blocking(move || files(&folder)).await;
            looked.unwrap_or_else(|error| Err(error.into()))
        };
        match self.0.files.get_or_try_init(look).await {
            Ok(files) => compare(files, &site, mac, evidence, qualifying),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "no start can be compared");
                Booted::Unmeasured {
                    reason: "the box cannot read its own boot files".to_owned(),
                }
            }
        }
    }
}

fn files(folder: &Path) -> anyhow::Result<Files> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
    };
    let mut files = Files::default();
    for loader in [SHIM, GRUB, UEFI_LOADER] {
        files.add_loader(&read(loader)?).context(loader)?;
    }
    files.add_kernel(&read(KERNEL)?).context(KERNEL)?;
    files.add_initrd(&read(INITRD)?);
    Ok(files)
}

fn compare(
    files: &Files,
    site: &BootSite,
    mac: MacAddr,
    evidence: &Evidence,
    qualifying: &Digest,
) -> Booted {
    let script = |target| host_grub_config(site, mac, &target).into_bytes();
    let mut scripts = vec![
        generic_grub_config(site.http).into_bytes(),
        script(BootTarget::Ramdisk),
        script(BootTarget::Disk),
    ];
    // A command line that does not fit onto the CD has started nobody from there.
    scripts.extend(medium_config(site, mac));
    let command_line = kernel_command_line(site, mac);
    let waiting = |reason: &str| {
        script(BootTarget::Wait {
            reason: reason.to_owned(),
        })
    };
    judge(
        evidence,
        qualifying,
        &Served {
            files,
            command_line: &command_line,
            scripts,
            waits: GRUB_WAITS,
            waiting: &waiting,
        },
    )
}
