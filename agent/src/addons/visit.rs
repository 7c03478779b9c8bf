//! One visit of one addon: what it needs is installed, judged or removed, and its status says so.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use firstlight_api::{
    addon::{self, Addon, AddonStatus},
    software::Software,
};
use kube::Client;
use tokio::time::Instant;

use super::{
    Places, certificate,
    chart::{self, Source},
    health::{self, Verdict},
    helm::{self, Helm, Release},
    images, locality,
    plan::{self, Outcome, Progress},
    target::Target,
};
use crate::{
    clock,
    files::{self, Access},
    objects::{Writer, is_overtaken},
    pki::Authority,
    store::Registry,
    workload,
};

/// Before something that Helm refused is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// What all visits use.
pub struct Tools {
    pub places: Places,
    pub helm: Helm,
    /// Of the box.
    pub client: Client,
    /// Of the site.
    pub authority: Authority,
    pub writer: Writer,
}

/// What the next visit of the same addon should know.
#[derive(Default)]
pub struct Memory {
    /// What Helm refused: the wish, when, and why.
    refused: Option<(String, Instant, String)>,
    /// What Helm installed, and for which wish.
    installed: Option<(String, helm::Installed)>,
}

pub struct Visit {
    pub tools: Arc<Tools>,
    /// As it is in the API server.
    pub addon: Addon,
    pub all: Arc<Vec<Addon>>,
    pub software: Arc<Vec<Software>>,
    pub memory: Memory,
}

/// What came of it.
pub struct Visited {
    pub memory: Memory,
    /// Its status was not written.
    pub failure: Option<String>,
}

impl Visit {
    pub async fn run(mut self) -> Visited {
        let result = if self.addon.metadata.is_deleting() {
            self.remove().await
        } else {
            self.keep().await
        };
        let said = result
            .unwrap_or_else(|error| Outcome::pending(format!("{error:#}; the box tries again")));
        let told = self.tell(&said).await.err();
        let failure = told.filter(|error| !is_overtaken(error));
        Visited {
            memory: self.memory,
            failure: failure.map(|error| format!("{error:#}")),
        }
    }

    async fn tell(&mut self, said: &Outcome) -> Result<()> {
        let status: AddonStatus = plan::status(&self.addon, said, &clock::rfc3339());
        if status != self.addon.status {
            let meta = &mut self.addon.metadata;
            self.tools.writer.write_status(meta, &status).await?;
            self.addon.status = status;
        }
        Ok(())
    }

    async fn keep(&mut self) -> Result<Outcome> {
        let meta = &mut self.addon.metadata;
        self.tools.writer.hold(meta, addon::FINALIZER).await?;
        if let Some(waits) = plan::waits(&self.addon, &self.all, &self.software) {
            return Ok(Outcome::pending(waits));
        }
        let target = match Target::of(&self.tools.client, &self.addon).await? {
            Ok(target) => target,
            Err(waits) => return Ok(Outcome::pending(waits)),
        };
        let source = match Source::of(&self.addon, &self.tools.places) {
            Ok(source) => source,
            Err(wrong) => return Ok(Outcome::failed(wrong)),
        };
        let kubernetes = match source {
            Source::Builtin { .. } => workload::kubeadm::version(&target.client).await?,
            Source::Store { .. } | Source::Manifests => None,
        };
        let wish = source.digest(&self.addon, kubernetes.as_deref());
        // The status may lack it, because somebody wrote while Helm worked.
        let is_known = matches!(&self.memory.installed, Some((known, _)) if *known == wish);
        if self.addon.status.installed != wish
            && !is_known
            && let Err(failed) = self.install(&target, &source, &wish).await?
        {
            return Ok(failed);
        }
        if let Source::Builtin { path, .. } = &source {
            locality::keep(&target.client, path).await?;
            match certificate::Request::of(path, &self.addon) {
                Err(wrong) => return Ok(Outcome::failed(wrong).with(wish)),
                Ok(None) => {}
                Ok(Some(request)) => {
                    certificate::keep(&target.client, &request, &self.tools.authority).await?;
                }
            }
        }
        self.judge(&target, wish).await
    }

