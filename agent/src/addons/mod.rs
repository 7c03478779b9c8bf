//! Addons: what runs on a workload cluster besides Kubernetes, out of the box's store or from the stick.
//!
//! One task looks at all [`Addon`] objects, and at each change again. [`plan`] (pure) says what an addon waits for and what it
//! has become; [`helm`] installs and removes with the real program; [`health`] (pure) reads from objects whether what was
//! installed runs, and which one is to blame if not. Plain manifests become a chart first ([`chart`]), so there is one way to
//! install, to upgrade, to remove, and to leave alone what somebody made by hand: Helm refuses to take that over.
//!
//! Must not: keep anything that Kubernetes and Helm do not know. After a restart everything is read again.

mod chart;
mod health;
mod helm;
mod plan;
mod store;

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::Result;
use firstlight_api::{addon::Addon, software::Software};
use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use chart::Source;
use health::Verdict;
use helm::{Helm, Release};
use plan::{Progress, Said};
use store::{Store, Target};

use crate::{
    capi::Listed,
    clock,
    files::{self, Access},
    status::{Failing, Rounds, StatusSender, Update},
    store::{Store as Artifacts, User},
};

/// Between two looks without a change, while something is not ready and when all is.
const BUSY: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);
/// After a change: more of them come together.
const SETTLE: Duration = Duration::from_millis(500);
/// Before something that Helm refused is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// Where an addon's parts are on the box.
#[derive(Clone, Debug)]
pub struct Places {
    pub helm: PathBuf,
    /// Folders of addons that the stick brings.
    pub builtin: PathBuf,
    /// In memory: kubeconfigs lie there.
    pub scratch: PathBuf,
    /// The registry's address on the box.
    pub registry: String,
}

