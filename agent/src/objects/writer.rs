//! Writes to one kind of objects. Each ends in time, and is awaited by the next who reads: nobody plans twice what he has done.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use firstlight_api::object::Meta;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, PartialObjectMeta, Patch, PatchParams,
        PostParams, Preconditions,
    },
    core::Status,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Key,
    copy::{Standing, State},
};

/// For one request. An emulated API server takes seconds for some.
const ANSWER: Duration = Duration::from_secs(30);

/// What of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Object,
    Status,
}

#[derive(Clone)]
pub struct Writer {
    pub(super) client: Client,
    pub(super) kind: ApiResource,
    /// As whom we write.
    pub(super) manager: &'static str,
    pub(super) standing: Arc<Standing>,
}

impl Writer {
    /// A merge patch (RFC 7386), and the version that came of it.
    pub async fn merge(&self, key: &Key, part: Part, patch: &Value) -> Result<String> {
        let parameters = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        self.patch(key, part, &parameters, &Patch::Merge(patch))
            .await
    }

    /// Server-side apply, whoever wrote these fields before. Those of others stay theirs.
    pub async fn apply(&self, key: &Key, part: Part, object: &Value) -> Result<()> {
        let parameters = PatchParams::apply(self.manager).force();
        self.patch(key, part, &parameters, &Patch::Apply(object))
            .await
            .map(drop)
    }

    /// Of an object that is there already nothing is changed.
    pub async fn create(&self, key: &Key, object: Value) -> Result<()> {
        let what = || format!("creating the {} {key}", self.kind.kind);
        let object: DynamicObject = serde_json::from_value(object).with_context(what)?;
        let parameters = PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &self.kind);
        match self.sure(within(api.create(&parameters, &object)).await) {
            Err(error) if reason(&error) == Some("AlreadyExists") => Ok(()),
            // Nobody was faster, also where something is not found.
            Err(error) => bail!("{}: {error:#}", what()),
            Ok(object) => {
                self.wrote(&object.metadata.resource_version.unwrap_or_default());
                Ok(())
            }
        }
    }

    /// Unless somebody wrote since `meta`.
    pub async fn delete(&self, meta: &Meta) -> Result<()> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(meta.uid.clone()),
                resource_version: Some(meta.resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        let mut is_first = false;
        self.standing
            .send_modify(|state| is_first = state.leaves(&meta.uid));
        let removed = self.remove(&Key::of(meta), &parameters).await;
        if is_first && !matches!(removed, Ok(true)) {
            self.standing.send_modify(|state| state.stays(&meta.uid));
        }
        removed.map(drop)
    }

    /// Whatever it says by now.
    pub async fn delete_any(&self, key: &Key) -> Result<()> {
        self.remove(key, &DeleteParams::default()).await.map(drop)
    }

    /// False if it was gone, or stays until somebody lets it go.
    async fn remove(&self, key: &Key, parameters: &DeleteParams) -> Result<bool> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &self.kind);
        let removed = self.sure(within(api.delete(&key.name, parameters)).await);
        match removed {
            Err(error) if reason(&error) == Some("NotFound") => Ok(false),
            Err(error) => Err(error.context(format!("deleting the {} {key}", self.kind.kind))),
            Ok(answer) => {
                let left = answer.left();
                if let Some(object) = &left {
                    self.wrote(
                        object
                            .metadata
                            .resource_version
                            .as_deref()
                            .unwrap_or_default(),
                    );
                }
                Ok(left.is_none())
            }
        }
    }

    /// The object stays until [`Self::let_go`]. This and what follows is refused if anybody wrote since `meta`, which has the
    /// new version afterwards.
    pub async fn hold(&self, meta: &mut Meta, finalizer: &str) -> Result<()> {
        if meta.has_finalizer(finalizer) {
            return Ok(());
        }
        let mut finalizers = meta.finalizers.clone();
        finalizers.push(finalizer.to_owned());
        self.finalizers(meta, finalizers).await
    }

    pub async fn let_go(&self, meta: &mut Meta, finalizer: &str) -> Result<()> {
        let mut finalizers = meta.finalizers.clone();
        finalizers.retain(|name| name != finalizer);
        self.finalizers(meta, finalizers).await
    }

    async fn finalizers(&self, meta: &mut Meta, finalizers: Vec<String>) -> Result<()> {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        self.merge_seen(meta, Part::Object, patch).await?;
        meta.finalizers = finalizers;
        Ok(())
    }

    pub async fn write_status(&self, meta: &mut Meta, status: &impl Serialize) -> Result<()> {
        let patch = json!({"status": status});
        self.merge_seen(meta, Part::Status, patch).await
    }

    async fn merge_seen(&self, meta: &mut Meta, part: Part, mut patch: Value) -> Result<()> {
        patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
        meta.resource_version = self.merge(&Key::of(meta), part, &patch).await?;
        Ok(())
    }

    async fn patch(
        &self,
        key: &Key,
        part: Part,
        parameters: &PatchParams,
        patch: &Patch<&Value>,
    ) -> Result<String> {
        // Of the answer only the version counts.
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &self.kind);
        let written = self.sure(match part {
            Part::Object => within(api.patch(&key.name, parameters, patch)).await,
            Part::Status => within(api.patch_status(&key.name, parameters, patch)).await,
        });
        let of = match part {
            Part::Object => "",
            Part::Status => "the status of ",
        };
        let written =
            written.with_context(|| format!("writing {of}the {} {key}", self.kind.kind))?;
        let version = written.metadata.resource_version.unwrap_or_default();
        self.wrote(&version);
        Ok(version)
    }

    /// Only the API server itself can say that a write did not come to be: its answer may have been lost, and where it waits
    /// for etcd in vain it knows no more than we do.
    fn sure<T>(&self, written: Result<T>) -> Result<T> {
        if let Err(error) = &written
            && !refusal(error).is_some_and(|status| (400..500).contains(&status.code))
        {
            self.standing.send_modify(State::doubts);
        }
        written
    }

    fn wrote(&self, version: &str) {
        self.standing.send_modify(|state| state.wrote(version));
    }
}

/// An API server that takes requests and does not answer must not stop anybody.
async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T> {
    Ok(tokio::time::timeout(ANSWER, request).await??)
}

/// Who carries out writes of a plan.
pub trait Applies<A> {
    fn apply(&self, action: &A) -> impl Future<Output = Result<()>> + Send;
}

/// Applies every list to its end or its first failure; a sentence for each failure.
pub async fn apply_all<A: Sync>(by: &(impl Applies<A> + Sync), plan: &[Vec<A>]) -> Vec<String> {
    let mut told: BTreeSet<String> = BTreeSet::new();
    for steps in plan {
        for action in steps {
            if let Err(error) = by.apply(action).await {
                let text = format!("{error:#}");
                if is_overtaken(&error) {
                    tracing::debug!(error = text, "looking again");
                } else if told.insert(text.clone()) {
                    tracing::warn!(error = text, "a write failed; it is tried again");
                }
                break;
            }
        }
    }
    told.into_iter().collect()
}

/// Somebody wrote or deleted the object in between: the next look sees it.
pub fn is_overtaken(error: &anyhow::Error) -> bool {
    matches!(reason(error), Some("Conflict" | "NotFound"))
}

fn reason(error: &anyhow::Error) -> Option<&str> {
    refusal(error).map(|status| status.reason.as_str())
}

/// The API server's own word.
fn refusal(error: &anyhow::Error) -> Option<&Status> {
    match error.downcast_ref()? {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}
