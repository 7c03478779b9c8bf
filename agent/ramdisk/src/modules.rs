//! Kernel modules: found by name or by a device's modalias, loaded once, dependencies first.
//!
//! Must not: run kmod, or unpack anything (the kernel does: `MODULE_INIT_COMPRESSED_FILE`).

pub mod index;
pub mod pattern;

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

use index::Index;

/// Where the image builder puts modules and index.
pub const MODULES_DIR: &str = "/lib/modules";

/// `MODULE_INIT_COMPRESSED_FILE` of linux/module.h.
const COMPRESSED_FILE: ModuleInitFlags = ModuleInitFlags::from_bits_retain(4);

/// Module parameters that differ from the kernel's defaults. A stick that is not ready after its reset answers so, and the
/// disk driver asks again: the wait of a second before the first question only delays every boot.
const PARAMETERS: [(&str, &str); 1] = [("usb_storage", "delay_use=0")];

/// Loads modules, each once, from any number of threads.
pub struct Loader {
    root: PathBuf,
    index: Index<'static>,
    /// Who comes second waits until the first is through.
    loaded: HashMap<&'static str, OnceLock<()>>,
}

impl Loader {
    /// Reads the index below `root`. Its text lives as long as PID 1.
    pub fn open(root: &Path) -> Result<Self> {
        let path = root.join("index");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let index = Index::parse(Box::leak(text.into_boxed_str()))?;
        let loaded = index.names().map(|name| (name, OnceLock::new())).collect();
        Ok(Self {
            root: root.to_owned(),
            index,
            loaded,
        })
    }

    /// Loads what declares itself for a device.
    pub fn load_alias(&self, modalias: &str) {
        for name in self.index.by_alias(modalias) {
            self.load(name);
        }
    }

    /// Loads a module, or whatever has that alias: the two things that the kernel's own requests may mean.
    pub fn load_request(&self, request: &str) -> bool {
        if self.index.module(request).is_some() {
            self.load(request);
            return true;
        }
        let names = self.index.by_alias(request);
        for name in &names {
            self.load(name);
        }
        !names.is_empty()
    }

    /// Loads the list of a mode.
    pub fn load_list(&self, mode: &str) {
        for name in self.index.load_list(mode) {
            self.load(name);
        }
    }

    /// Loads one module after its dependencies. A failure is logged, not returned: the device stays without a driver,
    /// and whoever waits for it says so.
    pub fn load(&self, name: &str) {
        let Some((name, module)) = self.index.module(name) else {
            tracing::warn!(name, "no such module in this initramfs");
            return;
        };
        for dependency in module.dependencies() {
            if let Some((dependency, module)) = self.index.module(dependency) {
                self.load_once(dependency, module.path);
            }
        }
        self.load_once(name, module.path);
    }

    fn load_once(&self, name: &'static str, path: &str) {
        let Some(cell) = self.loaded.get(name) else {
            return;
        };
        cell.get_or_init(|| match self.insert(name, path) {
            Ok(()) => tracing::debug!(name, "module loaded"),
            // No such hardware (a driver for a CPU's instruction, say): nothing is wrong.
            Err(Errno::EEXIST | Errno::ENODEV) => {}
            Err(error) => {
                tracing::warn!(name, %error, "module cannot be loaded; its device will not work");
            }
        });
    }

    fn insert(&self, name: &str, path: &str) -> Result<(), Errno> {
        let open = File::open(self.root.join(path));
        let file =
            open.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
        let parameters = PARAMETERS
            .iter()
            .find(|(of, _)| *of == name)
            .map_or("", |(_, value)| value);
        let parameters = CString::new(parameters).unwrap_or_default();
        let flags = if path.as_bytes().ends_with(b".xz") {
            COMPRESSED_FILE
        } else {
            ModuleInitFlags::empty()
        };
        finit_module(file, &parameters, flags)
    }
}

/// The kernel asks for a module by running `/sbin/modprobe -q -- NAME` (file systems, ciphers, character sets): the same
/// binary answers under that name. `false` if one of the names is unknown.
pub fn answer_kernel_request(arguments: impl Iterator<Item = String>) -> bool {
    let Ok(loader) = Loader::open(Path::new(MODULES_DIR)) else {
        return false;
    };
    let mut names = arguments.filter(|argument| !argument.starts_with('-'));
    names.all(|name| loader.load_request(&name))
}
