//! A home router that somebody plugs into the site: it leases addresses to whoever asks. QEMU's own user network plays it, without a machine.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use firstlight_api::site::SiteConfig;

use super::machine::inherit;
use super::tools;

/// It is unplugged when this is dropped.
pub struct Router(Child);

impl Router {
    /// `cable`: to the wire. Its own address is `.4` of the site's network, and it leases from `.240`.
    pub(super) fn plug_in(site: &SiteConfig, cable: &UnixStream) -> Result<Self> {
        let subnet = site.provisioning.address;
        let (network, prefix) = (subnet.network(), subnet.prefix());
        let at = |last: u32| Ipv4Addr::from_bits(network.to_bits() + last);
        let (router, first) = (at(4), at(240));
        let mut command = Command::new(tools::find_program(
            "qemu-system-x86_64",
            "qemu-system-x86",
        )?);
        command
            .args(["-machine", "none", "-nodefaults", "-display", "none"])
            .arg("-netdev")
            .arg(format!(
                "user,id=router,restrict=on,ipv6=off,net={network}/{prefix},host={router},dhcpstart={first}"
            ))
            .arg("-netdev")
            .arg(format!(
                "stream,id=wire,server=off,addr.type=fd,addr.str={}",
                cable.as_raw_fd()
            ))
            .args(["-netdev", "hubport,id=inside,hubid=0,netdev=router"])
            .args(["-netdev", "hubport,id=outside,hubid=0,netdev=wire"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        inherit(&mut command, vec![cable.as_raw_fd()]);
        Ok(Self(command.spawn().context("starting QEMU for a router")?))
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
