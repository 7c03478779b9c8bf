//! One GET over plain HTTP, for reading the box through a forwarded port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The body of `http://ADDRESS/PATH` if the answer is 200.
pub fn get(address: SocketAddr, path: &str, timeout: Duration) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)
        .with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    // HTTP/1.0: the body ends with the connection, so there are no chunks to undo.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")
        .context("sending the request")?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .with_context(|| format!("reading {path}"))?;
    let (status, body) =
        parse_answer(&answer).with_context(|| format!("{path}: no whole HTTP answer"))?;
    if status != 200 {
        bail!("{path}: HTTP status {status}");
    }
    Ok(body.to_vec())
}

fn parse_answer(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let body = &answer[end + 4..];
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        Some(length) => Some((status, body.get(..length)?)),
        None => Some((status, body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_is_no_answer() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(parse_answer(whole), Some((200, &b"body"[..])));
        for cut in 0..whole.len() {
            assert_eq!(parse_answer(&whole[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn a_body_without_length_ends_with_the_connection() {
        assert_eq!(
            parse_answer(b"HTTP/1.0 503 Starting\r\n\r\nnot yet"),
            Some((503, &b"not yet"[..]))
        );
    }
}
