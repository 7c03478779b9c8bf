#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

/// Answers whatever is asked with the same bytes, in pieces of `piece`.
pub struct Parrot {
    answer: Vec<u8>,
    piece: usize,
    at: usize,
}

impl Parrot {
    pub fn new(answer: impl Into<Vec<u8>>, piece: usize) -> Self {
        Self {
            answer: answer.into(),
            piece,
            at: 0,
        }
    }
}

impl Write for Parrot {
    fn write(&mut self, command: &[u8]) -> io::Result<usize> {
        self.at = 0;
        Ok(command.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Parrot {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.answer[self.at..];
        let length = rest.len().min(self.piece).min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }
}

/// `TPM2_CreatePrimary`'s answer of swtpm 0.7.1, whose key this is.
const ANSWER: &[u8] = include_bytes!("create-primary.bin");
const KEY_AT: usize = 10 + 4 + 4 + 2 + 2 + 2 + 4 + 2 + 8;

fn key() -> Vec<u8> {
    let (x, y) = ANSWER[KEY_AT..].split_at(34);
    [&[4], &x[2..], &y[2..34]].concat()
}

fn loaded(answer: &[u8], piece: usize) -> Result<Point, Refusal> {
    load(&mut Parrot::new(answer, piece), machine_key()).map(|(_, point)| point)
}

#[test]
fn an_answer_is_read_in_whatever_pieces_it_comes() {
    for piece in [1, 3, 9, 10, 11, 4096] {
        let point = loaded(ANSWER, piece).unwrap();
        assert_eq!(point.as_bytes()[..], key()[..], "{piece}");
    }
}

#[test]
fn what_is_no_answer_is_refused_with_its_reason() {
    let with = |at: usize, bytes: &[u8]| {
        let mut answer = ANSWER.to_vec();
        answer[at..at + bytes.len()].copy_from_slice(bytes);
        loaded(&answer, 4096).unwrap_err().to_string()
    };
    let says = |text: String, part: &str| assert!(text.contains(part), "{text}");
    says(with(2, &[0, 0, 16, 1]), "longer than 4096 bytes");
    says(with(2, &u32::MAX.to_be_bytes()), "longer than 4096 bytes");
    says(with(2, &[0, 0, 2, 0]), "cannot be spoken to");
    says(with(2, &[0; 4]), "makes no sense");
    says(with(KEY_AT, &[0, 66]), "makes no sense");
    says(with(KEY_AT - 8, &[0, 0xff]), "makes no sense");
    let locked_out = [0x80, 1, 0, 0, 0, 10, 0, 0, 9, 0x21];
    says(
        loaded(&locked_out, 4096).unwrap_err().to_string(),
        "LOCKOUT",
    );
    says(
        loaded(&[], 4096).unwrap_err().to_string(),
        "cannot be spoken to",
    );
}

#[test]
fn a_coordinate_may_have_lost_its_zeros() {
    assert_eq!(coordinate(&[7]).unwrap()[31], 7);
    assert_eq!(coordinate(&[]).unwrap(), [0; 32]);
    assert!(matches!(coordinate(&[1; 33]), Err(Refusal::OtherKey)));
}

#[test]
fn the_keys_have_stayed_the_same_since_boxes_know_them() {
    for (template, bytes) in [
        (
            machine_key(),
            &b"\0\x23\0\x0b\0\x02\x04\x72\0\0\0\x10\0\x10\0\x03\0\x10\0\0\0\0"[..],
        ),
        (
            quote_key(),
            b"\0\x23\0\x0b\0\x05\x04\x72\0\0\0\x10\0\x18\0\x0b\0\x03\0\x10\0\0\0\0",
        ),
    ] {
        let mut buffer = [0; 256];
        let mut writer = TpmWriter::new(&mut buffer);
        template.marshal(&mut writer).unwrap();
        assert_eq!(writer.as_bytes(), bytes);
    }
}

proptest! {
    #[test]
    fn any_bytes_of_a_tpm_are_a_key_or_a_refusal(answer in prop::collection::vec(any::<u8>(), 0..5000), piece in 1_usize..600) {
        prop_assert!(loaded(&answer, piece).is_err());
        prop_assert!(multiply(&mut Parrot::new(answer.clone(), piece), TpmUint32::new(0), &Point::new([4; 65])).is_err());
        prop_assert!(quote(&mut Parrot::new(answer.clone(), piece), &Digest::new([1; 32])).is_err());
        prop_assert!(sign(&mut Parrot::new(answer, piece), TpmUint32::new(0), &Digest::new([1; 32])).is_err());
    }

    #[test]
    fn a_damaged_answer_is_read_or_refused(at in 0..ANSWER.len(), byte in any::<u8>(), end in 0..=ANSWER.len()) {
        let mut answer = ANSWER.to_vec();
        answer[at] = byte;
        answer.truncate(end);
        let read = loaded(&answer, 100);
        // Only its whole length is as long as it says.
        prop_assert!(end == ANSWER.len() || read.is_err());
    }
}
