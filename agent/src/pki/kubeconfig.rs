//! Kubeconfig files with everything embedded, so that one file is one identity.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Pair, spec::NODE_ADDRESS};

/// `user` is a fixed name of ours, the rest base64: nothing needs quoting.
pub fn render(user: &str, ca: &str, pair: &Pair) -> String {
    let [ca, certificate, key] = [ca, &pair.certificate, &pair.key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: box
  cluster:
    server: https://{NODE_ADDRESS}:6443
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {user}@box
  context:
    cluster: box
    user: {user}
current-context: {user}@box
"
    )
}
