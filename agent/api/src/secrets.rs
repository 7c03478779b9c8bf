//! What looks like a secret in a text that people will read: logs, and what is sent to support. Programs print what they were given when they
//! fail, and kubeadm prints a token by which a machine joins.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// Stands in a secret's place.
pub const REMOVED: &str = "(removed)";

/// The first group stays, and so does the second.
static LOOKS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // Of whatever kind, also cut off.
        r"(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
        // Of kubeadm, of the page, of Kubernetes.
        r"()\b[a-z0-9]{6}\.[a-z0-9]{16}\b",
        r"()firstlight_[A-Za-z0-9_-]{43}",
        r"()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        // Of site.yaml: who has the address may post there.
        r#"(\bwebhook"?\s*:\s*['"]?)https?://[^\s'",}]+"#,
        // Hashes of passwords.
        r"()\$(?:argon2id|2[aby]|5|6|y)\$[A-Za-z0-9./+=,$-]{8,}",
        r#"(?i)((?:password|passwd|passphrase|authorization|secret|token|api-?key|certificate-key)['"]?\s*[:=]\s*['"]?(?:bearer |basic )?)[^\s'",}(\[]{6,}"#,
        r#"(?i)(--(?:certificate-key|password|secret|token)\s+)[^\s'"(]+"#,
        r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{16,}",
        // In an address.
        r"(://[^/\s:@]*:)[^/\s@(]+(@)",
    ]
    .into_iter()
    .map(|look| Regex::new(look).expect("a regular expression"))
    .collect()
});

/// The text without what looks like one.
pub fn scrub(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    for look in LOOKS.iter() {
        let next = look.replace_all(&text, format!("${{1}}{REMOVED}${{2}}"));
        if let Cow::Owned(next) = next {
            text = Cow::Owned(next);
        }
    }
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "abcdef.0123456789abcdef";
    const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn secrets_are_not_kept_and_all_else_is() {
        for (line, secret) in [
            (
                format!(
                    "join 172.22.0.9:6443 --token {TOKEN} --discovery-token-ca-cert-hash sha256:{HASH}"
                ),
                TOKEN,
            ),
            (format!("[bootstrap-token] Using token: {TOKEN}"), TOKEN),
            (format!("--control-plane --certificate-key {HASH}"), HASH),
            (
                "proxy http://ada:plain-words@proxy:3128 refused".to_owned(),
                "plain-words",
            ),
            (
                r#"{"password":"plain-words","name":"ada"}"#.to_owned(),
                "plain-words",
            ),
            (
                "Authorization: Bearer abcdef0123456789".to_owned(),
                "abcdef0123456789",
            ),
            (
                "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl today".to_owned(),
                "eyJpc3MiOiJrdWJlIn0",
            ),
            (
                "-----BEGIN PRIVATE KEY-----MC4CAQAwBQYDK2VwBCIEIJ".to_owned(),
                "MC4CAQAw",
            ),
        ] {
            let scrubbed = scrub(&line);
            assert!(
                !scrubbed.contains(secret) && scrubbed.contains(REMOVED),
                "{scrubbed}"
            );
        }
        for line in [
            format!("image registry.firstlight.internal/kubernetes/pause@sha256:{HASH}"),
            "Starting kubelet.service - Kubelet token controller".to_owned(),
            "etcd.firstlight1234567890abcdef failed".to_owned(),
            "containerd-0123456789abcdef0123456789abcdef.scope: Deactivated".to_owned(),
            "http://172.22.0.1:8443/x and ada@example".to_owned(),
        ] {
            assert_eq!(scrub(&line), line);
        }
    }

    proptest! {
        #[test]
        fn a_token_is_found_wherever_it_stands(before in "([ -~]{0,20}[ -~&&[^a-zA-Z0-9_]])?", after in "([ -~&&[^a-zA-Z0-9_]][ -~]{0,20})?", any in "\\PC{0,200}") {
            let _ = scrub(&any);
            let line = format!("{before}{TOKEN}{after}");
            prop_assert!(!scrub(&line).contains(TOKEN), "{line}");
        }
    }
}
