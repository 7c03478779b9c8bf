//! Orders, at a machine that has not started from a stick.
#![allow(clippy::unwrap_used)]

use std::io::{BufReader, Read};
use std::path::Path;

use firstlight_api::update::{HelperReply, LONGEST_LINE};
use firstlight_update::orders::serve;
use firstlight_update::state::State;
use proptest::prelude::*;

fn ordered(input: impl Read) -> HelperReply {
    let mut output = Vec::new();
    serve(
        None,
        State(Path::new("/nonexistent")),
        &mut BufReader::new(input),
        &mut output,
    )
    .unwrap();
    serde_json::from_slice(&output).unwrap()
}

#[test]
fn a_box_without_a_stick_says_what_is_done_there() {
    for order in [
        r#"{"order":"look"}"#,
        r#"{"order":"try"}"#,
        r#"{"order":"seal"}"#,
        r#"{"order":"plan","system":{"layers":[]}}"#,
    ] {
        let HelperReply::Refused(problem) = ordered(order.as_bytes()) else {
            panic!("{order}");
        };
        assert!(problem.next.contains("firstlight install"), "{problem:?}");
    }
    let endless = std::io::repeat(b'x').take(LONGEST_LINE as u64 * 4);
    assert!(matches!(ordered(endless), HelperReply::Refused(_)));
}

proptest! {
    #[test]
    fn whatever_is_ordered_is_done_or_refused(
        order in "\\{\"order\":\"(look|plan|write|try|keep|seal)\"(,\"sent\":\\[(\"a\")?\\])?(,\"system\":\\{\"layers\":\\[(\\{\"name\":\"[a-z]{0,3}\",\"length\":[0-9]{1,22},\"sha256\":\"(ab){32}\",\"root\":\"(cd){32}\"\\})?\\]\\})?\\}\n?",
        noise: Vec<u8>,
    ) {
        for text in [order.into_bytes(), noise] {
            prop_assert!(matches!(ordered(text.as_slice()), HelperReply::Refused(_)));
        }
    }
}
