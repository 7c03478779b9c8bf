//! Status line and headers of a reply.

use std::io::{self, BufRead, Read as _};

/// All of it, at most.
const LIMIT: u64 = 64 << 10;

/// 64 KiB and 64 headers at most; more is an error.
#[derive(Debug)]
pub struct Head {
    /// Of the status line: 200 for `HTTP/1.1 200 OK`.
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Reads up to and with the empty line.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Self> {
        Self::parse(&read_lines(reader)?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
    }

    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        if !response.parse(bytes).ok()?.is_complete() {
            return None;
        }
        let text = |value| String::from_utf8_lossy(value).into_owned();
        let headers = response.headers.iter();
        Some(Self {
            status: response.code?,
            headers: headers
                .map(|header| (header.name.to_owned(), text(header.value)))
                .collect(),
        })
    }

    #[cfg(test)]
    pub(super) fn of(status: u16, headers: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            status,
            headers: headers.iter().map(owned).collect(),
        }
    }
}

fn read_lines(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut limited = reader.take(LIMIT);
    loop {
        let before = head.len();
        limited.read_until(b'\n', &mut head)?;
        if head.len() == before || !head.ends_with(b"\n") {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended in the header",
            ));
        }
        if matches!(&head[before..], b"\r\n" | b"\n") {
            return Ok(head);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_ends_at_the_empty_line_and_at_its_limit() {
        let mut wire: &[u8] = b"HTTP/1.1 206 Partial\r\nA: b\r\n\r\nbody";
        let head = Head::read(&mut wire).unwrap();
        assert_eq!(wire, b"body");
        assert_eq!((head.status, head.header("a")), (206, Some("b")));
        let kind = |wire: &[u8]| Head::read(&mut &*wire).unwrap_err().kind();
        assert_eq!(kind(b"SSH-2.0-x\r\n\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"HTTP/1.1 200 OK\r\n"), io::ErrorKind::UnexpectedEof);
        let endless = io::repeat(b'a');
        assert!(read_lines(&mut BufReader::new(endless)).is_err());
        let mut lines = BufReader::new(io::Cursor::new(b"a: b\r\n".repeat(100_000)));
        assert!(read_lines(&mut lines).is_err());
    }

    proptest! {
        #[test]
        fn any_head_is_read_or_refused(
            line in prop_oneof![Just("HTTP/1.1 200 OK\r\n"), Just("HTTP/1.0 1\n"), Just("")],
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let wire = [line.as_bytes(), &bytes, b"\r\n\r\nrest"].concat();
            let mut left = &wire[..];
            if let Ok(head) = read_lines(&mut left) {
                prop_assert_eq!([&head, left].concat(), wire);
                if let Some(Head { headers, .. }) = Head::parse(&head) {
                    let breaks = headers.iter().any(|(name, value)| format!("{name}{value}").contains(['\r', '\n']));
                    prop_assert!(!breaks, "{headers:?}");
                }
            }
        }
    }
}
