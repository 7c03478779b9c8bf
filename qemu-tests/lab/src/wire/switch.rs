//! The thread that owns the wire: a learning switch with the user-space host on it.
//!
//! Machines connect with QEMU's `stream` backend: each frame has a length in front, four bytes, big-endian. A stream
//! (not datagrams) because one read or write then carries many frames and a full peer can be waited for; a guest's
//! image of hundreds of megabytes passes here while the guests themselves need every core.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frame::{self, Mac};
use super::host::Host;
use super::watch::Watch;

const READ: usize = 256 << 10;
/// Bytes that may wait for one machine; beyond, frames are dropped as in any switch.
const BACKLOG: usize = 8 << 20;
const LARGEST_FRAME: usize = 68 << 10;

pub(super) enum Command {
    Attach(UnixStream),
    Forward(TcpListener, SocketAddrV4),
    Serve(u16, SocketAddr),
    ServeDatagrams(u16, SocketAddr),
    Stop,
}

struct Port {
    stream: UnixStream,
    /// Received bytes up to `filled`; begins with the length of a frame.
    input: Vec<u8>,
    filled: usize,
    output: Vec<u8>,
    sent: usize,
    open: bool,
}

/// Where a frame came from or goes to.
#[derive(Clone, Copy, PartialEq)]
enum Attachment {
    Host,
    Port(usize),
}

pub(super) struct Switch {
    commands: Receiver<Command>,
    /// Readable when a command waits.
    wake: UnixStream,
    host: Host,
    watch: Watch,
    /// Ports of machines that are gone keep their place, so that places stay valid.
    ports: Vec<Port>,
    table: HashMap<Mac, Attachment>,
}

impl Switch {
    pub fn new(commands: Receiver<Command>, wake: UnixStream, host: Host, watch: Watch) -> Self {
        Self {
            commands,
            wake,
            host,
            watch,
            ports: Vec::new(),
            table: HashMap::new(),
        }
    }

    /// Until [`Command::Stop`], or the handle is gone.
    pub fn run(mut self) {
        loop {
            let Ok(readable) = self.wait() else { return };
            if !self.obey() {
                self.watch.flush();
                return;
            }
            for index in readable {
                self.read_port(index);
            }
            self.host.work();
            while let Some(frame) = self.host.next_outgoing() {
                self.pass(&frame, Attachment::Host);
            }
            for port in self.ports.iter_mut().filter(|port| port.open) {
                port.flush();
            }
        }
    }

    /// Sleeps until there is something to do; returns the ports that can be read.
    fn wait(&mut self) -> Result<Vec<usize>, Errno> {
        let timeout = self.host.delay().map_or(PollTimeout::NONE, |delay| {
            // Round up: waking a fraction too early would spin until the time has come.
            PollTimeout::try_from(delay + std::time::Duration::from_millis(1))
                .unwrap_or(PollTimeout::MAX)
        });
        let open: Vec<usize> = (0..self.ports.len())
            .filter(|&i| self.ports[i].open)
            .collect();
        let ports = open
            .iter()
            .map(|&i| (self.ports[i].stream.as_fd(), self.ports[i].interest()));
        let mut fds: Vec<PollFd<'_>> = ports
            .chain(std::iter::once((self.wake.as_fd(), PollFlags::POLLIN)))
            .chain(self.host.interests())
            .map(|(fd, flags)| PollFd::new(fd, flags))
            .collect();
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let wanted = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        let ready = open
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| fd.revents().is_some_and(|r| r.intersects(wanted)));
        Ok(ready.map(|(&index, _)| index).collect())
    }

    /// False when the wire is to end.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 64];
        match self.wake.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Attach(stream) => self.ports.push(Port::new(stream)),
                Command::Forward(listener, target) => self.host.forward(listener, target),
                Command::Serve(port, target) => self.host.serve(port, target),
                Command::ServeDatagrams(port, target) => {
                    self.host.serve_datagrams(port, target);
                }
                Command::Stop => return false,
            }
        }
        true
    }

    fn read_port(&mut self, index: usize) {
        let port = &mut self.ports[index];
        if port.fill().is_err() {
            port.open = false;
            self.table
                .retain(|_, place| *place != Attachment::Port(index));
            return;
        }
        // The buffer is lent out, so that frames go from it to other ports without a copy of their own.
        let input = std::mem::take(&mut port.input);
        let mut rest = &input[..port.filled];
        while let Some((frame, after)) = split_frame(rest) {
            self.pass(frame, Attachment::Port(index));
            rest = after;
        }
        let (start, filled) = (
            self.ports[index].filled - rest.len(),
            self.ports[index].filled,
        );
        let port = &mut self.ports[index];
        port.input = input;
        port.input.copy_within(start..filled, 0);
        port.filled = filled - start;
        if claimed_length(&port.input[..port.filled]).is_some_and(|length| length > LARGEST_FRAME) {
            port.open = false;
        }
    }

    /// Delivers one frame: to the learned place, or to everybody.
    fn pass(&mut self, bytes: &[u8], from: Attachment) {
        let Some((to, sender)) = frame::addresses(bytes) else {
            return;
        };
        self.watch.see(bytes);
        if !frame::is_group(sender) {
            self.table.insert(sender, from);
        }
        let known = self
            .table
            .get(&to)
            .copied()
            .filter(|_| !frame::is_group(to));
        let everybody =
            std::iter::once(Attachment::Host).chain((0..self.ports.len()).map(Attachment::Port));
        for place in
            everybody.filter(|&place| place != from && known.is_none_or(|known| known == place))
        {
            match place {
                Attachment::Host => self.host.receive(bytes),
                Attachment::Port(index) => {
                    if !self.ports[index].push(bytes) {
                        self.watch.dropped();
                    }
                }
            }
        }
    }
}

fn claimed_length(bytes: &[u8]) -> Option<usize> {
    let (length, _) = bytes.split_first_chunk::<4>()?;
    Some(u32::from_be_bytes(*length) as usize)
}

/// The first whole frame and what follows it.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = claimed_length(bytes)?;
    bytes[4..].split_at_checked(length)
}

impl Port {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: vec![0; READ],
            filled: 0,
            output: Vec::new(),
            sent: 0,
            open: true,
        }
    }

    fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, self.sent < self.output.len());
        flags
    }

    fn fill(&mut self) -> io::Result<()> {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// False when the frame was dropped. A port that is closed swallows frames: its machine is off.
    fn push(&mut self, frame: &[u8]) -> bool {
        if !self.open {
            return true;
        }
        if self.output.len() - self.sent + frame.len() > BACKLOG {
            return false;
        }
        let length =
            u32::try_from(frame.len()).expect("a frame is smaller than the buffer it was read to");
        self.output.extend_from_slice(&length.to_be_bytes());
        self.output.extend_from_slice(frame);
        true
    }

    fn flush(&mut self) {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The next read sees the end of the stream and closes the port.
                Err(_) => self.sent = self.output.len(),
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        } else if self.sent > BACKLOG / 4 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }
}
