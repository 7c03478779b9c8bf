//! Cluster API's objects around an upgrade in place: held while nodes change, for it would answer a new version with new machines;
//! then told what came of it, so that it finds everything as it is wanted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::{
    capi::{
        CLUSTER_LABEL, CONTROL_PLANE_GROUP, CONTROL_PLANE_NAME_LABEL, DEPLOYMENT_LABEL, GROUP,
        PAUSED_ANNOTATION, VERSION,
    },
    upgrade::HELD_ANNOTATION,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

const MACHINE: (&str, &str) = (GROUP, "Machine");
const SET: (&str, &str) = (GROUP, "MachineSet");
/// Until Cluster API has read what was written.
const READ: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// What of a cluster is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    ControlPlane,
    Workers,
}

impl Share {
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Workers];

    const fn owner(self) -> (&'static str, &'static str) {
        match self {
            Self::ControlPlane => (CONTROL_PLANE_GROUP, "KubeadmControlPlane"),
            Self::Workers => (GROUP, "MachineDeployment"),
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::ControlPlane => CONTROL_PLANE_NAME_LABEL,
            Self::Workers => DEPLOYMENT_LABEL,
        }
    }

    fn version(self, owner: &DynamicObject) -> Option<&str> {
        let spec = &owner.data["spec"];
        match self {
            Self::ControlPlane => spec["version"].as_str(),
            Self::Workers => spec["template"]["spec"]["version"].as_str(),
        }
    }

    /// Where an owner has its version.
    fn versioned(self, version: &str) -> Value {
        match self {
            Self::ControlPlane => json!({"version": version}),
            Self::Workers => json!({"template": {"spec": {"version": version}}}),
        }
    }
}

/// One cluster's, and for whom it is held.
#[derive(Clone)]
pub struct Owners {
    /// Of the box.
    pub client: Client,
    pub namespace: String,
    pub cluster: String,
    /// `NAMESPACE/NAME` of the upgrade.
    pub holder: String,
}

impl Owners {
    fn api(&self, (group, kind): (&str, &str)) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, VERSION, kind);
        Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &ApiResource::from_gvk(&kind),
        )
    }

    async fn list(&self, kind: (&str, &str), selector: &str) -> Result<Vec<DynamicObject>> {
        let selector = ListParams::default().labels(selector);
        let found = self.api(kind).list(&selector).await;
        Ok(found.with_context(|| format!("listing {}s", kind.1))?.items)
    }

    async fn owners(&self, share: Share) -> Result<Vec<DynamicObject>> {
        let selector = format!("{CLUSTER_LABEL}={}", self.cluster);
        self.list(share.owner(), &selector).await
    }

    async fn patch(&self, kind: (&str, &str), name: &str, patch: &Value) -> Result<()> {
        let patched = self
            .api(kind)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched
            .map(drop)
            .with_context(|| format!("writing the {} {name}", kind.1))
    }

    /// But what knows of the version already, if it is about one. `Err` with a sentence where somebody else holds it.
    pub async fn hold(&self, share: Share, version: Option<&str>) -> Result<Result<(), String>> {
        for owner in self.owners(share).await? {
            let annotations = owner.annotations();
            let name = owner.name_any();
            let is_told = version.is_some() && share.version(&owner) == version;
            if is_told || annotations.get(HELD_ANNOTATION) == Some(&self.holder) {
                continue;
            }
            if annotations.contains_key(PAUSED_ANNOTATION) {
                let kind = share.owner().1;
                return Ok(Err(format!(
                    "somebody has paused the {kind} {name}: `kubectl annotate {} {name} {PAUSED_ANNOTATION}-` lets it go on",
                    kind.to_lowercase()
                )));
            }
            let held = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: "", HELD_ANNOTATION: self.holder}}});
            let is_free = |set: &DynamicObject| !set.annotations().contains_key(PAUSED_ANNOTATION);
            for set in self
                .sets(share, &name)
                .await?
                .iter()
                .filter(|set| is_free(set))
            {
                self.patch(SET, &set.name_any(), &held).await?;
            }
            self.patch(share.owner(), &name, &held).await?;
        }
        Ok(Ok(()))
    }

    /// They write their machines anew by what they have read of them, which may be from before.
    async fn sets(&self, share: Share, owner: &str) -> Result<Vec<DynamicObject>> {
        match share {
            Share::ControlPlane => Ok(Vec::new()),
            Share::Workers => self.list(SET, &self.own(share, owner)).await,
        }
    }

    fn own(&self, share: Share, owner: &str) -> String {
        format!("{CLUSTER_LABEL}={},{}={owner}", self.cluster, share.label())
    }

    /// Machines and their owners are at the version, and not held any more. May be cut anywhere and said again.
    pub async fn record(&self, share: Share, version: &str) -> Result<()> {
        for owner in self.owners(share).await? {
            let name = owner.name_any();
            if owner.annotations().get(HELD_ANNOTATION) != Some(&self.holder) {
                continue;
            }
            self.record_machines(&self.own(share, &name), version)
                .await?;
            let patch = json!({"spec": share.versioned(version)});
            for set in self.sets(share, &name).await? {
                // Those of before are empty, and stay what they were.
                if set.data["spec"]["replicas"].as_u64() != Some(0) {
                    self.patch(SET, &set.name_any(), &patch).await?;
                }
            }
            self.patch(share.owner(), &name, &patch).await?;
            self.release(share, &name).await?;
        }
        Ok(())
    }

    /// Returns when Cluster API has read it: who reads only then what it is about cannot write the old version again.
    async fn record_machines(&self, own: &str, version: &str) -> Result<()> {
        let spec = json!({"spec": {"version": version}});
        let end = Instant::now() + READ;
        loop {
            let machines = self.list(MACHINE, own).await?;
            let is_read = |machine: &DynamicObject| {
                let observed = machine.data["status"]["observedGeneration"].as_i64();
                machine.data["spec"]["version"] == version
                    && observed >= machine.metadata.generation
            };
            let Some(unread) = machines.iter().find(|machine| !is_read(machine)) else {
                return Ok(());
            };
            ensure!(
                Instant::now() < end,
                "Cluster API does not read what became of the Machine {}",
                unread.name_any()
            );
            let others = |machine: &&DynamicObject| machine.data["spec"]["version"] != version;
            for machine in machines.iter().filter(others) {
                self.patch(MACHINE, &machine.name_any(), &spec).await?;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn release(&self, share: Share, name: &str) -> Result<()> {
        let released =
            json!({"metadata": {"annotations": {PAUSED_ANNOTATION: null, HELD_ANNOTATION: null}}});
        for set in self.sets(share, name).await? {
            if set.annotations().get(HELD_ANNOTATION) == Some(&self.holder) {
                self.patch(SET, &set.name_any(), &released).await?;
            }
        }
        self.patch(share.owner(), name, &released).await
    }

    /// Everything that is held for this upgrade goes on as it is.
    pub async fn let_go(&self) -> Result<()> {
        for share in Share::ALL {
            for owner in self.owners(share).await? {
                if owner.annotations().get(HELD_ANNOTATION) == Some(&self.holder) {
                    self.release(share, &owner.name_any()).await?;
                }
            }
        }
        Ok(())
    }
}
