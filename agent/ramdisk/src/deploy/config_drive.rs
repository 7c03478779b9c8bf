//! The config drive as Ironic gives it: base64(gzip(file system)), or a URL that serves that or the file system.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstlight_client::http::{Client, HttpError, Request};

/// Size of its partition, and so of the file system at most.
pub const LENGTH: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ConfigDriveError {
    #[error("fetching the config drive")]
    Fetch(#[from] HttpError),
    #[error("reading the config drive from its URL")]
    Read(#[source] std::io::Error),
    #[error("the config drive's URL answered with status {0}")]
    Status(u16),
    #[error("the config drive is neither base64 nor a URL")]
    Base64(#[from] base64::DecodeError),
    #[error("unpacking the config drive")]
    Unpack(#[source] std::io::Error),
    #[error("the config drive is larger than 64 MiB")]
    TooLarge,
    #[error("the config drive is empty")]
    Empty,
}

/// The bytes to put into the partition.
pub fn load(source: &str, client: &Client) -> Result<Vec<u8>, ConfigDriveError> {
    if !(source.starts_with("http://") || source.starts_with("https://")) {
        return unpack(source.as_bytes());
    }
    let mut reply = client.send(&Request::get(source))?;
    if reply.status() != 200 {
        return Err(ConfigDriveError::Status(reply.status()));
    }
    let body = reply
        .read_body(2 * LENGTH)
        .map_err(ConfigDriveError::Read)?;
    // A file system has zero bytes in its first blocks, base64 never.
    if body.contains(&0) && !body.starts_with(&[0x1F, 0x8B]) {
        return check(body);
    }
    unpack(&body)
}

/// The box writes the ramdisk's public key into the drive. Whoever has the private one, of the same length, puts it in its
/// place: on the way to the disk nobody else learns it.
pub fn hand_over(drive: &mut [u8], public: &str, private: &str) {
    let (public, private) = (public.as_bytes(), private.as_bytes());
    if public.is_empty() || public.len() != private.len() {
        return;
    }
    let mut at = 0;
    while let Some(found) = drive[at..]
        .windows(public.len())
        .position(|window| window == public)
    {
        at += found;
        drive[at..at + private.len()].copy_from_slice(private);
        at += private.len();
    }
}

fn unpack(text: &[u8]) -> Result<Vec<u8>, ConfigDriveError> {
    let packed = if text.starts_with(&[0x1F, 0x8B]) {
        text.to_vec()
    } else {
        let text: Vec<u8> = text
            .iter()
            .copied()
            .filter(|b| !b.is_ascii_whitespace())
            .collect();
        STANDARD.decode(text)?
    };
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(packed.as_slice())
        .take(LENGTH + 1)
        .read_to_end(&mut bytes)
        .map_err(ConfigDriveError::Unpack)?;
    check(bytes)
}

fn check(bytes: Vec<u8>) -> Result<Vec<u8>, ConfigDriveError> {
    match bytes.len() as u64 {
        0 => Err(ConfigDriveError::Empty),
        length if length > LENGTH => Err(ConfigDriveError::TooLarge),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use std::io::Write;

    fn packed(bytes: &[u8]) -> String {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        STANDARD.encode(gzip.finish().unwrap())
    }

    #[test]
    fn the_public_key_becomes_the_private_one_wherever_it_stands() {
        let mut drive = b"a PUBL b PUBL".to_vec();
        hand_over(&mut drive, "PUBL", "priv");
        assert_eq!(drive, b"a priv b priv");
        hand_over(&mut drive, "priv", "longer");
        hand_over(&mut drive, "", "");
        assert_eq!(drive, b"a priv b priv");
    }

    fn client() -> Client {
        Client::new(None, std::time::Duration::from_secs(1))
    }

    #[test]
    fn base64_of_gzip_is_unpacked_even_when_folded() {
        let bytes = b"CD001 and so on".repeat(100);
        let text = packed(&bytes);
        let folded = text
            .as_bytes()
            .chunks(76)
            .map(|l| std::str::from_utf8(l).unwrap())
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(load(&text, &client()).unwrap(), bytes);
        assert_eq!(load(&folded, &client()).unwrap(), bytes);
    }

    #[test]
    fn what_is_no_config_drive_is_refused() {
        assert!(matches!(
            load("{}", &client()),
            Err(ConfigDriveError::Base64(_))
        ));
        assert!(matches!(
            load("YWJj", &client()),
            Err(ConfigDriveError::Unpack(_))
        ));
        assert!(matches!(
            load(&packed(b""), &client()),
            Err(ConfigDriveError::Empty)
        ));
        let large = vec![0; usize::try_from(LENGTH).unwrap() + 1];
        assert!(matches!(
            load(&packed(&large), &client()),
            Err(ConfigDriveError::TooLarge)
        ));
    }

    proptest! {
        #[test]
        fn any_text_is_a_drive_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), gzip: bool, at in 0_usize..300) {
            prop_assert!(unpack(&bytes).is_ok_and(|drive| drive.len() as u64 <= LENGTH) || unpack(&bytes).is_err());
            let mut text = packed(&bytes).into_bytes();
            if gzip {
                text = STANDARD.decode(&text).unwrap();
            }
            let whole = unpack(&text);
            prop_assert_eq!(whole.ok(), (!bytes.is_empty()).then(|| bytes.clone()));
            drop(unpack(&text[..at % text.len()]));
        }

        #[test]
        fn a_key_is_put_into_any_drive_without_a_change_of_its_length(
            mut drive in proptest::collection::vec(0_u8..3, 0..60),
            public in "[\u{0}-\u{2}]{0,4}",
            private in "[a-c]{0,4}",
        ) {
            let before = drive.clone();
            hand_over(&mut drive, &public, &private);
            prop_assert_eq!(drive.len(), before.len());
            if public.len() == private.len() && !public.is_empty() {
                let left = drive.windows(public.len()).any(|window| window == public.as_bytes());
                prop_assert!(!left);
            }
        }
    }
}
