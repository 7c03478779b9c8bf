//! Where the options of a reply lie: in a message that the client takes, long ones in pieces (RFC 3396), and what finds no
//! room continued in the fields `file` and `sname` where these are empty (option 52, RFC 2132 section 9.3).

use std::ops::Range;

const HEAD: usize = 240;
const NAME: Range<usize> = 44..108;
const FILE: Range<usize> = 108..236;
const END: u8 = 255;
const RELAY_INFO: u8 = 82;
const OVERLOAD: u8 = 52;

/// Where there is not room for all, these come first: type, server, times, network, what to boot, and the client's own
/// identifier (RFC 6842).
const FIRST: [u8; 12] = [53, 54, 51, 1, 3, 67, 60, 43, 58, 59, 61, 66];

/// `bytes` is a whole message without option 82, which is to be its last one. What fits nowhere is left out.
pub fn fit(mut bytes: Vec<u8>, relay_info: Option<&[u8]>, room: usize) -> Vec<u8> {
    let mut last = Vec::new();
    for piece in relay_info.unwrap_or_default().chunks(255) {
        last.extend([RELAY_INFO, length(piece)]);
        last.extend_from_slice(piece);
    }
    if bytes.len() + last.len() <= room {
        bytes.splice(bytes.len() - 1..bytes.len() - 1, last);
        return bytes;
    }
    let mut options = split(&bytes[HEAD..]);
    options.sort_by_key(|(code, _)| FIRST.iter().position(|first| first == code).unwrap_or(99));
    // With room for the option that says where the rest is, and for the end.
    let main = room.saturating_sub(HEAD + last.len() + 4);
    let is_empty = |field: &Range<usize>| bytes[field.clone()].iter().all(|byte| *byte == 0);
    let fields =
        [(FILE, 1), (NAME, 2)].map(|(field, bit)| (is_empty(&field).then_some(field), bit));
    let mut areas = vec![(main, Vec::new())];
    // An option in pieces lies in one area, so that nobody joins them in another order.
    areas.extend(fields.iter().map(|(field, _)| {
        let room = field.as_ref().map_or(0, |field| field.len() - 1);
        (room, Vec::new())
    }));
    for (_, option) in options {
        let mut fitting = areas.iter_mut();
        if let Some((_, area)) = fitting.find(|(room, area)| area.len() + option.len() <= *room) {
            area.extend(option);
        }
    }
    let mut areas = areas.into_iter().map(|(_, area)| area);
    let mut main = areas.next().unwrap_or_default();
    let mut overload = 0;
    for ((field, bit), mut area) in fields.into_iter().zip(areas) {
        if let Some(field) = field.filter(|_| !area.is_empty()) {
            area.push(END);
            bytes[field.start..field.start + area.len()].copy_from_slice(&area);
            overload |= bit;
        }
    }
    if overload != 0 {
        main.extend([OVERLOAD, 1, overload]);
    }
    bytes.truncate(HEAD);
    bytes.extend(main);
    bytes.extend(last);
    bytes.push(END);
    bytes
}

/// The options of an encoded message in their order, each with all of its pieces.
fn split(mut rest: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut options: Vec<(u8, Vec<u8>)> = Vec::new();
    while let [code, length, ..] = rest {
        let (piece, behind) = rest.split_at((2 + usize::from(*length)).min(rest.len()));
        match options.last_mut() {
            Some((last, pieces)) if last == code => pieces.extend_from_slice(piece),
            _ => options.push((*code, piece.to_vec())),
        }
        rest = behind;
    }
    options
}

fn length(piece: &[u8]) -> u8 {
    u8::try_from(piece.len()).expect("pieces of at most 255")
}

#[cfg(test)]
mod tests;
