//! `/changes?of=PAGE`: a page as server-sent events. The first has all of it, each later one what changed: a page of 500 servers of which one
//! goes on is a few hundred bytes.
//!
//! A text is cut before each `<`; of two texts the stretches that differ are told as `[AT, GONE, "TEXT"]`, places of the text before.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use firstlight_api::status::SiteStatus;
use imara_diff::{Algorithm, Diff, InternedInput, TokenSource};
use serde::Serialize;
use tokio::sync::watch;

use super::{
    Web,
    events::{Tells, event},
    latest::Latest,
    page::{self, Manner, Page, Reader},
};
use crate::{clock, people::Who};

pub const PATH: &str = "/changes";

/// Texts that are kept to be told to more than one reader: of a thousand servers each is half a megabyte.
const MOST: usize = 16;

/// Each page as it is told, for all its readers.
#[derive(Default)]
pub struct Pages {
    kept: Mutex<HashMap<(Page, Reader, Manner), Arc<Latest>>>,
    kind: Arc<()>,
    /// One after the other, and then a pause of three times as long: whoever asks for a thousand different pages has a quarter of a
    /// processor, and not all.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Pages {
    /// A whole page.
    pub async fn text(
        &self,
        page: Page,
        reader: Reader,
        status: &watch::Receiver<SiteStatus>,
    ) -> Bytes {
        let latest = self.of(page, reader, Manner::Whole);
        if let Some(kept) = latest.kept() {
            return kept;
        }
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let began = Instant::now();
        let text = latest.text(status);
        let pause = began.elapsed() * 3;
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            drop(turn);
        });
        text
    }

    fn of(&self, page: Page, reader: Reader, manner: Manner) -> Arc<Latest> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (page.clone(), reader, manner);
        if let Some(latest) = kept.get(&key) {
            return Arc::clone(latest);
        }
        // Who follows one holds it.
        if kept.len() >= MOST {
            kept.clear();
        }
        let told = move |site: &SiteStatus| page::render(site, &page, reader, manner);
        let latest = Latest::of(&self.kind, told);
        let latest = Arc::new(latest);
        kept.insert(key, Arc::clone(&latest));
        latest
    }
}

/// What one reader of a page has been told.
pub struct Changes {
    latest: Arc<Latest>,
    told: Option<Bytes>,
}

/// `None`: `query` names no page.
pub fn of(web: &Web, who: &Who, query: &str) -> Option<Changes> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let (_, target) = pairs.find(|(key, _)| key == "of")?;
    let page = Page::of_target(&target)?;
    let reader = Reader::of(who.role());
    Some(Changes {
        latest: web.told.pages.of(page, reader, Manner::Still),
        told: None,
    })
}

/// An event.
#[derive(Serialize)]
struct Told<'a> {
    /// Seconds since 1970, by the box's clock.
    unix: f64,
    /// Seconds from 1970 to the start of the box's kernel.
    booted: f64,
    #[serde(flatten)]
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Content<'a> {
    Text(&'a str),
    Patch(Vec<Stretch>),
}

/// Where, how many parts are gone, and what is there instead.
type Stretch = (u32, u32, String);

impl Tells for Changes {
    fn tell(&mut self, _web: &Web, status: &mut watch::Receiver<SiteStatus>) -> Option<Bytes> {
        let now = self.latest.follow(status);
        let before = self.told.replace(now.clone());
        let text = str::from_utf8(&now).ok()?;
        let content = match before {
            None => Content::Text(text),
            Some(before) if before == now => return None,
            Some(before) => Content::Patch(patch(str::from_utf8(&before).ok()?, text)),
        };
        let unix = page::unix_time();
        let told = Told {
            unix,
            booted: unix - clock::uptime().as_secs_f64(),
            content,
        };
        Some(event(&serde_json::to_string(&told).ok()?).into())
    }
}

/// The parts of a text.
#[derive(Clone)]
struct Parts<'a>(&'a str);

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let mut letters = self.0.char_indices();
        letters.next()?;
        let end = letters.find(|(_, letter)| *letter == '<');
        let (part, rest) = self.0.split_at(end.map_or(self.0.len(), |(at, _)| at));
        self.0 = rest;
        Some(part)
    }
}

impl<'a> TokenSource for Parts<'a> {
    type Token = &'a str;
    type Tokenizer = Self;

    fn tokenize(&self) -> Self {
        self.clone()
    }

    fn estimate_tokens(&self) -> u32 {
        u32::try_from(self.0.len() / 16).unwrap_or(u32::MAX)
    }
}

/// From one text to another.
fn patch(before: &str, after: &str) -> Vec<Stretch> {
    let input = InternedInput::new(Parts(before), Parts(after));
    let diff = Diff::compute(Algorithm::Histogram, &input);
    let text = |range: std::ops::Range<u32>| {
        let tokens = &input.after[range.start as usize..range.end as usize];
        tokens.iter().map(|token| input.interner[*token]).collect()
    };
    let hunks = diff.hunks();
    hunks
        .map(|hunk| {
            (
                hunk.before.start,
                hunk.before.end - hunk.before.start,
                text(hunk.after),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the script does it.
    fn patched(before: &str, patch: &[Stretch]) -> String {
        let mut parts: Vec<&str> = Parts(before).collect();
        for (at, gone, text) in patch.iter().rev() {
            let at = *at as usize;
            parts.splice(at..at + *gone as usize, Parts(text));
        }
        parts.concat()
    }

    #[test]
    fn what_changed_is_told_and_nothing_else() {
        let row = |name: &str, percent: &str| format!("<tr id={name}><td>{name}<td>{percent}</tr>");
        let table = |percent: &str| -> String {
            (0..500)
                .map(|n| row(&format!("n{n}"), if n == 250 { percent } else { "" }))
                .collect()
        };
        assert_eq!(
            patch(&table("41 %"), &table("42 %")),
            [(1002, 1, "<td>42 %".to_owned())]
        );
        assert_eq!(patch("<a>", "<a>"), []);
    }

    proptest! {
        #[test]
        fn a_patch_leads_from_any_text_to_any_other(before in "(<[a-c]>[d-f]?|.){0,40}", after in "(<[a-c]>[d-f]?|.){0,40}") {
            let patch = patch(&before, &after);
            prop_assert_eq!(patched(&before, &patch), after);
        }
    }
}
