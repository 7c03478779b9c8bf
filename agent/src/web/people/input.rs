//! What a form or a program sends: a few short values by their names.

use std::{collections::BTreeMap, time::Duration};

use http::{StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, body::Incoming};
use serde_json::Value;

use super::gate::Refused;
use crate::web::refusal;

/// Names and passwords.
const LARGEST: usize = 4096;
const TIME: Duration = Duration::from_secs(20);
const MOST: usize = 16;

/// Values by their names.
#[derive(Debug)]
pub struct Input {
    values: BTreeMap<String, String>,
    /// From a form of the page: its answer is another page.
    pub is_form: bool,
}

impl Input {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// What has to be there.
    pub fn need(&self, name: &str) -> Result<&str, Refused> {
        self.get(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| {
                let why = format_args!("`{name}` is missing");
                Box::new(refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
            })
    }
}

pub async fn read(request: Request<Incoming>) -> Result<Input, Refused> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
    let body = Limited::new(request.into_body(), LARGEST).collect();
    let Ok(Ok(body)) = tokio::time::timeout(TIME, body).await else {
        return Err(Box::new(refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "this is more than 4 KiB, or came too slowly",
        )));
    };
    parse(&kind, &body.to_bytes()).ok_or_else(|| {
        let why = "wanted is an object of texts as application/json, or a form";
        Box::new(refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
    })
}

fn parse(kind: &str, body: &[u8]) -> Option<Input> {
    let mut values = BTreeMap::new();
    let is_form = kind == "application/x-www-form-urlencoded";
    if is_form {
        for (name, value) in form_urlencoded::parse(body).take(MOST) {
            values.insert(name.into_owned(), value.into_owned());
        }
    } else if !body.is_empty() {
        if kind != "application/json" {
            return None;
        }
        let Value::Object(object) = serde_json::from_slice(body).ok()? else {
            return None;
        };
        for (name, value) in object.into_iter().take(MOST) {
            let value = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            values.insert(name, value);
        }
    }
    Some(Input { values, is_form })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_form_and_a_program_say_the_same() {
        let form = parse(
            "application/x-www-form-urlencoded",
            b"name=ada&password=a+b%26c",
        )
        .unwrap();
        let json = parse(
            "application/json",
            br#"{"name": "ada", "password": "a b&c", "days": 3}"#,
        )
        .unwrap();
        assert!(form.is_form && !json.is_form);
        for input in [&form, &json] {
            assert_eq!(
                (input.get("name"), input.get("password")),
                (Some("ada"), Some("a b&c"))
            );
        }
        assert_eq!(json.get("days"), Some("3"));
        assert!(form.need("code").is_err());
        assert!(parse("text/plain", b"name=ada").is_none() && parse("", b"").is_some());
    }

    proptest! {
        #[test]
        fn no_body_breaks_it(kind in "application/(json|x-www-form-urlencoded)", body: Vec<u8>, text in "(&|=|%|\\+|[a-z]|\\{|\\}|\"|:|[0-9]){0,40}") {
            for body in [&body[..], text.as_bytes()] {
                if let Some(input) = parse(&kind, body) {
                    prop_assert!(input.values.len() <= MOST);
                }
            }
        }
    }
}
