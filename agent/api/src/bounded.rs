//! Values from outside, within limits: texts that may be shown anywhere, lists of a bearable length, numbers that every
//! reader can hold.

use serde_json::Value;

/// Characters of a text.
const LONGEST: usize = 256;
/// Characters of a sentence that people read.
const LONGEST_SENTENCE: usize = 1000;

/// There is more of something than any server has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found} {what}; at most {most} are taken")]
pub struct Excess {
    what: &'static str,
    found: usize,
    most: usize,
}

/// Refuses more than `most`; the error says `what`, a plural, in its sentence.
pub fn length(what: &'static str, found: usize, most: usize) -> Result<(), Excess> {
    if found > most {
        return Err(Excess { what, found, most });
    }
    Ok(())
}

/// What is not a list is an empty one.
pub fn list<'a>(what: &'static str, value: &'a Value, most: usize) -> Result<&'a [Value], Excess> {
    let list = value.as_array().map_or(&[][..], Vec::as_slice);
    length(what, list.len(), most)?;
    Ok(list)
}

/// Cut, and without what a terminal or a reader of logs obeys.
pub fn text(text: &str) -> String {
    shown(text, LONGEST)
}

/// As [`text`], for what a program says of its trouble: it may quote what it met.
pub fn sentence(text: &str) -> String {
    shown(text, LONGEST_SENTENCE)
}

/// As [`text`], of `most` characters; what is many lines becomes one.
pub fn line(text: &str, most: usize) -> String {
    shown(&text.replace(['\n', '\r', '\t'], " "), most)
}

fn shown(text: &str, most: usize) -> String {
    let shown = |c: char| {
        let turns_text_round = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns_text_round {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().take(most).map(shown).collect()
}

/// What is not a string is an empty one.
pub fn string(value: &Value) -> String {
    text(value.as_str().unwrap_or_default())
}

/// Kubernetes holds numbers as 64 bits with a sign.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0).min(i64::MAX.unsigned_abs())
}
