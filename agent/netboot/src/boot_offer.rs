//! What a client is told to load first: a pure function of what its request says about its firmware.

use std::net::Ipv4Addr;

use dhcproto::v4::{DhcpOption, Message, UnknownOption};

use crate::boot_files::{BIOS_LOADER, SHIM};
use crate::packet::Request;
use crate::{BoxHttp, ClientArch};

/// PXE option 43 with `PXE_DISCOVERY_CONTROL` (6) = 8: use the boot file of this very reply, no prompt, no discovery of
/// boot servers (Intel PXE 2.1 table 2-3).
const USE_THIS_BOOT_FILE: [u8; 4] = [6, 1, 8, 255];

/// iPXE's encapsulated `no-pxedhcp` (175.176): do not wait two seconds for a proxyDHCP server.
const IPXE_NO_PROXY_DHCP: [u8; 3] = [176, 1, 1];

/// Which server a reply comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one of the lease.
    Lease,
    /// One that stands beside it.
    Proxy,
}

/// The boot information in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootOffer {
    /// The client did not ask to boot: an operating system, or the ramdisk.
    NotAsked,
    /// A file by TFTP from the box.
    Tftp {
        /// A name of [`boot_files`](crate::boot_files).
        file: &'static str,
    },
    /// A file by UEFI HTTP boot.
    Http {
        /// Absolute, `http://BOX/shimx64.efi`.
        url: String,
    },
    /// iPXE gets a script made for this host.
    Script {
        /// Absolute, `http://BOX/boot/ipxe?mac=MAC`.
        url: String,
    },
    /// There is nothing on the stick that this machine could run.
    Unsupported(ClientArch),
}

impl BootOffer {
    pub(crate) fn choose(request: &Request, http: BoxHttp) -> Self {
        let asks = request.is_pxe() || request.is_http_boot() || request.is_ipxe();
        if !asks {
            return Self::NotAsked;
        }
        let arch = request.arch.unwrap_or(ClientArch::Bios);
        match arch {
            arch if !arch.is_supported() => Self::Unsupported(arch),
            _ if request.is_ipxe() => Self::Script {
                url: format!("{http}/boot/ipxe?mac={}", request.mac),
            },
            ClientArch::UefiX64Http => Self::Http {
                url: format!("{http}/{SHIM}"),
            },
            // A request does not say whether Secure Boot is on: UEFI always gets the signed chain.
            ClientArch::UefiX64 => Self::Tftp { file: SHIM },
            _ => Self::Tftp { file: BIOS_LOADER },
        }
    }

    /// Puts the boot information into a reply.
    pub(crate) fn write(
        &self,
        message: &mut Message,
        request: &Request,
        server: Ipv4Addr,
        side: Side,
    ) {
        let (file, in_header) = match self {
            Self::NotAsked | Self::Unsupported(_) => return,
            Self::Tftp { file } => (*file, true),
            Self::Script { url } => (url.as_str(), true),
            Self::Http { url } => (url.as_str(), false),
        };
        message.set_siaddr(server);
        // shim asks for its second stage relative to the `file` field, not to option 67. HTTP URLs may be longer than it.
        if in_header && file.len() < 128 {
            message.set_fname_str(file);
        }
        let options = message.opts_mut();
        options.insert(DhcpOption::BootfileName(file.as_bytes().to_vec()));
        if matches!(self, Self::Tftp { .. }) {
            options.insert(DhcpOption::TFTPServerName(server.to_string().into_bytes()));
        }
        if let Some(class) = self.class(request, side) {
            options.insert(DhcpOption::ClassIdentifier(class.to_vec()));
            if let Some(id) = &request.machine_id {
                options.insert(DhcpOption::ClientMachineIdentifier(id.clone()));
            }
        }
        if matches!(self, Self::Tftp { .. }) && is_bios(request) {
            options.insert(DhcpOption::VendorExtensions(USE_THIS_BOOT_FILE.to_vec()));
        }
        if matches!(self, Self::Script { .. }) && side == Side::Lease {
            let value = IPXE_NO_PROXY_DHCP.to_vec();
            options.insert(DhcpOption::Unknown(UnknownOption::new(175.into(), value)));
        }
    }

    /// Option 60, with which a server says that it speaks PXE.
    ///
    /// A proxy needs it to be heard at all. From the server of the lease, BIOS firmware takes it as "wait for no other offer";
    /// UEFI's (EDK II) takes it as "ask for the boot file at port 4011", unless there is an option 43, with which in turn it
    /// overlooks a proxy's offer: UEFI gets the plain offer from a server, and from a proxy the class alone.
    fn class(&self, request: &Request, side: Side) -> Option<&'static [u8]> {
        match self {
            Self::NotAsked | Self::Unsupported(_) => None,
            Self::Http { .. } => Some(b"HTTPClient"),
            Self::Tftp { .. } if is_bios(request) => Some(b"PXEClient"),
            Self::Tftp { .. } | Self::Script { .. } => {
                (side == Side::Proxy).then_some(b"PXEClient")
            }
        }
    }
}

/// RFC 4578 demands option 93; what lacks it is older than UEFI.
fn is_bios(request: &Request) -> bool {
    request.arch.unwrap_or(ClientArch::Bios) == ClientArch::Bios
}

#[cfg(test)]
mod tests;
