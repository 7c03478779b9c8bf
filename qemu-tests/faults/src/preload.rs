//! What a program must tell the disk that the kernel does not: Linux passes `syncfs` on to no FUSE file system but virtiofs. The
//! library makes an extended attribute of it, which [`crate::Mount`] understands. Needs `cc` (build-essential).

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// Setting it means `syncfs`.
pub const ATTRIBUTE: &str = "user.faulty.syncfs";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
int syncfs(int file)
{
    if (fsetxattr(file, "user.faulty.syncfs", "", 0, 0) == 0)
        return 0;
    /* Another file system. */
    return errno == ENOTSUP || errno == EPERM ? (int)syscall(SYS_syncfs, file) : -1;
}
"#;

/// Makes the library in `dir`; its path belongs into `LD_PRELOAD`.
pub fn library(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("syncfs.so");
    let mut compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-x", "c", "-", "-o"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .context("starting cc; install build-essential")?;
    let mut input = compiler.stdin.take().context("no standard input of cc")?;
    input
        .write_all(SOURCE.as_bytes())
        .context("writing to cc")?;
    drop(input);
    let status = compiler.wait().context("waiting for cc")?;
    ensure!(status.success(), "cc: {status}");
    Ok(path)
}
