//! The kernel's messages about devices (netlink, `NETLINK_KOBJECT_UEVENT`): `ACTION@DEVPATH`, then `KEY=value`, each
//! ended by a NUL.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};

/// Group 1 carries the kernel's own messages; udev's go to group 2.
const KERNEL_GROUP: u32 = 1;
/// A hot plug of everything at once must fit; otherwise the kernel drops messages (`ENOBUFS`).
const BUFFER: usize = 16 << 20;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uevent {
    pub action: String,
    /// Path below `/sys`, with a leading slash.
    pub path: String,
    fields: HashMap<String, String>,
}

impl Uevent {
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str)
    }
}

/// Parses one datagram; `None` for what is not a kernel message.
pub fn parse_uevent(datagram: &[u8]) -> Option<Uevent> {
    let mut parts = datagram
        .split(|byte| *byte == 0)
        .map(|part| String::from_utf8_lossy(part));
    let header = parts.next()?;
    let (action, path) = header.split_once('@')?;
    let fields = parts.filter_map(|part| {
        part.split_once('=')
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
    });
    Some(Uevent {
        action: action.to_owned(),
        path: path.to_owned(),
        fields: fields.collect(),
    })
}

/// The subscription. Open it before looking at `/sys`, so that no device falls between the two.
pub struct UeventSocket(OwnedFd);

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Event(Uevent),
    /// Messages were lost: look at `/sys` again.
    Lost,
}

impl UeventSocket {
    pub fn open() -> nix::Result<Self> {
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        setsockopt(&fd, sockopt::RcvBufForce, &BUFFER)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Self(fd))
    }

    /// Waits for the next message.
    pub fn receive(&self) -> nix::Result<Received> {
        let mut buffer = [0; 16 << 10];
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => {
                    if let Some(event) = parse_uevent(&buffer[..length]) {
                        return Ok(Received::Event(event));
                    }
                }
                Err(Errno::ENOBUFS) => return Ok(Received::Lost),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_partition_is_announced_with_its_number() {
        let text = b"add@/devices/pci0000:00/0000:00:04.0/usb1/1-1/1-1:1.0/host0/target0:0:0/0:0:0:0/block/sda/sda4\0\
            ACTION=add\0DEVPATH=/devices/x/block/sda/sda4\0SUBSYSTEM=block\0MAJOR=8\0MINOR=4\0DEVNAME=sda4\0\
            DEVTYPE=partition\0DISKSEQ=9\0PARTN=4\0SEQNUM=2345\0";
        let event = parse_uevent(text).unwrap();
        assert_eq!(
            (
                event.action.as_str(),
                event.field("PARTN"),
                event.field("DEVNAME")
            ),
            ("add", Some("4"), Some("sda4"))
        );
        assert!(event.path.ends_with("/block/sda/sda4"));
    }

    #[test]
    fn the_message_of_udev_is_not_a_kernel_message() {
        assert_eq!(parse_uevent(b"libudev\0\xfe\xed\xca\xfe"), None);
        assert_eq!(parse_uevent(b""), None);
    }

    proptest! {
        #[test]
        fn any_datagram_is_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse_uevent(&bytes);
        }
    }
}
