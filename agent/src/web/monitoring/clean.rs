//! Lines without what nobody who reads logs should have: kubeadm prints a token by which a machine joins, and programs print what they were
//! given when they fail.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

const GONE: &str = "[removed]";
/// Letters of base64 that are no checksum and no name.
const KEY: usize = 60;

static SECRETS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // kubeadm's, and what stands for one in a Secret's name stays.
        r"(?P<before>^|[^a-z0-9-])[a-z0-9]{6}\.[a-z0-9]{16}(?P<after>$|[^a-z0-9])",
        r"(?P<before>(?i:authorization)['\x22]?\s*[=:]\s*)[^'\x22]+(?P<after>)",
        r"(?P<before>(?i:certificate-key|password|passwd|secret|token)['\x22]?\s*[=:]\s*['\x22]?)[^\s'\x22,;]{4,}(?P<after>)",
        r"(?P<before>--(?i:certificate-key|password|secret|token)\s+)[^\s'\x22]+(?P<after>)",
        r"(?P<before>(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}(?P<after>)",
        r"(?P<before>)eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*(?P<after>)",
        r"(?P<before>PRIVATE KEY-----).*(?P<after>)",
        r"(?P<before>://[^/\s:@]*:)[^/\s@]+(?P<after>@)",
    ]
    .map(|secret| Regex::new(secret).expect("it is one"))
    .into()
});
/// A line of a key that is printed over many.
static LONG: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/]+={0,2}").expect("it is one"));

pub fn clean(line: &str) -> String {
    let mut clean = Cow::Borrowed(line);
    for secret in SECRETS.iter() {
        let next = secret.replace_all(&clean, |found: &Captures<'_>| {
            format!("{}{GONE}{}", &found["before"], &found["after"])
        });
        if let Cow::Owned(next) = next {
            clean = Cow::Owned(next);
        }
    }
    let long = LONG.replace_all(&clean, |found: &Captures<'_>| {
        let is_hex = found[0].bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_path = found[0].matches('/').count() > 3;
        if found[0].len() < KEY || is_hex || is_path {
            found[0].to_owned()
        } else {
            GONE.to_owned()
        }
    });
    long.into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "abcdef.0123456789abcdef";

    #[test]
    fn secrets_are_not_kept_and_all_else_is() {
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        for (line, secret) in [
            (
                format!(
                    "kubeadm join 172.22.0.9:6443 --token {TOKEN} --discovery-token-ca-cert-hash sha256:{hash}"
                ),
                TOKEN,
            ),
            (format!("[bootstrap-token] Using token: {TOKEN}"), TOKEN),
            (format!("--control-plane --certificate-key {hash}"), hash),
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
            (
                "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj".to_owned(),
                "VJTUt9Us8cKj",
            ),
        ] {
            let clean = clean(&line);
            assert!(!clean.contains(secret) && clean.contains(GONE), "{clean}");
        }
        for line in [
            format!("image registry.firstlight.internal/kubernetes/pause@sha256:{hash}"),
            "Starting kubelet.service - Kubelet token controller".to_owned(),
            "/usr/lib/python3/dist-packages/cloudinit/config/modules/somewhere/very/deep/in/here"
                .to_owned(),
            "etcd.firstlight1234567890abcdef failed".to_owned(),
            "containerd-0123456789abcdef0123456789abcdef.scope: Deactivated".to_owned(),
        ] {
            assert_eq!(clean(&line), line);
        }
    }

    proptest! {
        #[test]
        fn a_token_is_found_wherever_it_stands(before in "[ -~&&[^a-zA-Z0-9.-]]{0,20}", after in "([ -~&&[^a-zA-Z0-9.-]][ -~]{0,20})?", any in "\\PC{0,200}") {
            let _ = clean(&any);
            let line = format!("{before}{TOKEN}{after}");
            prop_assert!(!clean(&line).contains(TOKEN), "{line}");
        }
    }
}
