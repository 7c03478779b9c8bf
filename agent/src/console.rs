//! The banner on the console, on the screen and above the login prompt.

use std::{fs::OpenOptions, io::Write, path::Path, time::Duration};

use anyhow::Result;
use firstlight_api::status::SiteStatus;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    files::{self, Access},
    paths::Paths,
    status::banner,
};

/// Bring-up steps end in bursts; a serial console is slow.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// Prints the banner whenever it changed. Standard output is the console: systemd opens `/dev/console` for us.
pub async fn run(
    paths: Paths,
    mut status: watch::Receiver<SiteStatus>,
    stop: CancellationToken,
) -> Result<()> {
    let mut shown = String::new();
    loop {
        let banner = banner::render(&status.borrow_and_update());
        if banner != shown {
            show(&paths, &banner);
            shown = banner;
        }
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return Ok(()) },
            () = stop.cancelled() => return Ok(()),
        }
        tokio::time::sleep(AT_MOST_EVERY).await;
    }
}

/// A console that cannot be written to is no reason to fail: the page has the same facts.
fn show(paths: &Paths, banner: &str) {
    // The console may be in raw mode.
    let lines = format!("\r\n{}", banner.replace('\n', "\r\n"));
    let console = std::io::stdout()
        .write_all(lines.as_bytes())
        .and_then(|()| std::io::stdout().flush());
    let screen = append(&paths.screen(), &lines);
    // agetty(8) would read a backslash as an escape sequence.
    let issue = files::write(
        &paths.issue(),
        format!("{}\n", banner.replace('\\', "\\\\")).as_bytes(),
        Access::Everybody,
    );
    if let Err(error) = console.and(screen) {
        tracing::debug!(%error, "the banner was not shown everywhere");
    }
    if let Err(error) = issue {
        tracing::debug!(
            error = format!("{error:#}"),
            "the banner is not above the login prompt"
        );
    }
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new()
        .append(true)
        .open(path)?
        .write_all(text.as_bytes())
}
