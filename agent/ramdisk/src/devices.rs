//! Drivers for devices as they appear: every modalias that is in `/sys` already, and every one announced later.
//!
//! Two threads load, because a driver's probe often only waits. Disks and the buses that lead to disks come first: the
//! box's boot waits for them.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::modules::Loader;
use crate::uevent::{Received, Uevent, UeventSocket};

const LOADERS: usize = 2;

/// The running watch.
pub struct Devices {
    queue: Arc<Queue>,
    loaders: Vec<JoinHandle<()>>,
    /// Names of block devices (`sda`, `sda4`), when they appear and when their medium changes.
    pub blocks: Receiver<String>,
}

impl Devices {
    /// Subscribes, looks at what is there, and returns at once.
    pub fn watch(loader: &Arc<Loader>) -> std::io::Result<Self> {
        let socket = UeventSocket::open()?;
        let queue = Arc::new(Queue::default());
        let (announce, blocks) = channel();
        let loaders = (0..LOADERS).map(|number| {
            let (queue, loader) = (Arc::clone(&queue), Arc::clone(loader));
            std::thread::Builder::new()
                .name(format!("modules-{number}"))
                .spawn(move || queue.work(&loader))
        });
        let loaders = loaders.collect::<Result<_, _>>()?;
        let listener = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("uevents".to_owned())
            .spawn(move || listen(&socket, &listener, &announce))?;
        Ok(Self {
            queue,
            loaders,
            blocks,
        })
    }

    /// Waits until every device seen so far has its driver. Probes that the kernel runs on its own (disks behind USB or
    /// SCSI) may still go on: their devices come through `blocks`.
    pub fn settle(&self) {
        self.queue.settle();
    }

    /// Stops after the modules that are being loaded now; what is left is for udev.
    pub fn stop(self) {
        self.queue.close();
        for loader in self.loaders {
            // A loader cannot panic with anything of ours at stake: the machine goes on.
            let _ = loader.join();
        }
    }
}

fn listen(socket: &UeventSocket, queue: &Queue, announce: &Sender<String>) {
    scan(queue, announce);
    loop {
        match socket.receive() {
            Ok(Received::Event(event)) => handle(&event, queue, announce),
            Ok(Received::Lost) => scan(queue, announce),
            Err(error) => {
                tracing::error!(%error, "no more news of devices: what is plugged in from now on stays without driver");
                return;
            }
        }
    }
}

fn handle(event: &Uevent, queue: &Queue, announce: &Sender<String>) {
    if !matches!(event.action.as_str(), "add" | "change" | "bind") {
        return;
    }
    if let Some(modalias) = event.field("MODALIAS") {
        queue.push(modalias);
    }
    if let (Some("block"), Some(name)) = (event.field("SUBSYSTEM"), event.field("DEVNAME")) {
        // Nobody listens any more once the disk is found.
        let _ = announce.send(name.to_owned());
    }
}

/// Everything that is in `/sys` now.
fn scan(queue: &Queue, announce: &Sender<String>) {
    for bus in names(Path::new("/sys/bus")) {
        let devices = Path::new("/sys/bus").join(bus).join("devices");
        for device in names(&devices) {
            if let Ok(modalias) = fs::read_to_string(devices.join(device).join("modalias")) {
                queue.push(modalias.trim_end());
            }
        }
    }
    for name in names(Path::new("/sys/class/block")) {
        let _ = announce.send(name);
    }
}

/// Names in a directory of `/sys`, in order; none where it is missing.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// What waits to be loaded.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    first: VecDeque<String>,
    later: VecDeque<String>,
    /// A modalias is worth one look.
    seen: BTreeSet<String>,
    busy: usize,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, modalias: &str) {
        let mut state = self.lock();
        if modalias.is_empty() || state.closed || !state.seen.insert(modalias.to_owned()) {
            return;
        }
        let lane = if leads_to_disks(modalias) {
            &mut state.first
        } else {
            &mut state.later
        };
        lane.push_back(modalias.to_owned());
        drop(state);
        self.changed.notify_all();
    }

    fn work(&self, loader: &Loader) {
        while let Some(modalias) = self.next() {
            loader.load_alias(&modalias);
            self.lock().busy -= 1;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<String> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let State { first, later, .. } = &mut *state;
            if let Some(modalias) = first.pop_front().or_else(|| later.pop_front()) {
                state.busy += 1;
                return Some(modalias);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn settle(&self) {
        let mut state = self.lock();
        while state.busy > 0 || !state.first.is_empty() || !state.later.is_empty() {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// PCI storage (class 01) and USB hosts (0C03), anything on USB, virtio's disks, and hypervisors' buses.
fn leads_to_disks(modalias: &str) -> bool {
    match modalias.split_once(':') {
        Some(("pci", rest)) => rest.contains("bc01") || rest.contains("bc0Csc03"),
        Some(("virtio", rest)) => rest.starts_with("d00000002") || rest.starts_with("d00000008"),
        Some(("usb" | "scsi" | "mmc" | "vmbus" | "xen" | "nvme", _)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_the_way_to_them_come_first_and_each_modalias_once() {
        let queue = Queue::default();
        let nic = "pci:v00008086d000010D3sv00001AF4sd00001100bc02sc00i00";
        let usb = "pci:v00001B36d0000000Dsv00001AF4sd00001100bc0Csc03i30";
        for modalias in [
            nic,
            usb,
            nic,
            "virtio:d00000001v00001AF4",
            "virtio:d00000002v00001AF4",
            "",
        ] {
            queue.push(modalias);
        }
        let order: Vec<String> = (0..4).filter_map(|_| queue.next()).collect();
        assert_eq!(
            order,
            [
                usb,
                "virtio:d00000002v00001AF4",
                nic,
                "virtio:d00000001v00001AF4"
            ]
        );
    }

    #[test]
    fn a_closed_queue_gives_nothing_more() {
        let queue = Queue::default();
        queue.push("usb:x");
        queue.close();
        queue.push("usb:y");
        assert_eq!(queue.next(), None);
    }
}