/// Runs until `stop`.
pub async fn run(
    places: Places,
    mut kubernetes: watch::Receiver<Option<Client>>,
    artifacts: watch::Receiver<Option<Artifacts>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(client) = kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        reconcile(places, client, artifacts, status).await
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// For ever: look, install, judge, wait for a change.
pub async fn reconcile(
    places: Places,
    client: Client,
    artifacts: watch::Receiver<Option<Artifacts>>,
    status: StatusSender,
) -> Result<()> {
    let (trigger, mut changes) = mpsc::channel(1);
    let store = Store::new(client);
    let watching = tokio::spawn(store.clone().follow(trigger));
    let failing = |source, what| Failing::new(status.clone(), source, what);
    let mut rounds = Rounds {
        whole: failing("addons-loop", "addons are not looked after"),
        objects: failing("addons-objects", "an Addon is left as it is"),
    };
    let mut keeper = Keeper {
        helm: Helm::new(places.helm.clone()),
        places,
        store,
        artifacts,
        status,
        attempts: BTreeMap::new(),
        installed: BTreeMap::new(),
    };
    loop {
        let look = keeper.look().await;
        let is_quiet = look.as_ref().is_ok_and(|look| look.is_quiet);
        let rest = if is_quiet { IDLE } else { BUSY };
        rounds.went(look.map(|look| look.odd), clock::uptime());
        tokio::select! {
            news = changes.recv() => match news {
                Some(()) => tokio::time::sleep(SETTLE).await,
                None => return watching.await.map_err(Into::into),
            },
            () = tokio::time::sleep(rest) => {}
        }
        while changes.try_recv().is_ok() {}
    }
}

struct Keeper {
    places: Places,
    store: Store,
    artifacts: watch::Receiver<Option<Artifacts>>,
    status: StatusSender,
    helm: Helm,
    /// What Helm refused, by addon: the wish, when, and why.
    attempts: BTreeMap<String, (String, Instant, String)>,
    /// What Helm installed, by wish.
    installed: BTreeMap<String, helm::Installed>,
}

/// What came of looking at all addons once.
struct Look {
    /// Nothing is under way, and nothing is odd.
    is_quiet: bool,
    /// A sentence for each object that could not be read or written.
    odd: Vec<String>,
}

impl Keeper {
    async fn look(&mut self) -> Result<Look> {
        let Listed {
            objects: addons,
            unreadable: mut odd,
        } = self.store.addons().await?;
        // What an object that cannot be read refers to stays in use.
        if let (Some(artifacts), true) = (&*self.artifacts.borrow(), odd.is_empty()) {
            artifacts.note(User::Addons, plan::charts(&addons));
        }
        let software = if addons.iter().any(plan::needs_software) {
            self.store.software().await?
        } else {
            Vec::new()
        };
        let mut is_quiet = true;
        let mut lines = Vec::new();
        for addon in &addons {
            let said = self.attend(addon, &addons, &software).await;
            let status = plan::status(addon, &said, &clock::rfc3339());
            is_quiet &= said.progress == Progress::Ready;
            lines.push(plan::line(addon, &status));
            if status != addon.status
                && let Err(error) = self.store.write_status(addon, &status).await
            {
                odd.push(format!("{error:#}"));
            }
        }
        self.status.send(Update::Addons(lines));
        let known = |key: &String| addons.iter().any(|addon| store::key(addon) == *key);
        self.attempts.retain(|key, _| known(key));
        self.installed
            .retain(|wish, _| addons.iter().any(|addon| addon.status.installed == *wish));
        is_quiet &= odd.is_empty();
        Ok(Look { is_quiet, odd })
    }

    async fn attend(&mut self, addon: &Addon, all: &[Addon], software: &[Software]) -> Said {
        let result = if addon.metadata.is_deleting() {
            self.remove(addon).await
        } else {
            self.keep(addon, all, software).await
        };
        result.unwrap_or_else(|error| Said::pending(format!("{error:#}; the box tries again")))
    }

    async fn keep(&mut self, addon: &Addon, all: &[Addon], software: &[Software]) -> Result<Said> {
        self.store.hold(addon).await?;
        if let Some(waits) = plan::waits(addon, all, software) {
            return Ok(Said::pending(waits));
        }
        let target = match self.store.target(addon).await? {
            Ok(target) => target,
            Err(waits) => return Ok(Said::pending(waits)),
        };
        let source = match Source::of(addon, &self.places) {
            Ok(source) => source,
            Err(wrong) => return Ok(Said::failed(wrong)),
        };
        let wish = source.digest(addon);
        if addon.status.installed != wish
            && let Err(failed) = self.install(addon, &target, &source, &wish).await?
        {
            return Ok(failed);
        }
        self.judge(addon, &target, wish).await
    }

    /// Helm installs or upgrades; what it refused a moment ago is not asked again at once.
    async fn install(
        &mut self,
        addon: &Addon,
        target: &Target,
        source: &Source,
        wish: &str,
    ) -> Result<Result<(), Said>> {
        let key = store::key(addon);
        if let Some((refused, at, why)) = self.attempts.get(&key)
            && refused == wish
            && at.elapsed() < AGAIN
        {
            return Ok(Err(Said::failed(why.clone())));
        }
        let installing = Said::installing(format!("Helm installs {}", source.title()));
        let status = plan::status(addon, &installing, &clock::rfc3339());
        self.store.write_status(addon, &status).await?;
        let folder = self.lay_out(addon, target)?;
        let release = Release::of(addon, &folder);
        match self
            .helm
            .install(&release, source, &addon.spec.values)
            .await
        {
            Ok(()) => {
                self.attempts.remove(&key);
                Ok(Ok(()))
            }
            Err(why) => {
                tracing::info!(addon = key, why, "an addon was not installed");
                self.attempts
                    .insert(key, (wish.to_owned(), Instant::now(), why.clone()));
                Ok(Err(Said::failed(why)))
            }
        }
    }

    async fn judge(&mut self, addon: &Addon, target: &Target, wish: String) -> Result<Said> {
        let folder = self.lay_out(addon, target)?;
        let release = Release::of(addon, &folder);
        if !self.installed.contains_key(&wish) {
            match self.helm.installed(&release).await {
                Ok(found) => drop(self.installed.insert(wish.clone(), found)),
                Err(why) => return Ok(Said::installing(why).with(wish)),
            }
        }
        let found = &self.installed[&wish];
        let mut worst = Verdict::Well;
        for part in health::parts(&found.manifest, release.namespace) {
            worst = worst.max(target.examine(&part).await?);
        }
        Ok(Said {
            chart: Some(found.chart.clone()),
            ..match worst {
                // Somebody deleted it: Helm makes it again.
                Verdict::Gone(what) => Said::installing(what).with(String::new()),
                Verdict::Broken(what) => Said::failed(what).with(wish),
                Verdict::Waits(what) => Said::installing(what).with(wish),
                Verdict::Well => Said::ready().with(wish),
            }
        })
    }

    async fn remove(&mut self, addon: &Addon) -> Result<Said> {
        // Said before it begins, because it may take minutes.
        if addon.status.state != Progress::Removing {
            return Ok(Said::removing("Helm removes what it installed".to_owned()));
        }
        if let Some(target) = self.store.target_of_removal(addon).await? {
            let folder = self.lay_out(addon, &target)?;
            if let Err(why) = self.helm.uninstall(&Release::of(addon, &folder)).await {
                return Ok(Said::removing(why));
            }
        }
        drop(fs::remove_dir_all(self.folder(addon)));
        self.store.let_go(addon).await?;
        Ok(Said::removing(String::new()))
    }

    fn folder(&self, addon: &Addon) -> PathBuf {
        self.places
            .scratch
            .join(store::key(addon).replace('/', "."))
    }

    /// The kubeconfig, for the program and for nobody else.
    fn lay_out(&self, addon: &Addon, target: &Target) -> Result<PathBuf> {
        let folder = self.folder(addon);
        files::make_dir(&folder, 0o700)?;
        let kubeconfig = folder.join(helm::KUBECONFIG);
        files::write(&kubeconfig, target.kubeconfig.as_bytes(), Access::Owner)?;
        if let Some(manifests) = &addon.spec.manifests {
            chart::wrap(manifests, &addon.metadata.name, &folder.join(chart::FOLDER))?;
        }
        Ok(folder)
    }
}
