//! The real Helm, as a program: some calls at a time, each with a limit.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use firstlight_api::addon::Addon;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::{process::Command, sync::Semaphore};

use super::chart::{self, Source};
use crate::child;

/// In the folder of an addon.
pub const KUBECONFIG: &str = "kubeconfig";
/// On each release of ours; others are left alone.
const LABEL: &str = "firstlight.internal/addon";
/// Helm's own limit for hooks, and ours for the whole call.
const TIMEOUT: &str = "5m";
const CALL: Duration = Duration::from_mins(10);
/// Calls at the same time: together they and the agent stay below what the agent may use.
const MOST_AT_ONCE: usize = 3;
/// From here on its garbage is collected all the time; the limit that kills is the agent's own.
const MEMORY: &str = "256MiB";
/// Of what Helm says to a person.
const LONGEST: usize = 1000;

#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    places: Semaphore,
}

/// One release, and the folder with what a call needs.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    folder: &'a Path,
    addon: &'a Addon,
}

impl<'a> Release<'a> {
    pub fn of(addon: &'a Addon, folder: &'a Path) -> Self {
        Self {
            name: &addon.metadata.name,
            // Where its objects go that name no namespace.
            namespace: match addon.spec.namespace.as_str() {
                "" => "default",
                namespace => namespace,
            },
            folder,
            addon,
        }
    }

    /// A label's value has no slash.
    fn label(&self) -> String {
        let meta = &self.addon.metadata;
        format!("{}.{}", meta.namespace, meta.name)
    }
}

/// What a release has put on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// `NAME-VERSION`
    pub chart: String,
    pub manifest: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    chart: String,
    version: String,
    status: String,
    #[serde(default)]
    labels: Map<String, Value>,
}

impl Helm {
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            places: Semaphore::new(MOST_AT_ONCE),
        }
    }

    /// What it would install.
    pub async fn render(
        &self,
        release: &Release<'_>,
        source: &Source,
        values: &Map<String, Value>,
    ) -> Result<String, String> {
        let (chart, more) = located(release, source);
        let mut arguments = vec!["template", release.name, &chart, "--values", "-"];
        arguments.extend(more);
        let values = Value::Object(values.clone()).to_string();
        self.call(release, &arguments, &values).await
    }

    /// Installs or upgrades; an error is what Helm said.
    pub async fn install(
        &self,
        release: &Release<'_>,
        source: &Source,
        values: &Map<String, Value>,
    ) -> Result<(), String> {
        if let Some(found) = self.metadata(release).await? {
            self.mend(release, &found).await?;
        }
        let label = format!("{LABEL}={}", release.label());
        let (chart, more) = located(release, source);
        let mut arguments = vec![
            "upgrade",
            "--install",
            release.name,
            &chart,
            "--create-namespace",
            "--history-max",
            "3",
            "--hide-notes",
            "--timeout",
            TIMEOUT,
            "--labels",
            &label,
            "--values",
            "-",
        ];
        arguments.extend(more);
        let values = Value::Object(values.clone()).to_string();
        self.call(release, &arguments, &values).await.map(drop)
    }

    /// A release of somebody else's is left alone; one that a power cut left half-made is made free for the next try.
    async fn mend(&self, release: &Release<'_>, found: &Metadata) -> Result<(), String> {
        if !is_ours(found, &release.label()) {
            return Err(format!(
                "a Helm release {} that somebody else installed is in the namespace {}; give this Addon another name, or remove that one with `helm uninstall`",
                release.name, release.namespace
            ));
        }
        match found.status.as_str() {
            "pending-install" => self.uninstall(release).await,
            "pending-upgrade" | "pending-rollback" => self
                .call(release, &["rollback", release.name], "")
                .await
                .map(drop),
            _ => Ok(()),
        }
    }

    pub async fn uninstall(&self, release: &Release<'_>) -> Result<(), String> {
        match self.metadata(release).await? {
            Some(found) if is_ours(&found, &release.label()) => {
                let arguments = [
                    "uninstall",
                    release.name,
                    "--ignore-not-found",
                    "--wait",
                    "--timeout",
                    TIMEOUT,
                ];
                self.call(release, &arguments, "").await.map(drop)
            }
            _ => Ok(()),
        }
    }

    pub async fn installed(&self, release: &Release<'_>) -> Result<Installed, String> {
        let found = self.metadata(release).await?;
        let found =
            found.ok_or_else(|| "its Helm release is gone; it is installed again".to_owned())?;
        Ok(Installed {
            chart: format!("{}-{}", found.chart, found.version),
            manifest: self
                .call(release, &["get", "manifest", release.name], "")
                .await?,
        })
    }

    async fn metadata(&self, release: &Release<'_>) -> Result<Option<Metadata>, String> {
        match self
            .call(
                release,
                &["get", "metadata", release.name, "--output", "json"],
                "",
            )
            .await
        {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
                format!("Helm describes a release in a form that is not known: {error}")
            }),
            Err(why) if why.contains("release: not found") => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// What it prints; an error is what it says, without its prefixes.
    async fn call(
        &self,
        release: &Release<'_>,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg("--kubeconfig")
            .arg(release.folder.join(KUBECONFIG))
            .args(["--namespace", release.namespace])
            // Its caches and settings; nothing of whoever started the agent.
            .env_clear()
            .env("HOME", release.folder)
            .env("GOMEMLIMIT", MEMORY);
        let _place = self.places.acquire().await.map_err(|it| it.to_string())?;
        let output = child::output(&mut command, input.as_bytes(), CALL).await;
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(sentence(&String::from_utf8_lossy(&output.stderr)))
    }
}

/// A chart as Helm is told of it: what it is, and further arguments.
fn located<'a>(release: &Release<'_>, source: &'a Source) -> (String, Vec<&'a str>) {
    match source {
        Source::Store { url, version } => (url.clone(), vec!["--plain-http", "--version", version]),
        Source::Builtin { path, .. } => (path.display().to_string(), vec![]),
        Source::Manifests => {
            let wrapped = release.folder.join(chart::FOLDER);
            (wrapped.display().to_string(), vec![])
        }
    }
}

fn is_ours(found: &Metadata, label: &str) -> bool {
    found.labels.get(LABEL).and_then(Value::as_str) == Some(label)
}

/// The error among what Helm printed, whose log comes before it.
fn sentence(text: &str) -> String {
    let at = text.rfind("Error: ").map_or(0, |at| at + "Error: ".len());
    let line = text[at..].trim().replace('\n', " ");
    let line = line.strip_prefix("UPGRADE FAILED: ").unwrap_or(&line);
    let line = line.strip_prefix("INSTALLATION FAILED: ").unwrap_or(line);
    line.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_helm_says_becomes_a_sentence() {
        let said = "level=WARN msg=\"something\"\nError: UPGRADE FAILED: unable to continue with update:\nConfigMap \"a\" exists\n";
        assert_eq!(
            sentence(said),
            "unable to continue with update: ConfigMap \"a\" exists"
        );
        assert_eq!(sentence("killed"), "killed");
    }

    proptest::proptest! {
        #[test]
        fn whatever_helm_says_is_one_line_of_bounded_length(before: String, after: String) {
            for said in [before.clone(), format!("{before}Error: {}", after.repeat(40))] {
                let sentence = sentence(&said);
                proptest::prop_assert!(sentence.chars().count() <= LONGEST && !sentence.contains('\n'));
            }
        }
    }
}
