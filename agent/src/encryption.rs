//! With what Kubernetes encrypts Secrets before etcd has them, the box's and each cluster's: an `EncryptionConfiguration`, as an API server
//! reads it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

const KIND: &str = "EncryptionConfiguration";
/// Of `XSalsa20` with Poly1305.
const KEY_BYTES: usize = 32;

/// With a new key, of this name. What was written before there was one can be read, too.
pub fn make(name: &str) -> anyhow::Result<String> {
    let mut key = [0; KEY_BYTES];
    let filled = SystemRandom::new().fill(&mut key);
    filled.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    let keys = json!([{"name": name, "secret": STANDARD.encode(key)}]);
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": KIND,
        "resources": [{
            "resources": ["secrets"],
            "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}],
        }],
    });
    Ok(format!("{config:#}\n"))
}

/// Whether there is a key in it. A person may have put others beside it.
pub fn has_key(text: &str) -> bool {
    let Ok(config) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let key = config.pointer("/resources/0/providers/0/secretbox/keys/0/secret");
    let key = key
        .and_then(Value::as_str)
        .and_then(|key| STANDARD.decode(key).ok());
    config["kind"] == KIND && key.is_some_and(|key| key.len() == KEY_BYTES)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_has_a_key_of_its_own() {
        let (one, other) = (make("box").unwrap(), make("box").unwrap());
        assert!(has_key(&one) && has_key(&other));
        assert_ne!(one, other);
        assert!(!has_key(&one.replace("box", "box\"")));
        assert!(!has_key(&one.replace(KIND, "Secret")));
        assert!(!has_key("{}"));
    }

    proptest! {
        #[test]
        fn any_file_has_a_key_or_none(text in "\\PC{0,60}", key in "[A-Za-z0-9+/=]{0,48}") {
            prop_assert!(!has_key(&text));
            let file = format!(r#"{{"kind": "{KIND}", "resources": [{{"providers": [{{"secretbox": {{"keys": [{{"secret": "{key}"}}]}}}}]}}]}}"#);
            let is_key = STANDARD.decode(&key).is_ok_and(|key| key.len() == KEY_BYTES);
            prop_assert_eq!(has_key(&file), is_key);
        }
    }
}
