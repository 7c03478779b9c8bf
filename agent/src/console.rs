//! The banner on the console, and above the login prompts of the console and the screen.

use std::{fs, io::Write, path::Path, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::status::SiteStatus;
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
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
    mut code: watch::Receiver<Option<String>>,
    stop: CancellationToken,
) -> Result<()> {
    let stdout = std::io::stdout();
    let console = spawn_writer("console", move |lines| {
        (&stdout).write_all(lines.as_bytes())?;
        (&stdout).flush()
    })?;
    let mut shown = String::new();
    loop {
        let mut banner = banner::render(&status.borrow_and_update());
        if let Some(code) = code.borrow_and_update().as_deref() {
            banner.push_str(&way_in(&status.borrow().network.address, code));
        }
        if banner != shown {
            // It may be in raw mode.
            console.send_replace(format!("\n{banner}").replace('\n', "\r\n"));
            // A serial line is read by nobody's telephone.
            let picture = code_of_page(&status.borrow().network.address);
            write_issue(&paths.issue(), &banner);
            write_issue(&paths.screen_issue(), &format!("{picture}{banner}"));
            show_anew(&paths.prompts());
            shown = banner;
        }
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return Ok(()) },
            changed = code.changed() => if changed.is_err() { return Ok(()) },
            () = stop.cancelled() => return Ok(()),
        }
        tokio::time::sleep(AT_MOST_EVERY).await;
    }
}

/// Only who stands here, or reads the serial line, sees the code.
fn way_in(address: &str, code: &str) -> String {
    let address = address.split('/').next().unwrap_or_default();
    if address.is_empty() {
        return String::new();
    }
    format!("To look after this site: https://{address}/first, code {code}\n")
}

/// The address of the page as a QR code, for a dark screen; nothing without an address.
fn code_of_page(address: &str) -> String {
    let address = address.split('/').next().unwrap_or_default();
    if address.is_empty() {
        return String::new();
    }
    // Capitals have a shorter code.
    let url = format!("HTTP://{address}");
    QrCode::with_error_correction_level(url, EcLevel::L).map_or_else(
        |_| String::new(),
        |code| {
            let code = code
                .render::<Dense1x2>()
                .dark_color(Dense1x2::Light)
                .light_color(Dense1x2::Dark)
                .build();
            code + "\n"
        },
    )
}

/// A thread of its own, because a terminal whose flow is stopped (Ctrl-S, a serial line without a reader) takes nothing for
/// ever. It writes the newest text when it can; what came in between is left out. A terminal that cannot be written to is no
/// reason to fail: the page has the same facts.
fn spawn_writer(
    name: &'static str,
    write: impl Fn(&str) -> std::io::Result<()> + Send + 'static,
) -> Result<watch::Sender<String>> {
    let (sender, mut newest) = watch::channel(String::new());
    let waiting = tokio::runtime::Handle::current();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            while waiting.block_on(newest.changed()).is_ok() {
                let lines = newest.borrow_and_update().clone();
                if let Err(error) = write(&lines) {
                    tracing::debug!(%error, terminal = name, "the banner was not shown");
                }
            }
        })
        .with_context(|| format!("starting a thread for the {name}"))?;
    Ok(sender)
}

fn write_issue(path: &Path, banner: &str) {
    // agetty(8) would read a backslash as an escape sequence.
    let issue = format!("{}\n", banner.replace('\\', "\\\\"));
    if let Err(error) = files::write(path, issue.as_bytes(), Access::Everybody) {
        tracing::debug!(
            error = format!("{error:#}"),
            "the banner is not above the login prompt"
        );
    }
}

/// A getty that somebody has begun to log in at is left alone. The terminal is its own: nobody else may write to it.
fn show_anew(prompts: &Path) {
    if prompts.exists()
        && let Err(error) = fs::write(prompts, "\n")
    {
        tracing::debug!(%error, "login prompts stay as they are");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_code_of_the_first_operator_is_shown_with_where_to_say_it() {
        let shown = way_in("172.22.0.1/24", "ABCDE-23456");
        assert_eq!(
            shown,
            "To look after this site: https://172.22.0.1/first, code ABCDE-23456\n"
        );
        assert_eq!(way_in("", "ABCDE-23456"), "");
    }

    #[test]
    fn a_screen_has_room_for_the_code_of_the_page_beside_what_is_told() {
        assert_eq!(code_of_page(""), "");
        let code = code_of_page("172.22.0.1/24");
        let lines: Vec<_> = code.lines().collect();
        assert!(lines.len() <= 15, "{code}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 29),
            "{code}"
        );
        // White around it, which is what a dark screen has to draw.
        assert!(lines[0].chars().all(|c| c == '█'), "{code}");
    }

    #[tokio::test]
    async fn a_terminal_that_takes_nothing_stops_nobody_and_then_gets_the_newest_text() {
        let (wrote, written) = mpsc::channel();
        let (flow, stopped) = mpsc::channel::<()>();
        let writer = spawn_writer("test", move |lines| {
            wrote.send(lines.to_owned()).unwrap();
            stopped.recv().unwrap();
            Ok(())
        })
        .unwrap();
        writer.send_replace("first".to_owned());
        let next = || written.recv_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!(next(), "first");
        for count in 0..1000 {
            writer.send_replace(count.to_string());
        }
        flow.send(()).unwrap();
        assert_eq!(next(), "999");
        flow.send(()).unwrap();
    }
}
