//! Requests for the box's files, one after the other on a connection.

use std::path::{Component, Path};

use firstlight_requests::{
    RangeReply, is_plain, is_plain_version, normalize, plan_range, read_head, unescape,
};

const LENGTH: u64 = 700_001;
const ETAG: &str = "\"1-2\"";

/// Each head is taken from what came, and the next one is looked for behind it.
pub fn run(mut bytes: &[u8]) {
    while let Some(asked) = read_head(bytes) {
        assert!(asked.length > 0 && asked.length <= bytes.len());
        assert!(asked.path.starts_with('/'));
        for length in [0, 1, LENGTH] {
            if let RangeReply::Part { first, last } = plan_range(&asked.headers, length, ETAG) {
                assert!(first <= last && last < length);
            }
        }
        path(&asked.path);
        bytes = &bytes[asked.length..];
    }
}

/// Whatever is let through stays below the folder that it is looked for in.
fn path(sent: &str) {
    let normal = normalize(sent);
    assert!(!normal.contains("//") && normalize(&normal) == normal);
    let below = normal.trim_start_matches('/');
    assert!(!is_plain(below) || !below.contains('/'));
    let below = unescape(below);
    if below.split('/').all(is_plain_version) {
        let found = Path::new("/srv").join(&*below);
        let mut parts = found.components();
        assert!(found.starts_with("/srv") && parts.all(|part| part != Component::ParentDir));
    }
}

/// What boot loaders, ramdisks and apt ask for.
pub fn seeds() -> Vec<Vec<u8>> {
    let requests: [&[u8]; 6] = [
        b"GET /boot/kernel HTTP/1.1\r\nHost: 172.22.0.1\r\nConnection: close\r\n\r\n",
        b"GET /sub//grubx64.efi HTTP/1.1\r\nHost: box\r\nRange: bytes=0-1023\r\n\r\nGET /a HTTP/1.1\r\nHost: box\r\n\r\n",
        b"GET /images/node.raw.zst HTTP/1.1\r\nHost: box\r\nRange: bytes=-500\r\nIf-Range: \"1-2\"\r\nConnection: keep-alive\r\n\r\n",
        b"GET /apt/base/pool/a%2bb_1%7e2.deb HTTP/1.1\r\nHost: box\r\nIf-None-Match: \"1-2\", W/\"3\"\r\n\r\n",
        b"GET /images/..%2f..%2fetc HTTP/1.1\r\nHost: box\r\nRange: bytes=5-4,9-\r\n\r\n",
        b"POST /api/v1/ramdisk/report HTTP/1.1\r\nHost: box\r\nContent-Length: 2\r\n\r\n{}",
    ];
    requests.map(<[u8]>::to_vec).into()
}
