//! Network interfaces of this machine: what there is, and the few settings a host with one address needs.
#![allow(unsafe_code)] // interface ioctls (netdevice(7)) and their structures have no safe wrapper

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use std::os::fd::{AsFd, BorrowedFd};

/// A NIC: an Ethernet interface that is a device, not a construct of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// The kernel's: `enp1s0`, 15 bytes at most.
    pub name: String,
    /// The address in use, which may be another than the hardware's.
    pub mac: [u8; 6],
    /// Somebody is at the other end of the cable. Only known while the interface is up.
    pub carrier: bool,
}

impl Nic {
    /// Lower case with colons.
    pub fn mac_text(&self) -> String {
        self.mac.map(|byte| format!("{byte:02x}")).join(":")
    }
}

/// `52:54:00:12:34:56`
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<Result<_, _>>()
        .ok()?;
    bytes.try_into().ok()
}

/// The NICs that have a driver, in the order of their names.
pub fn observe_nics() -> Vec<Nic> {
    let entries = fs::read_dir("/sys/class/net");
    let mut nics: Vec<Nic> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| observe_nic(&entry.path(), entry.file_name().into_string().ok()?))
        .collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    nics
}

fn observe_nic(dir: &Path, name: String) -> Option<Nic> {
    let text = |file: &str| {
        fs::read_to_string(dir.join(file))
            .ok()
            .map(|text| text.trim().to_owned())
    };
    // ARPHRD_ETHER
    if text("type")? != "1" || !dir.join("device").exists() {
        return None;
    }
    Some(Nic {
        name,
        mac: parse_mac(&text("address")?)?,
        carrier: text("carrier").as_deref() == Some("1"),
    })
}

/// linux/if.h
const IFF_UP: u16 = 1;
/// linux/route.h
const RTF_UP: u16 = 1;
const RTF_GATEWAY: u16 = 2;

/// `struct ifreq`: a name, and a union of 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; 16],
    value: [u8; 24],
}

/// `struct rtentry`
#[repr(C)]
struct Route {
    pad1: u64,
    destination: [u8; 16],
    gateway: [u8; 16],
    mask: [u8; 16],
    flags: u16,
    pad2: i16,
    pad3: u64,
    pad4: u64,
    metric: i16,
    device: u64,
    mtu: u64,
    window: u64,
    irtt: u16,
}

mod raw {
    use super::{Request, Route};

    nix::ioctl_read_bad!(get_flags, 0x8913, Request);
    nix::ioctl_write_ptr_bad!(set_flags, 0x8914, Request);
    nix::ioctl_write_ptr_bad!(set_address, 0x8916, Request);
    nix::ioctl_write_ptr_bad!(set_mask, 0x891c, Request);
    nix::ioctl_write_ptr_bad!(add_route, 0x890b, Route);
}

impl Request {
    fn new(name: &str, value: &[u8]) -> nix::Result<Self> {
        let mut request = Self {
            name: [0; 16],
            value: [0; 24],
        };
        let place = request
            .name
            .get_mut(..name.len())
            .filter(|_| name.len() < 16)
            .ok_or(Errno::ENAMETOOLONG)?;
        place.copy_from_slice(name.as_bytes());
        request.value[..value.len()].copy_from_slice(value);
        Ok(request)
    }
}

/// `struct sockaddr_in` without a port.
fn sockaddr(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&2u16.to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
    bytes
}

fn control() -> nix::Result<OwnedFd> {
    socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
}

/// Switches an interface on.
pub fn set_up(name: &str) -> nix::Result<()> {
    let control = control()?;
    let mut request = Request::new(name, &[])?;
    // SAFETY: `Request` has the layout of `struct ifreq`; the kernel reads and writes no further.
    unsafe { raw::get_flags(control.as_raw_fd(), &raw mut request) }?;
    let flags = u16::from_ne_bytes([request.value[0], request.value[1]]);
    if flags & IFF_UP == 0 {
        request.value[..2].copy_from_slice(&(flags | IFF_UP).to_ne_bytes());
        // SAFETY: as above.
        unsafe { raw::set_flags(control.as_raw_fd(), &raw const request) }?;
    }
    Ok(())
}

/// Gives an interface its one address, and the way out of its network.
pub fn configure(
    name: &str,
    address: Ipv4Addr,
    prefix: u8,
    router: Option<Ipv4Addr>,
) -> nix::Result<()> {
    let control = control()?;
    let mask = Ipv4Addr::from_bits(
        u32::MAX
            .checked_shl(32 - u32::from(prefix))
            .unwrap_or_default(),
    );
    let (address, mask) = (
        Request::new(name, &sockaddr(address))?,
        Request::new(name, &sockaddr(mask))?,
    );
    // SAFETY: `Request` has the layout of `struct ifreq` with a `sockaddr_in`, which the kernel only reads.
    unsafe { raw::set_address(control.as_raw_fd(), &raw const address) }?;
    // SAFETY: as above.
    unsafe { raw::set_mask(control.as_raw_fd(), &raw const mask) }?;
    let Some(router) = router else { return Ok(()) };
    let any = sockaddr(Ipv4Addr::UNSPECIFIED);
    let route = Route {
        pad1: 0,
        destination: any,
        gateway: sockaddr(router),
        mask: any,
        flags: RTF_UP | RTF_GATEWAY,
        pad2: 0,
        pad3: 0,
        pad4: 0,
        metric: 0,
        device: 0,
        mtu: 0,
        window: 0,
        irtt: 0,
    };
    // SAFETY: `Route` has the layout of `struct rtentry` (64 bits), without a device name.
    match unsafe { raw::add_route(control.as_raw_fd(), &raw const route) } {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes an interface's address away, and with it the routes through it.
pub fn clear_address(name: &str) -> nix::Result<()> {
    let request = Request::new(name, &sockaddr(Ipv4Addr::UNSPECIFIED))?;
    // SAFETY: as in `configure`.
    unsafe { raw::set_address(control()?.as_raw_fd(), &raw const request) }?;
    Ok(())
}

/// News of links (rtnetlink(7), `RTMGRP_LINK`). Only that there is news counts: [`observe_nics`] says what it is.
pub struct LinkNews(OwnedFd);

impl LinkNews {
    /// What comes after this is news; it needs no privileges.
    pub fn open() -> nix::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            flags,
            SockProtocol::NetlinkRoute,
        )?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 1))?;
        Ok(Self(fd))
    }

    /// Forgets what came so far.
    pub fn clear(&self) {
        let mut buffer = [0; 8192];
        // ENOBUFS says that there was more than the socket holds: news all the same.
        while matches!(
            recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()),
            Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR)
        ) {}
    }

    /// `true` if there was news before `patience` ended.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let news = wait_readable(&[self.0.as_fd()], patience)?[0];
        self.clear();
        Ok(news)
    }
}

impl AsFd for LinkNews {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Which of `fds` can be read; none of them when `patience` ended.
pub fn wait_readable<const N: usize>(
    fds: &[BorrowedFd<'_>; N],
    patience: Duration,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    // Rounded up: a timeout that ends early would make the caller spin.
    let timeout =
        PollTimeout::try_from(patience + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(polled.map(|fd| fd.any().unwrap_or_default())),
        Err(error) => Err(error.into()),
    }
}
