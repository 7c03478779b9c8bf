//! The head of a request that the kernel can answer with a file.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Of a request that is looked at, in bytes.
pub const MOST_HEAD: usize = 8 * 1024;
const HEADERS: usize = 64;

/// A request that was looked at.
#[derive(Clone, Debug)]
pub struct FileRequest {
    /// As it was sent, query and escapes included; begins with `/`.
    pub path: String,
    /// All of them.
    pub headers: HeaderMap,
    /// Bytes of the head.
    pub length: usize,
    /// The connection is for another request, too.
    pub stays: bool,
}

/// A plain `GET` of which nothing but its head was sent; `None`: it is not whole, or another server's business.
pub fn read_head(seen: &[u8]) -> Option<FileRequest> {
    let mut space = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut space);
    let httparse::Status::Complete(length) = request.parse(seen).ok()? else {
        return None;
    };
    let path = request.path.filter(|path| path.starts_with('/'))?;
    if request.method != Some("GET") || request.version != Some(1) {
        return None;
    }
    let mut headers = HeaderMap::new();
    for field in request.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    let hypers = [
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::EXPECT,
        header::UPGRADE,
    ];
    if hypers.iter().any(|name| headers.contains_key(name)) || !headers.contains_key(header::HOST) {
        return None;
    }
    let stays = match headers.get(header::CONNECTION) {
        None => true,
        Some(word) if word.as_bytes().eq_ignore_ascii_case(b"keep-alive") => true,
        Some(word) if word.as_bytes().eq_ignore_ascii_case(b"close") => false,
        Some(_) => return None,
    };
    Some(FileRequest {
        path: path.to_owned(),
        headers,
        length,
        stays,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_plain_request_is_taken_and_an_odd_one_is_left() {
        let asked = read_head(b"GET /images/a HTTP/1.1\r\nHost: box\r\nRange: bytes=1-\r\n\r\nGET")
            .unwrap();
        assert_eq!((asked.path.as_str(), asked.stays), ("/images/a", true));
        assert_eq!(asked.length, 54);
        assert_eq!(asked.headers[header::RANGE], "bytes=1-");
        let closes =
            read_head(b"GET /a HTTP/1.1\r\nHost: box\r\nConnection: Close\r\n\r\n").unwrap();
        assert!(!closes.stays);
        for odd in [
            "",
            "GET /a HTTP/1.1\r\nHost: box\r\n",
            "HEAD /a HTTP/1.1\r\nHost: box\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: box\r\nContent-Length: 2\r\n\r\n",
            "GET /a HTTP/1.0\r\nHost: box\r\n\r\n",
            "GET /a HTTP/1.1\r\n\r\n",
            "GET http://box/a HTTP/1.1\r\nHost: box\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: box\r\nContent-Length: 2\r\n\r\nab",
            "GET /a HTTP/1.1\r\nHost: box\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: box\r\nExpect: 100-continue\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: box\r\nConnection: Upgrade\r\n\r\n",
        ] {
            assert!(read_head(odd.as_bytes()).is_none(), "{odd:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_whole_request_or_left(
            random in proptest::collection::vec(any::<u8>(), 0..200),
            odd in "(GET|get|PUT) [/a-z?]{0,9} HTTP/1.[0-3]\r?\n(Host: [a-z]{0,5}\r?\n|[A-Za-z-]{1,12}: ?[ -~]{0,9}\r?\n){0,5}\r?\n[a-z]{0,5}",
        ) {
            for seen in [random.as_slice(), odd.as_bytes()] {
                if let Some(asked) = read_head(seen) {
                    prop_assert!(asked.length <= seen.len() && asked.path.starts_with('/'));
                    prop_assert!(seen[..asked.length].ends_with(b"\n"));
                }
            }
        }
    }
}
