//! Tells systemd that the agent is ready (`sd_notify(3))`: one datagram.

use std::os::{
    linux::net::SocketAddrExt,
    unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
};

use anyhow::{Context, Result};

/// Sends `state`, e.g. `READY=1`. Without systemd there is nobody to tell, which is fine.
pub fn notify(state: &str) -> Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match path.as_bytes() {
        // An abstract address is written with @ for its NUL byte.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let socket = UnixDatagram::unbound().context("making a socket")?;
    let sent = address.and_then(|address| socket.send_to_addr(state.as_bytes(), &address));
    sent.map(drop)
        .with_context(|| format!("sending {state:?} to systemd"))
}
