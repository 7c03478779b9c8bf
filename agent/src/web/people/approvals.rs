//! A person's word on a server that is in what they write into a `BareMetalHost`: which machine it is, and whether its disk may be
//! written. The receipt names who said it (docs/receipt.md). Pure.

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, INSTALL_ANNOTATION},
    bounded,
};
use serde_json::Value;

use crate::people::{APPROVE, INSTALL};

/// `/metadata/annotations/NAME`, as a path is split.
const DEEPEST: usize = 4;

/// What is in an object, a merge patch, an apply (YAML) or a JSON patch, as lines of the audit log say it.
pub fn in_body(body: &[u8]) -> Vec<String> {
    let as_yaml = || serde_saphyr::from_slice(body).ok();
    let body: Option<Value> = serde_json::from_slice(body).ok().or_else(as_yaml);
    body.map(|body| in_json(&body)).unwrap_or_default()
}

/// Whether a request with this query changes nothing, however it is written.
pub fn is_tried(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(key, _)| key == "dryRun")
}

/// As [`in_body`].
pub fn in_json(body: &Value) -> Vec<String> {
    let mut said = Vec::new();
    match body.as_array() {
        None => of_metadata(&body["metadata"], &mut said),
        Some(steps) => {
            for step in steps.iter().filter(|step| step["op"] != "test") {
                of_step(step, &mut said);
            }
        }
    }
    said
}

fn of_metadata(metadata: &Value, said: &mut Vec<String>) {
    for (annotation, what) in [(APPROVE_ANNOTATION, APPROVE), (INSTALL_ANNOTATION, INSTALL)] {
        if let Some(word) = metadata["annotations"][annotation].as_str() {
            said.push(bounded::text(&format!("{what}{word}")));
        }
    }
}

/// Of a JSON patch (RFC 6902).
fn of_step(step: &Value, said: &mut Vec<String>) {
    let path = step["path"].as_str().unwrap_or_default();
    if step["op"] == "copy" || step["op"] == "move" {
        return of_copy(path, said);
    }
    // An annotation is not below that, and what is nested deeply is a burden to whoever drops it.
    if path.split('/').count() > DEEPEST {
        return;
    }
    let mut whole = step["value"].clone();
    for key in path.rsplit('/').filter(|key| !key.is_empty()) {
        // RFC 6901, 4.
        let key = key.replace("~1", "/").replace("~0", "~");
        whole = Value::Object([(key, whole)].into_iter().collect());
    }
    of_metadata(&whole["metadata"], said);
}

/// A word may come out of another part of the object, where nobody looks for it.
fn of_copy(path: &str, said: &mut Vec<String>) {
    for (annotation, what) in [(APPROVE_ANNOTATION, APPROVE), (INSTALL_ANNOTATION, INSTALL)] {
        let whole = format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
        let below = whole.strip_prefix(path.trim_end_matches('/'));
        if below.is_some_and(|below| below.is_empty() || below.starts_with('/')) {
            said.push(format!("{what}(copied)"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_word_is_found_however_it_is_written() {
        let said = ["host approve 7Q2M", "host install wipe"];
        let both = json!({APPROVE_ANNOTATION: "7Q2M", INSTALL_ANNOTATION: "wipe"});
        let path =
            |annotation: &str| format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
        for body in [
            json!({"metadata": {"annotations": both}}),
            json!([{"op": "add", "path": "/metadata/annotations", "value": both}]),
            json!([{"op": "replace", "path": "/metadata", "value": {"annotations": both}}]),
            json!([{"op": "add", "path": path(APPROVE_ANNOTATION), "value": "7Q2M"},
                   {"op": "replace", "path": path(INSTALL_ANNOTATION), "value": "wipe"}]),
        ] {
            assert_eq!(in_json(&body), said, "{body}");
            assert_eq!(in_body(body.to_string().as_bytes()), said, "{body}");
        }
        let yaml = "metadata:\n  annotations:\n    firstlight.internal/approve: 7Q2M\n";
        assert_eq!(in_body(yaml.as_bytes()), said[..1]);
    }

    #[test]
    fn nothing_is_found_where_nothing_is_said() {
        for body in [
            json!(null),
            json!({"metadata": {"annotations": null}}),
            json!({"metadata": {"annotations": {APPROVE_ANNOTATION: null}}}),
            json!({"spec": {"annotations": {APPROVE_ANNOTATION: "x"}}}),
            json!([{"op": "remove", "path": "/metadata/annotations/firstlight.internal~1approve"}]),
            json!([{"op": "test", "path": "/metadata/annotations/firstlight.internal~1approve", "value": "x"}]),
        ] {
            assert!(in_json(&body).is_empty(), "{body}");
        }
    }

    #[test]
    fn a_word_that_is_copied_is_a_word() {
        let copied = ["host approve (copied)", "host install (copied)"];
        for (path, count) in [
            ("/metadata/annotations/firstlight.internal~1approve", 1),
            ("/metadata/annotations", 2),
            ("/metadata", 2),
            ("", 2),
            ("/metadata/annotations/firstlight.internal~1approve-x", 0),
            ("/metadata/labels", 0),
        ] {
            for op in ["copy", "move"] {
                let body = json!([{"op": op, "from": "/metadata/labels", "path": path}]);
                assert_eq!(in_json(&body), copied[..count], "{path}");
            }
        }
    }

    #[test]
    fn a_path_without_end_is_passed_over() {
        let path = "/a".repeat(1_000_000);
        let endless = json!([{"op": "add", "path": path, "value": "x"}]);
        assert!(in_json(&endless).is_empty());
    }

    #[test]
    fn what_is_only_tried_is_told_from_what_looks_like_it() {
        for (query, tried) in [
            ("dryRun=All", true),
            ("fieldManager=x&dryRun=All", true),
            ("dry%52un=All", true),
            ("fieldManager=dryRun", false),
            ("", false),
        ] {
            assert_eq!(is_tried(query), tried, "{query}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_a_line_is_short_and_plain(noise: Vec<u8>, code in ".{0,400}", path in "(/|~1|~0|[a-z]){0,40}") {
            in_body(&noise);
            in_json(&json!([{"path": path, "value": code}]));
            let body = json!({"metadata": {"annotations": {APPROVE_ANNOTATION: code}}});
            for line in in_body(body.to_string().as_bytes()) {
                prop_assert!(line.chars().count() <= 256 && !line.contains(char::is_control));
            }
        }
    }
}
