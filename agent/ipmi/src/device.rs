//! `/dev/ipmi0`: the kernel's way to the BMC of this machine (Linux `include/uapi/linux/ipmi.h`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::libc::{c_int, c_long, c_short, c_uchar, c_uint, c_ushort};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{Channel, Command, LONGEST};

/// Where it is.
pub const PATH: &str = "/dev/ipmi0";

/// Of `ipmi_system_interface_addr`.
const SYSTEM_INTERFACE: c_int = 0x0c;
const BMC_CHANNEL: c_short = 0x0f;
/// What an answer is, of `recv_type`.
const RESPONSE: c_int = 1;
/// Bytes of an address.
const ADDRESS: c_uint = 8;
/// So many are as long as the longest of the kernel's kinds of addresses (`IPMI_MAX_ADDR_SIZE`).
const MOST_ADDRESSES: usize = 5;
const DATA: c_ushort = 272;
const _: () = assert!(size_of::<Address>() == 8 && LONGEST == 272);
/// A BMC may write its flash for some seconds.
const PATIENCE: Duration = Duration::from_secs(20);

#[repr(C)]
struct Address {
    kind: c_int,
    channel: c_short,
    lun: c_uchar,
}

#[repr(C)]
struct Message {
    network_function: c_uchar,
    number: c_uchar,
    length: c_ushort,
    data: *mut c_uchar,
}

#[repr(C)]
struct Request {
    address: *mut Address,
    address_length: c_uint,
    id: c_long,
    message: Message,
}

#[repr(C)]
struct Received {
    kind: c_int,
    address: *mut Address,
    address_length: c_uint,
    id: c_long,
    message: Message,
}

/// The kernel's headers call the first `_IOR`, although it reads from us.
mod ioctl {
    use super::{Received, Request};
    nix::ioctl_read!(send, b'i', 13, Request);
    nix::ioctl_readwrite!(receive, b'i', 11, Received);
}

/// Opened, for one user at a time.
#[derive(Debug)]
pub struct Device {
    file: File,
    id: c_long,
}

impl Device {
    /// `NotFound`: the kernel knows no BMC.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, id: 0 })
    }

    #[allow(unsafe_code)]
    fn send(&mut self, command: &Command) -> io::Result<()> {
        let mut address = Address {
            kind: SYSTEM_INTERFACE,
            channel: BMC_CHANNEL,
            lun: 0,
        };
        let mut data = command.data.clone();
        let length = data.len().try_into();
        self.id += 1;
        let mut request = Request {
            address: &raw mut address,
            address_length: ADDRESS,
            id: self.id,
            message: Message {
                network_function: command.network_function,
                number: command.number,
                length: length.map_err(|_| io::ErrorKind::InvalidInput)?,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: the kernel copies address and data, both alive and of the lengths that are said, before it returns.
        unsafe { ioctl::send(self.file.as_raw_fd(), &raw mut request) }?;
        Ok(())
    }

    /// The next message; `None` for one that is no answer to the last command.
    #[allow(unsafe_code)]
    fn receive(&self, command: &Command) -> io::Result<Option<Vec<u8>>> {
        let mut address = [const {
            Address {
                kind: 0,
                channel: 0,
                lun: 0,
            }
        }; MOST_ADDRESSES];
        let mut data = [0; LONGEST];
        let mut received = Received {
            kind: 0,
            address: address.as_mut_ptr(),
            address_length: 5 * ADDRESS,
            id: 0,
            message: Message {
                network_function: 0,
                number: 0,
                length: DATA,
                data: data.as_mut_ptr(),
            },
        };
        // SAFETY: the kernel writes to address and data, both alive, no more than the lengths that are said, and is done when it returns.
        unsafe { ioctl::receive(self.file.as_raw_fd(), &raw mut received) }?;
        let Message {
            network_function,
            number,
            length,
            ..
        } = received.message;
        let is_answer = received.kind == RESPONSE
            && received.id == self.id
            && network_function == command.network_function | 1
            && number == command.number;
        let said = data.get(..usize::from(length)).map(<[u8]>::to_vec);
        Ok(said.filter(|_| is_answer))
    }
}

impl Channel for Device {
    fn ask(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        self.send(command)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, left)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(answer) = self.receive(command)? {
                return Ok(answer);
            }
        }
    }
}
