//! The body of a reply: of a given length, in chunks (RFC 9112 section 7.1), or up to the end of the connection.

use std::io::{self, BufRead, BufReader, Read};

use super::{Head, Wire};

/// The rest of one connection, decoded by [`Read`]. Where the server said how long it is, a cut is an `UnexpectedEof`, never an end.
pub struct Body {
    wire: BufReader<Box<dyn Wire>>,
    framing: Framing,
}

#[derive(Debug)]
enum Framing {
    Length(u64),
    /// Bytes left in this chunk.
    Chunk(u64),
    FirstChunk,
    UntilClose,
    Done,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body")
            .field("framing", &self.framing)
            .finish_non_exhaustive()
    }
}

impl Body {
    pub(super) fn new(
        wire: BufReader<Box<dyn Wire>>,
        method: &str,
        head: &Head,
    ) -> io::Result<Self> {
        let header = |name| head.header(name).map(str::trim);
        let status = head.status;
        let framing = if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            Framing::Done
        } else if header("transfer-encoding")
            .is_some_and(|v| v.to_ascii_lowercase().contains("chunked"))
        {
            Framing::FirstChunk
        } else if let Some(length) = header("content-length") {
            let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "a body without a length");
            Framing::Length(length.parse().map_err(invalid)?)
        } else {
            Framing::UntilClose
        };
        Ok(Self { wire, framing })
    }

    /// Bytes still to come, where the server said.
    pub fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(left) => Some(left),
            _ => None,
        }
    }

    fn read_some(&mut self, buffer: &mut [u8], left: u64) -> io::Result<usize> {
        let most = usize::try_from(left).map_or(buffer.len(), |l| l.min(buffer.len()));
        let read = self.wire.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(cut());
        }
        Ok(read)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.wire).take(8192).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(cut());
        }
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
    }

    /// The size line of the next chunk; the last one is followed by trailers that end in an empty line.
    fn next_chunk(&mut self) -> io::Result<u64> {
        let line = self.line()?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a chunk without a size"))?;
        if size == 0 {
            while !self.line()?.is_empty() {}
        }
        Ok(size)
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.framing {
                Framing::Done | Framing::Length(0) => return Ok(0),
                Framing::UntilClose => return self.wire.read(buffer),
                Framing::Length(left) => {
                    let read = self.read_some(buffer, left)?;
                    self.framing = Framing::Length(left - read as u64);
                    return Ok(read);
                }
                Framing::Chunk(left) if left > 0 => {
                    let read = self.read_some(buffer, left)?;
                    self.framing = Framing::Chunk(left - read as u64);
                    return Ok(read);
                }
                Framing::Chunk(_) | Framing::FirstChunk => {
                    if matches!(self.framing, Framing::Chunk(_)) {
                        self.line()?;
                    }
                    self.framing = match self.next_chunk()? {
                        0 => Framing::Done,
                        size => Framing::Chunk(size),
                    };
                }
            }
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the connection was cut in the middle",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn body(headers: &[(&str, &str)], wire: &[u8]) -> Body {
        let wire: Box<dyn Wire> = Box::new(Cursor::new(wire.to_vec()));
        Body::new(BufReader::new(wire), "GET", &Head::of(200, headers)).unwrap()
    }

    fn read(mut body: Body) -> io::Result<String> {
        let mut text = String::new();
        body.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn every_framing_ends_where_it_should() {
        let chunked = [("Transfer-Encoding", "chunked")];
        assert_eq!(
            read(body(&[("content-length", "3")], b"abcd")).unwrap(),
            "abc"
        );
        assert_eq!(
            read(body(
                &chunked,
                b"2\r\nab\r\n3;x=1\r\ncde\r\n0\r\nt: u\r\n\r\nrest"
            ))
            .unwrap(),
            "abcde"
        );
        assert_eq!(read(body(&[], b"until the end")).unwrap(), "until the end");
    }

    #[test]
    fn a_cut_is_an_error_and_not_an_end() {
        let chunked = [("Transfer-Encoding", "chunked")];
        for cut in [
            body(&[("content-length", "5")], b"abc"),
            body(&chunked, b"5\r\nabc"),
            body(&chunked, b"3\r\nabc\r\n"),
            body(&chunked, b"3\r\nabc\r\n0\r\n"),
        ] {
            assert_eq!(read(cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read_as_chunks(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut sink = Vec::new();
            let _ = body(&[("transfer-encoding", "chunked")], &bytes).read_to_end(&mut sink);
        }
    }
}
