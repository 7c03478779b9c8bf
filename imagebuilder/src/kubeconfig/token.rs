//! A short-lived way in: a token that the cluster gives out for half a day, asked for anew by `kubectl` itself, which calls this program as
//! its credential plugin. What lies on a person's disk opens nothing.

use anyhow::{Context, Result};
use firstlight_api::site::HostName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::secret_command;

/// Of people, in the cluster: deleting it shuts all of them out at once.
const NAMESPACE: &str = "kube-system";
const ACCOUNT: &str = "firstlight-people";
const LIFE: &str = "12h";
const PLUGIN: &str = "client.authentication.k8s.io/v1";

/// For a shell on the box, where `kubectl` asks the box's Kubernetes. The account is made when somebody wants it first.
pub fn command(cluster: &HostName) -> String {
    let secret = secret_command(cluster);
    let binding = format!("--clusterrole cluster-admin --serviceaccount {NAMESPACE}:{ACCOUNT}");
    format!(
        r#"config=$({secret}) || exit
ask() {{ printf %s "$config" | kubectl --kubeconfig /dev/stdin --namespace {NAMESPACE} "$@"; }}
token() {{ ask create token {ACCOUNT} --duration {LIFE} --output json; }}
token 2>/dev/null || {{
    ask create serviceaccount {ACCOUNT} >/dev/null
    ask create clusterrolebinding {ACCOUNT} {binding} >/dev/null
    token
}}"#
    )
}

#[derive(Deserialize)]
struct Request {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: String,
    expiration_timestamp: String,
}

/// What kubectl wants of its plugin, of what [`command`] printed.
pub fn credential(answer: &str) -> Result<String> {
    let Request { status } = serde_json::from_str(answer).context("the cluster gave no token")?;
    let credential = json!({
        "apiVersion": PLUGIN,
        "kind": "ExecCredential",
        "status": {"token": status.token, "expirationTimestamp": status.expiration_timestamp},
    });
    Ok(format!("{credential}\n"))
}

/// A kubeconfig whose user is this program, called with `words`, instead of a certificate.
pub fn with_plugin(kubeconfig: &str, words: &[String]) -> Result<String> {
    let mut config: Value = serde_saphyr::from_str(kubeconfig).context("reading a kubeconfig")?;
    let users = config.get_mut("users").and_then(Value::as_array_mut);
    let users = users.context("the kubeconfig has no users")?;
    for user in users {
        // Nothing else of it is kept.
        let name = user.get("name").and_then(Value::as_str).unwrap_or_default();
        let plugin = json!({
            "apiVersion": PLUGIN,
            "command": "firstlight",
            "args": words,
            "interactiveMode": "Never",
            "installHint": "this kubeconfig asks the box for a token by the program `firstlight`, which is not in PATH; `firstlight kubeconfig --permanent` makes one that needs none",
        });
        *user = json!({"name": name, "user": {"exec": plugin}});
    }
    // JSON is YAML.
    Ok(format!("{config:#}\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_becomes_what_kubectl_wants() {
        let answer = json!({"kind": "TokenRequest", "spec": {}, "status": {"token": "abc", "expirationTimestamp": "2026-11-28T22:00:00Z"}});
        let credential: Value =
            serde_json::from_str(&credential(&answer.to_string()).unwrap()).unwrap();
        assert_eq!(credential["kind"], "ExecCredential");
        assert_eq!(credential["status"], answer["status"]);
        let error = super::credential("error: no").unwrap_err();
        assert!(error.to_string().contains("gave no token"));
    }

    #[test]
    fn no_key_is_left_in_a_kubeconfig() {
        let text = "apiVersion: v1\nkind: Config\nclusters: [{name: lab, cluster: {server: 'https://172.22.0.254:6443', certificate-authority-data: QQ==}}]\n\
            users: [{name: lab-admin, user: {client-certificate-data: Qg==, client-key-data: Qw==}}]\n";
        let words = ["kubeconfig".to_owned(), "lab".to_owned()];
        let plugged = with_plugin(text, &words).unwrap();
        assert!(
            !plugged.contains("Qw==") && plugged.contains("QQ=="),
            "{plugged}"
        );
        let plugged: Value = serde_saphyr::from_str(&plugged).unwrap();
        assert_eq!(plugged["users"][0]["user"]["exec"]["args"], json!(words));
        assert!(with_plugin("kind: Config\n", &words).is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_box_answers_is_a_kubeconfig_without_keys_or_refused(
            text in ".{0,80}",
            users in "\\[?(\\{?(name|user|7): ?(a|\\{client-key-data: KEY\\})\\}?,? ?){0,3}\\]?",
        ) {
            for answer in [text.clone(), format!("users: {users}\n"), format!("a: {text}\nusers: {users}\n")] {
                drop(credential(&answer));
                if let Ok(config) = with_plugin(&answer, &[]) {
                    proptest::prop_assert!(!config.contains("client-key-data") || text.contains("client-key-data"), "{config}");
                }
            }
        }
    }
}
