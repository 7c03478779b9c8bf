//! The kernel's requests, each one operation of the disk.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::Path,
    time::{Duration, SystemTime},
};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use nix::libc;

mod attributes;

use self::attributes::attributes;
use crate::{
    Disk,
    mount::{Shared, lock},
    preload,
    tree::{Content, Ino, Node, PAGE, What},
};

/// Nothing is kept by the kernel.
const KEPT: Duration = Duration::ZERO;

pub struct Edge(pub Shared);

fn refused(error: nix::errno::Errno) -> Errno {
    Errno::from_i32(error as i32)
}

impl Edge {
    /// What the disk does, and how long it takes.
    fn act<T>(
        &self,
        action: impl FnOnce(&mut Disk) -> Result<T, nix::errno::Errno>,
    ) -> Result<T, Errno> {
        let (result, pause) = {
            let mut disk = lock(&self.0);
            disk.set_now(SystemTime::now());
            (action(&mut disk), disk.take_pause())
        };
        std::thread::sleep(pause);
        result.map_err(refused)
    }

    fn attributes(&self, ino: Ino) -> Result<FileAttr, Errno> {
        self.act(|disk| attributes(disk, ino))
    }

    fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        mode: u32,
        what: What,
    ) -> Result<FileAttr, Errno> {
        let node = Node {
            what,
            mode: mode & 0o7777,
            owner: (request.uid(), request.gid()),
            modified: SystemTime::now(),
        };
        self.act(|disk| {
            let ino = disk.create(parent.0, name, node)?;
            attributes(disk, ino)
        })
    }
}

macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(error) => $reply.error(error),
        }
    };
}

#[allow(
    clippy::too_many_arguments,
    reason = "the kernel's requests have so many"
)]
impl Filesystem for Edge {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.act(|disk| {
            let ino = disk.lookup(parent.0, name)?;
            attributes(disk, ino)
        });
        answer!(reply, found, found => reply.entry(&KEPT, &found, Generation(0)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attributes(ino.0), found => reply.attr(&KEPT, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = self.act(|disk| {
            if let Some(size) = size {
                disk.resize(ino.0, size)?;
            }
            if size.is_none() || mode.is_some() {
                disk.describe(ino.0, |node| {
                    node.mode = mode.map_or(node.mode, |mode| mode & 0o7777);
                    node.owner = (uid.unwrap_or(node.owner.0), gid.unwrap_or(node.owner.1));
                    node.modified = match modified {
                        Some(TimeOrNow::SpecificTime(time)) => time,
                        Some(TimeOrNow::Now) => SystemTime::now(),
                        None => node.modified,
                    };
                })?;
            }
            attributes(disk, ino.0)
        });
        answer!(reply, done, found => reply.attr(&KEPT, &found));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.act(|disk| disk.read_link(ino.0));
        answer!(reply, target, target => reply.data(target.as_os_str().as_encoded_bytes()));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return reply.error(Errno::from_i32(libc::EPERM));
        }
        let what = What::File(Content::default());
        let file = self.make(request, (parent, name), mode & !umask, what);
        answer!(reply, file, file => reply.entry(&KEPT, &file, Generation(0)));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let what = What::Dir(BTreeMap::new());
        let file = self.make(request, (parent, name), mode & !umask, what);
        answer!(reply, file, file => reply.entry(&KEPT, &file, Generation(0)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let file = self.make(
            request,
            (parent, name),
            0o777,
            What::Link(target.to_owned()),
        );
        answer!(reply, file, file => reply.entry(&KEPT, &file, Generation(0)));
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let file = self.act(|disk| {
            disk.link(ino.0, parent.0, name)?;
            attributes(disk, ino.0)
        });
        answer!(reply, file, file => reply.entry(&KEPT, &file, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.act(|disk| disk.unlink(parent.0, name)), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.act(|disk| disk.rmdir(parent.0, name)), () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.intersects(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_WHITEOUT) {
            return reply.error(Errno::from_i32(libc::EINVAL));
        }
        let renamed = self.act(|disk| {
            if flags.contains(RenameFlags::RENAME_NOREPLACE)
                && disk.lookup(new_parent.0, new_name).is_ok()
            {
                return Err(nix::errno::Errno::EEXIST);
            }
            disk.rename((parent.0, name), (new_parent.0, new_name))
        });
        answer!(reply, renamed, () => reply.ok());
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.act(|disk| disk.open(ino.0));
        answer!(reply, opened, () => reply.opened(FileHandle(0), FopenFlags::empty()));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let what = What::File(Content::default());
        let file = self.make(request, (parent, name), mode & !umask, what);
        let file = file.and_then(|file| self.act(|disk| disk.open(file.ino.0)).map(|()| file));
        answer!(reply, file, file => reply.created(&KEPT, &file, Generation(0), FileHandle(0), FopenFlags::empty()));
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.0).close(ino.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = usize::try_from(size).unwrap_or(0);
        let read = self.act(|disk| disk.read(ino.0, offset, size));
        answer!(reply, read, bytes => reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.act(|disk| disk.write(ino.0, offset, data));
        answer!(reply, written, count => reply.written(u32::try_from(count).unwrap_or(0)));
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let end = offset + length;
        let reserved = self.act(|disk| match mode {
            0 => disk.reserve(ino.0, end, Some(end)),
            libc::FALLOC_FL_KEEP_SIZE => disk.reserve(ino.0, end, None),
            _ => Err(nix::errno::Errno::EOPNOTSUPP),
        });
        answer!(reply, reserved, () => reply.ok());
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.act(|disk| disk.sync(ino.0)), () => reply.ok());
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.act(|disk| disk.sync(ino.0)), () => reply.ok());
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        // "Not implemented" would end the kernel's asking for all names.
        if name != preload::ATTRIBUTE {
            return reply.error(Errno::from_i32(libc::ENOTSUP));
        }
        answer!(reply, self.act(Disk::sync_all), () => reply.ok());
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::from_i32(libc::ENOSYS));
    }

    fn access(&self, _: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let allowed = self.act(|disk| {
            if mask.contains(AccessFlags::W_OK) && !disk.is_writable(ino.0) {
                return Err(nix::errno::Errno::EROFS);
            }
            disk.node(ino.0).map(drop)
        });
        answer!(reply, allowed, () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (size, used) = lock(&self.0).usage();
        let page = PAGE as u64;
        let free = size.saturating_sub(used) / page;
        reply.statfs(size / page, free, free, 1 << 20, 1 << 19, 4096, 255, 4096);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.act(|disk| {
            let entries = disk.list(ino.0)?.into_iter();
            let entries = entries.map(|(name, ino)| Ok((attributes(disk, ino)?, name)));
            entries.collect::<Result<Vec<_>, nix::errno::Errno>>()
        });
        let entries = match listed {
            Ok(entries) => entries,
            Err(error) => return reply.error(error),
        };
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (entry, name)) in entries.into_iter().enumerate().skip(first) {
            if reply.add(entry.ino, at as u64 + 1, entry.kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
