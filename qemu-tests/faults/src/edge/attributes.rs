//! What `stat` says of a file.

use fuser::{FileAttr, FileType, INodeNo};

use crate::{
    Disk,
    tree::{Ino, PAGE, What},
};

pub fn attributes(disk: &Disk, ino: Ino) -> Result<FileAttr, nix::errno::Errno> {
    let node = disk.node(ino)?;
    let (kind, size, used) = match &node.what {
        What::File(content) => (FileType::RegularFile, content.length, content.used()),
        What::Dir(_) => (FileType::Directory, PAGE as u64, 0),
        What::Link(target) => (FileType::Symlink, target.as_os_str().len() as u64, 0),
    };
    Ok(FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: used.div_ceil(512),
        atime: node.modified,
        mtime: node.modified,
        ctime: node.modified,
        crtime: node.modified,
        kind,
        perm: u16::try_from(node.mode).unwrap_or(0o777),
        nlink: disk.links(ino).max(u32::from(kind == FileType::Directory)),
        uid: node.owner.0,
        gid: node.owner.1,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}