    /// Helm installs or upgrades; what it refused a moment ago is not asked again at once.
    async fn install(
        &mut self,
        target: &Target,
        source: &Source,
        wish: &str,
    ) -> Result<Result<(), Outcome>> {
        if let Some((refused, at, why)) = &self.memory.refused
            && refused == wish
            && at.elapsed() < AGAIN
        {
            return Ok(Err(Outcome::failed(why.clone())));
        }
        let folder = self.lay_out(target)?;
        let missing = self.missing_images(&folder, source).await;
        let installed = if let Some(missing) = missing {
            Err(missing)
        } else {
            let installing = format!("Helm installs {}", source.title());
            self.tell(&Outcome::installing(installing)).await?;
            let release = Release::of(&self.addon, &folder);
            let values = &self.addon.spec.values;
            self.tools.helm.install(&release, source, values).await
        };
        match installed {
            Ok(()) => {
                self.memory.refused = None;
                Ok(Ok(()))
            }
            Err(why) => {
                let addon = &self.addon.metadata.name;
                tracing::info!(addon, why, "an addon was not installed");
                self.memory.refused = Some((wish.to_owned(), Instant::now(), why.clone()));
                Ok(Err(Outcome::failed(why)))
            }
        }
    }

    /// What is wrong with a chart otherwise, Helm says when it installs it. Those of the stick were looked at when it was built.
    async fn missing_images(&self, folder: &Path, source: &Source) -> Option<String> {
        if matches!(source, Source::Builtin { .. }) {
            return None;
        }
        let release = Release::of(&self.addon, folder);
        let values = &self.addon.spec.values;
        let manifest = self
            .tools
            .helm
            .render(&release, source, values)
            .await
            .ok()?;
        images::missing(&manifest, Registry(self.tools.places.registry)).await
    }

    async fn judge(&mut self, target: &Target, wish: String) -> Result<Outcome> {
        let folder = self.lay_out(target)?;
        let release = Release::of(&self.addon, &folder);
        let found = match self.memory.installed.take() {
            Some((known, found)) if known == wish => found,
            _ => match self.tools.helm.installed(&release).await {
                Ok(found) => found,
                Err(why) => return Ok(Outcome::installing(why).with(wish)),
            },
        };
        let (_, found) = self.memory.installed.insert((wish.clone(), found));
        let mut worst = Verdict::Well;
        for part in health::parts(&found.manifest, release.namespace) {
            worst = worst.max(target.examine(&part).await?);
        }
        let chart = Some(found.chart.clone());
        let said = match worst {
            Verdict::Gone(what) => {
                // Somebody deleted it: Helm makes it again.
                self.memory.installed = None;
                Outcome::installing(what).with(String::new())
            }
            Verdict::Broken(what) => Outcome::failed(what).with(wish),
            Verdict::Waits(what) => Outcome::installing(what).with(wish),
            Verdict::Well => Outcome::ready().with(wish),
        };
        Ok(Outcome { chart, ..said })
    }

    async fn remove(&mut self) -> Result<Outcome> {
        // Said before it begins, because it may take minutes.
        if self.addon.status.state != Progress::Removing {
            return Ok(Outcome::removing(
                "Helm removes what it installed".to_owned(),
            ));
        }
        if let Some(target) = Target::for_removal(&self.tools.client, &self.addon).await? {
            let folder = self.lay_out(&target)?;
            let release = Release::of(&self.addon, &folder);
            if let Err(why) = self.tools.helm.uninstall(&release).await {
                return Ok(Outcome::removing(why));
            }
        }
        drop(fs::remove_dir_all(self.folder()));
        let meta = &mut self.addon.metadata;
        self.tools.writer.let_go(meta, addon::FINALIZER).await?;
        Ok(Outcome::removing(String::new()))
    }

    fn folder(&self) -> PathBuf {
        let meta = &self.addon.metadata;
        let name = format!("{}.{}", meta.namespace, meta.name);
        self.tools.places.scratch.join(name)
    }

    /// The kubeconfig, for the program and for nobody else.
    fn lay_out(&self, target: &Target) -> Result<PathBuf> {
        let folder = self.folder();
        files::make_dir(&folder, 0o700)?;
        let kubeconfig = folder.join(helm::KUBECONFIG);
        files::write(&kubeconfig, target.kubeconfig.as_bytes(), Access::Owner)?;
        if let Some(manifests) = &self.addon.spec.manifests {
            let name = &self.addon.metadata.name;
            chart::wrap(manifests, name, &folder.join(chart::FOLDER))?;
        }
        Ok(folder)
    }
}
