//! A copy of the audit log at a log host of the site, which outlives the stick: syslog (RFC 5424) over TCP, each message behind its length
//! (RFC 6587, section 3.4.1).

use std::{net::SocketAddr, time::Duration};

use firstlight_api::{people::AuditLine, status::Problem};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::{mpsc, watch},
};

use super::DONE;
use crate::status::StatusSender;

const SOURCE: &str = "log-host";
/// Lines that wait for a log host that is away; then the oldest are not copied.
pub const MOST_WAITING: usize = 1024;
const AGAIN: Duration = Duration::from_secs(10);
const TIME: Duration = Duration::from_secs(10);
/// Facility 13 ("log audit") with severity 5 (notice) and 4 (warning).
const NOTICE: u8 = 13 * 8 + 5;
const WARNING: u8 = 13 * 8 + 4;

/// Sends what comes to `host`, for ever; a line that may not have arrived is sent again.
pub async fn copy(
    host: SocketAddr,
    lines: &mut mpsc::Receiver<AuditLine>,
    lost: watch::Receiver<u64>,
    status: &StatusSender,
) {
    let mut next: Option<AuditLine> = None;
    loop {
        let talked = async {
            let mut stream = TcpStream::connect(host).await?;
            tell(status, host, None, *lost.borrow());
            loop {
                let line = if let Some(line) = next.take() {
                    line
                } else {
                    // Who hangs up is noticed at once, not with the next line.
                    tokio::select! {
                        Some(line) = lines.recv() => line,
                        error = hung_up(&mut stream) => return Err(error),
                    }
                };
                let message = message(&line);
                next = Some(line);
                tokio::time::timeout(TIME, stream.write_all(&message)).await??;
                next = None;
            }
        };
        let talked: std::io::Result<()> = talked.await;
        if let Err(error) = talked {
            tell(status, host, Some(&error), *lost.borrow());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// A log host says nothing; what it says ends with it.
async fn hung_up(stream: &mut TcpStream) -> std::io::Error {
    loop {
        let mut said = [0; 512];
        match stream
            .readable()
            .await
            .and_then(|()| stream.try_read(&mut said))
        {
            Ok(0) => return std::io::Error::other("it closed the connection"),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}

fn tell(status: &StatusSender, host: SocketAddr, error: Option<&std::io::Error>, lost: u64) {
    let away = error.map(|error| Problem {
        what: format!("the log host {host} does not take the audit log: {error}"),
        next: format!(
            "start a syslog server there that listens over TCP, or take `logHost` out of site.yaml; {MOST_WAITING} lines wait for it, and all are on the stick"
        ),
    });
    let lost = (lost > 0).then(|| Problem {
        what: format!("{lost} lines of the audit log were not copied to the log host {host}"),
        next: "`firstlight audit` shows what the stick has".to_owned(),
    });
    status.problems(SOURCE, away.into_iter().chain(lost).collect());
}

/// With its length.
fn message(line: &AuditLine) -> Vec<u8> {
    let priority = if line.outcome == DONE {
        NOTICE
    } else {
        WARNING
    };
    let text = serde_json::to_string(line).unwrap_or_default();
    let message = format!("<{priority}>1 {} firstlight audit - - - {text}", line.time);
    format!("{} {message}", message.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;
    use crate::status;

    fn line(what: &str) -> AuditLine {
        AuditLine {
            time: "2026-11-29T10:00:00Z".to_owned(),
            who: "ada".to_owned(),
            from: "172.22.0.9".to_owned(),
            what: what.to_owned(),
            target: String::new(),
            outcome: DONE.to_owned(),
        }
    }

    async fn read(stream: &mut TcpStream) -> String {
        let mut length = String::new();
        loop {
            match stream.read_u8().await.unwrap() {
                b' ' => break,
                digit => length.push(char::from(digit)),
            }
        }
        let mut message = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut message).await.unwrap();
        String::from_utf8(message).unwrap()
    }

    #[tokio::test]
    async fn lines_reach_the_log_host_also_after_it_was_away() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap();
        let (sender, mut lines) = mpsc::channel(8);
        let (status, mut reader, owner) = status::channel("1");
        let stop = tokio_util::sync::CancellationToken::new();
        tokio::spawn(status::own(owner, stop.clone()));
        let copying = tokio::spawn(async move {
            copy(host, &mut lines, watch::channel(0).1, &status).await;
        });
        sender.send(line("log in")).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let message = read(&mut stream).await;
        assert!(
            message.starts_with("<109>1 2026-11-29T10:00:00Z firstlight audit - - - {")
                && message.contains("\"what\":\"log in\""),
            "{message}"
        );
        drop(stream);
        let told = reader.wait_for(|status| {
            let mut problems = status.problems.iter();
            problems.any(|problem| problem.what.contains("closed the connection"))
        });
        drop(tokio::time::timeout(TIME, told).await.unwrap().unwrap());
        sender.send(line("make token")).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(read(&mut stream).await.contains("make token"));
        let told = reader.wait_for(|status| status.problems.is_empty());
        drop(tokio::time::timeout(TIME, told).await.unwrap().unwrap());
        copying.abort();
        stop.cancel();
    }
}
