//! What firmware and boot loaders load, over HTTP and TFTP alike: files of the stick by their names, and the scripts that are made
//! for one server.
//!
//! Must not: decide what a server boots (that is the [`Fleet`]'s). To add a file: its name in `firstlight_netboot::boot_files`.

mod loaders;

use std::path::PathBuf;

use firstlight_netboot::{
    BootSite, MacAddr, boot_files::is_boot_file, generic_grub_config, host_grub_config, ipxe_script,
};
use tokio::sync::watch;

pub use loaders::{Loaders, tell as tell_of_loaders};

use crate::{fleet::Fleet, paths::Paths};

#[derive(Clone, Debug)]
pub struct BootFiles {
    /// Known when certificates and the provisioning address are.
    pub site: watch::Receiver<Option<BootSite>>,
    pub fleet: Fleet,
    pub paths: Paths,
    pub loaders: Loaders,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootFile {
    /// On the stick, if the stick is whole.
    Stick(PathBuf),
    Script(String),
    /// A script, as soon as the box knows what belongs into it.
    NotYet,
}

impl BootFiles {
    /// `name` without a slash at its begin.
    pub fn find(&self, name: &str) -> Option<BootFile> {
        if is_boot_file(name) {
            return Some(BootFile::Stick(self.paths.netboot().join(name)));
        }
        // The module lists that GRUB also asks for do not exist, which it accepts.
        let script = name.strip_prefix("grub/")?.strip_suffix(".cfg")?;
        let mac = match script {
            "grub" => None,
            of_a_host => Some(of_a_host.strip_prefix("mac-")?.parse::<MacAddr>().ok()?),
        };
        Some(self.script(|site| match mac {
            None => generic_grub_config(site.http),
            Some(mac) => host_grub_config(site, mac, &self.fleet.boot_target(mac)),
        }))
    }

    pub fn ipxe(&self, mac: MacAddr) -> BootFile {
        self.script(|site| ipxe_script(site, mac, &self.fleet.boot_target(mac)))
    }

    fn script(&self, write: impl FnOnce(&BootSite) -> String) -> BootFile {
        match &*self.site.borrow() {
            Some(site) => BootFile::Script(write(site)),
            None => BootFile::NotYet,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use firstlight_netboot::{BoxHttp, CaFingerprint, boot_files::LOADERS};

    use super::*;
    use crate::fleet;

    #[test]
    fn names_lead_to_files_of_the_stick_or_to_scripts_and_others_nowhere() {
        let (boot, site) = watch::channel(None);
        let (fleet, _controller) = fleet::channel();
        let paths = Paths::new("/nowhere");
        let files = BootFiles {
            site,
            fleet,
            paths,
            loaders: Loaders::default(),
        };
        for name in LOADERS.into_iter().chain(["vmlinuz", "initrd"]) {
            let path = files.paths.netboot().join(name);
            assert_eq!(files.find(name), Some(BootFile::Stick(path)));
        }
        let scripts = ["grub/grub.cfg", "grub/mac-52:54:00:12:34:56.cfg"];
        assert_eq!(
            scripts.map(|name| files.find(name)),
            [(); 2].map(|()| Some(BootFile::NotYet))
        );
        boot.send_replace(Some(BootSite {
            http: BoxHttp::new([172, 22, 0, 1].into(), 80),
            ironic_port: 6385,
            ca: CaFingerprint::new([7; 32]),
            extra_args: vec![],
        }));
        for name in scripts {
            assert!(
                matches!(files.find(name), Some(BootFile::Script(_))),
                "{name}"
            );
        }
        for name in [
            "",
            "grub/",
            "grub/mac-x.cfg",
            "grub/../vmlinuz",
            "../vmlinuz",
            "grub/grub",
            "secret",
        ] {
            assert_eq!(files.find(name), None, "{name}");
        }
    }

    proptest::proptest! {
        /// Names come from whoever boots, by TFTP and by HTTP.
        #[test]
        fn no_name_leads_anywhere_but_to_the_files_of_network_boot(
            name in "(grub/)?(mac-)?([0-9a-f]{2}[:-]){0,6}[0-9a-f]{0,2}(\\.cfg)?|[./a-z0-9%\\\\]{0,20}",
            known in proptest::sample::select(&LOADERS[..]), joint in "[./]{0,3}",
        ) {
            let (_boot, site) = watch::channel(None);
            let (fleet, _controller) = fleet::channel();
            let paths = Paths::new("/nowhere");
            let files = BootFiles {
            site,
            fleet,
            paths,
            loaders: Loaders::default(),
        };
            for name in [name, format!("{joint}{known}"), format!("{known}{joint}")] {
                match files.find(&name) {
                    Some(BootFile::Stick(path)) => {
                        proptest::prop_assert!(is_boot_file(&name) && !name.contains(".."));
                        proptest::prop_assert_eq!(path, files.paths.netboot().join(&name));
                    }
                    Some(_) => proptest::prop_assert!(name.strip_suffix(".cfg").is_some_and(|name| name.starts_with("grub/")), "{name}"),
                    None => {}
                }
            }
        }
    }
}
