//! Programs whose output somebody else decides, a server or a cluster: bounded in bytes and in time.

use std::{
    io,
    process::{Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};

/// What a program may print, on both its outputs together.
pub const MOST: usize = 4 << 20;
const PIECE: usize = 64 * 1024;
/// Memory that runs out costs the program before it costs the agent, whose own value it would inherit.
const OOM_SCORE: &str = "500";

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    #[error(transparent)]
    Broken(#[from] io::Error),
    #[error("it did not end within {} s", .0.as_secs())]
    Late(Duration),
    #[error("it printed more than {} MiB", MOST >> 20)]
    TooMuch,
}

/// Returns when the program has ended, however it did. One that prints or takes too much is killed.
pub async fn output(
    command: &mut Command,
    input: &[u8],
    time: Duration,
) -> Result<Output, ChildError> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    give_way(&child);
    let ended = tokio::time::timeout(time, talk(&mut child, input)).await;
    let ended = ended.unwrap_or(Err(ChildError::Late(time)));
    if ended.is_err() {
        // Also so that it is waited for; one that is gone needs no signal.
        drop(child.kill().await);
    }
    ended
}

async fn talk(child: &mut Child, input: &[u8]) -> Result<Output, ChildError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let send = async {
        if let Some(mut stdin) = stdin {
            // A program that ends before it has read everything tells why by its exit code.
            drop(stdin.write_all(input).await);
        }
        Ok(())
    };
    let left = AtomicUsize::new(MOST);
    let ((), stdout, stderr) = tokio::try_join!(send, read(stdout, &left), read(stderr, &left))?;
    let status = child.wait().await?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// To its end, as long as something is `left`.
async fn read(
    from: Option<impl AsyncRead + Unpin>,
    left: &AtomicUsize,
) -> Result<Vec<u8>, ChildError> {
    let Some(mut from) = from else {
        return Ok(Vec::new());
    };
    // Memory is taken when it is written to; one that grew would be copied.
    let mut all = Vec::with_capacity(MOST);
    let mut piece = vec![0; PIECE];
    while let count @ 1.. = from.read(&mut piece).await? {
        let had = left.fetch_sub(count, Ordering::Relaxed);
        if had < count {
            return Err(ChildError::TooMuch);
        }
        all.extend_from_slice(&piece[..count]);
    }
    all.shrink_to_fit();
    Ok(all)
}

fn give_way(child: &Child) {
    if let Some(id) = child.id() {
        // It may have ended already.
        drop(std::fs::write(
            format!("/proc/{id}/oom_score_adj"),
            OOM_SCORE,
        ));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use super::*;

    const SECONDS: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn both_outputs_and_the_end_are_told() {
        let mut echo = shell("cat; echo no >&2; exit 3");
        let output = output(&mut echo, b"input", SECONDS).await.unwrap();
        assert_eq!(
            (output.stdout, output.stderr, output.status.code()),
            (b"input".to_vec(), b"no\n".to_vec(), Some(3))
        );
    }

    #[tokio::test]
    async fn a_program_that_reads_nothing_is_not_waited_for() {
        let mut deaf = shell("exec 0<&-; echo done");
        let output = output(&mut deaf, &vec![0; 1 << 20], SECONDS).await.unwrap();
        assert_eq!(output.stdout, b"done\n");
    }

    #[tokio::test]
    async fn one_that_does_not_end_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("echo $$ >{}; exec sleep 1000", pid.display());
        let late = output(&mut shell(&script), b"", Duration::from_secs(1)).await;
        assert!(matches!(late, Err(ChildError::Late(_))));
        let pid = std::fs::read_to_string(pid).unwrap();
        assert!(!std::path::Path::new("/proc").join(pid.trim()).exists());
    }

    /// What this process has taken at most, in bytes.
    fn peak() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() * 1024
    }

    /// Measured in a process of its own, where no other test takes memory.
    #[test]
    fn a_flood_costs_little_memory_and_ends_at_once() {
        const ALONE: &str = "FIRSTLIGHT_TEST_ALONE";
        const NAME: &str = "child::tests::a_flood_costs_little_memory_and_ends_at_once";
        if std::env::var_os(ALONE).is_none() {
            let alone = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", NAME])
                .env(ALONE, "yes")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&alone.stdout);
            assert!(
                alone.status.success() && text.contains("1 passed"),
                "{text}"
            );
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // The program's own pages are no cost of a flood.
        let small = runtime.block_on(output(&mut shell("echo; echo >&2"), b"", SECONDS));
        assert!(small.is_ok());
        let (before, since) = (peak(), Instant::now());
        for script in [
            "exec cat /dev/zero",
            "exec cat /dev/zero >&2",
            "cat /dev/zero & exec cat /dev/zero >&2",
        ] {
            let flood = runtime.block_on(output(&mut shell(script), b"", SECONDS));
            assert!(matches!(flood, Err(ChildError::TooMuch)), "{flood:?}");
        }
        assert!(since.elapsed() < SECONDS);
        assert!(peak() - before < 8_000_000, "{} bytes", peak() - before);
    }
}
