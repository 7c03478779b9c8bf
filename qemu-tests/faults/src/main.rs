//! `faulty`: a disk that fails on order, for scripts.

use std::{
    io::{self, BufRead as _, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use faults::{Disk, Fault, Mount, Names};

/// Mounts an empty disk, in memory, that fails on order; it is gone when standard input ends.
///
/// Faults are KIND[=NUMBER] OPERATION[@WHEN] PATHS:
///   KIND       full, eio, read-only, slow=MILLISECONDS, torn=BYTES (a write gets so far, then fails), cut (the power goes)
///   OPERATION  read, write, sync, rename, create, remove, or change: all but read
///   WHEN       always (if not said), nth=N, from=N, every=N, chance=PERCENT/SEED, counted over what the fault matches
///   PATHS      from the disk's root; * is anything but a slash, ** anything
///
/// Lines on standard input, each answered by one line, "ok" or what is wrong:
///   fault FAULT    from now on
///   clear          no fault any more
///   counts         how often each fault was asked
///   size BYTES     a smaller disk is a full one
///   cut            the power goes: everything fails
///   restart SEED   the machine starts again: what was not synchronised is there or not, as the seed decides
///
/// Example: a disk whose third fsync below /db fails
///   faulty /mnt --fault 'eio sync@nth=3 /db/**'
///
/// Linux passes syncfs on to no such disk: programs that use it need `--preload DIR` here, and `LD_PRELOAD` there.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Options {
    /// An empty directory.
    at: PathBuf,
    /// Bytes of the disk.
    #[arg(long, default_value_t = 1 << 30)]
    size: u64,
    /// A name is safe with its directory's fsync only, as POSIX has it; without this with any later fsync of its file, as ext4 has it.
    #[arg(long)]
    posix: bool,
    /// May be said more than once.
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Makes a library for `LD_PRELOAD` in this directory, syncfs.so.
    #[arg(long, value_name = "DIR")]
    preload: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(dir) = &options.preload {
        faults::preload::library(dir)?;
    }
    let names = if options.posix {
        Names::WithDirectory
    } else {
        Names::WithFile
    };
    let mut disk = Disk::new(options.size, names);
    options.fault.into_iter().for_each(|fault| disk.add(fault));
    let mut mount = Mount::new(disk, &options.at)?;
    let mut output = io::stdout();
    writeln!(output, "ok").context("writing to standard output")?;
    for line in io::stdin().lock().lines() {
        let line = line.context("reading standard input")?;
        match obey(&mut mount, &line) {
            Ok(answer) => writeln!(output, "{answer}"),
            Err(error) => writeln!(output, "{error:#}"),
        }
        .context("writing to standard output")?;
    }
    Ok(())
}

fn obey(mount: &mut Mount, line: &str) -> Result<String> {
    let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    match word {
        "fault" => mount.disk().add(rest.parse()?),
        "clear" => mount.disk().clear(),
        "counts" => return Ok(format!("{:?}", mount.disk().counts())),
        "size" => mount
            .disk()
            .resize_disk(rest.parse().context("a number of bytes is wanted")?),
        "cut" => mount.disk().cut(),
        "restart" => mount.restart(rest.parse().context("a seed is wanted: a number")?)?,
        _ => bail!("{word:?} is none of fault, clear, counts, size, cut and restart"),
    }
    Ok("ok".to_owned())
}
