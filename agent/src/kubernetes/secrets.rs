//! Secrets of the box's Kubernetes that were written before there was a key for them (`pki/secrets.rs`) are written once more, so that etcd
//! has none in clear.

use anyhow::{Context, Result};
use firstlight_api::status::Problem;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};

use super::LOOK_AGAIN;
use crate::{
    files::{self, Access},
    paths::Paths,
    start_line,
    status::StatusSender,
};

const PAGE: u32 = 50;
const SOURCE: &str = "secrets";

/// Done once in the life of a key; a system that is tried changes nothing that it need not.
pub async fn keep(api: &Client, paths: &Paths, status: &StatusSender) {
    let done = paths.encrypted_secrets();
    if done.exists() || start_line::is_tried(paths) {
        return;
    }
    loop {
        let written = rewrite(api).await.and_then(|count| {
            files::write(&done, b"", Access::Group)?;
            Ok(count)
        });
        match written {
            Ok(count) => {
                tracing::info!(count, "all Secrets are encrypted in etcd");
                return status.problems(SOURCE, Vec::new());
            }
            Err(error) => {
                let problem = Problem {
                    what: format!("some Secrets lie in etcd in clear: {error:#}"),
                    next: "nothing: the box tries again".to_owned(),
                };
                status.problems(SOURCE, vec![problem]);
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Each as it is. Who changes one meanwhile has written it anew.
pub async fn rewrite(api: &Client) -> Result<usize> {
    let all: Api<Secret> = Api::all(api.clone());
    let mut page = ListParams::default().limit(PAGE);
    let mut count = 0;
    loop {
        let list = all.list(&page).await.context("listing Secrets")?;
        for secret in list.items {
            let meta = &secret.metadata;
            let (Some(name), Some(namespace)) = (meta.name.clone(), meta.namespace.clone()) else {
                continue;
            };
            let own: Api<Secret> = Api::namespaced(api.clone(), &namespace);
            match own.replace(&name, &PostParams::default(), &secret).await {
                Ok(_) => count += 1,
                Err(kube::Error::Api(answer)) if [404, 409].contains(&answer.code) => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("writing Secret {namespace}/{name}"));
                }
            }
        }
        match list.metadata.continue_ {
            Some(next) if !next.is_empty() => page = page.continue_token(&next),
            _ => return Ok(count),
        }
    }
}
