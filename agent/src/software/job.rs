//! One job on one server, over SSH and on its cluster's API. It tells what it does, and at the end what came of it.

use std::{future::Future, time::Duration};

use firstlight_api::{
    packages::{Order, PackageOrder, Report},
    software::{NodeState, PackageState, Reboot, SoftwareSpec},
};
use tokio::time::Instant;

use super::{
    drain::{Drained, Member},
    plan::{self, Job, JobError, News},
};
use crate::{
    sources::Sources,
    ssh::{Keys, Node, SshError},
};

const COMMAND: [&str; 2] = ["firstlight-bootstrap", "packages"];
/// A login takes an emulated server a minute.
const LOOK_TIME: Duration = Duration::from_mins(3);
/// Large packages, slow disks, and another order that must end first.
const WORK_TIME: Duration = Duration::from_mins(45);
/// For a server to be there again after a restart.
const RETURN_TIME: Duration = Duration::from_mins(30);
/// One that still runs as before did not take the order.
const TAKE_TIME: Duration = Duration::from_mins(5);
const PAUSE: Duration = Duration::from_secs(5);

/// What can be ordered of a server.
pub trait Hands: Clone + Send + Sync + 'static {
    fn order(
        &self,
        node: &Node,
        order: &Order,
        time: Duration,
    ) -> impl Future<Output = Result<Report, JobError>> + Send;
}

/// The box's own.
#[derive(Clone, Debug)]
pub struct OverSsh {
    pub keys: Keys,
    pub sources: Sources,
}

impl Hands for OverSsh {
    async fn order(&self, node: &Node, order: &Order, time: Duration) -> Result<Report, JobError> {
        let mut order = order.clone();
        let repository = match &mut order {
            Order::Packages(order) if !order.dry_run => Some(&mut order.repository),
            Order::Kubernetes(order) => Some(&mut order.repository),
            Order::Packages(_) | Order::Restart { .. } | Order::Authorities(_) => None,
        };
        if let Some(repository) = repository {
            // One that cannot be read now leaves the server what it has, and apt says what is wrong with that.
            *repository = self.sources.load().await.ok().flatten();
        }
        let text = serde_json::to_vec(&order).expect("an order is plain JSON");
        let answer = self
            .keys
            .run(node, &COMMAND, &text, time)
            .await
            .map_err(|error| job_error(&error))?;
        Report::parse(&answer).map_err(|error| JobError {
            reason: plan::COMMAND_FAILED,
            message: format!("it and the box do not understand each other: {error}"),
        })
    }
}

fn job_error(error: &SshError) -> JobError {
    let reason = match error {
        SshError::NoKey => plan::NO_KEY,
        SshError::Unreachable(_) | SshError::Late(_) => plan::UNREACHABLE,
        SshError::HostKeyMismatch { .. } => plan::HOST_KEY_MISMATCH,
        SshError::Refused(_) => plan::REFUSED,
        SshError::Failed { .. }
        | SshError::TooMuch
        | SshError::Nonsense(_)
        | SshError::KeyFile { .. } => plan::COMMAND_FAILED,
    };
    JobError {
        reason,
        message: error.to_string(),
    }
}

/// Everything that one job needs.
pub struct Work<H, T> {
    pub hands: H,
    /// `None`: it is not to be talked to.
    pub node: Option<Node>,
    pub spec: SoftwareSpec,
    /// `None`: it belongs to no cluster.
    pub member: Option<Member>,
    pub tell: T,
}

/// Tells the end when it is dropped: a server whose job panicked is free again too.
pub struct End<'a, N, T: Fn(N)> {
    pub tell: &'a T,
    pub news: Option<N>,
}

impl<N, T: Fn(N)> Drop for End<'_, N, T> {
    fn drop(&mut self) {
        if let Some(news) = self.news.take() {
            (self.tell)(news);
        }
    }
}

impl<H: Hands, T: Fn(News) + Send + Sync> Work<H, T> {
    pub async fn run(self, job: Job) {
        let mut end = End {
            tell: &self.tell,
            news: Some(News::Applied(Err(JobError {
                reason: plan::COMMAND_FAILED,
                message: "the box's own work on it broke off; it is tried again".to_owned(),
            }))),
        };
        end.news = Some(match job {
            Job::Look => News::Looked(self.look().await),
            Job::Apply => News::Applied(self.apply().await),
            Job::Release => {
                self.uncordon().await;
                News::Released
            }
        });
    }

    fn packages(&self, dry_run: bool) -> Order {
        Order::Packages(PackageOrder {
            state: self.spec.state,
            packages: self.spec.packages.clone(),
            dry_run,
            repository: None,
        })
    }

    async fn order(&self, order: &Order, time: Duration) -> Result<Report, JobError> {
        match &self.node {
            Some(node) => self.hands.order(node, order, time).await,
            None => Err(JobError {
                reason: plan::UNREACHABLE,
                message: "its address is not known".to_owned(),
            }),
        }
    }

    async fn look(&self) -> Result<Report, JobError> {
        self.order(&self.packages(true), LOOK_TIME).await
    }

    fn say(&self, state: NodeState, message: impl Into<String>) {
        (self.tell)(News::Doing(state, message.into()));
    }

    async fn apply(&self) -> Result<Report, JobError> {
        let mut report = self.order(&self.packages(false), WORK_TIME).await?;
        let is_done = |package: &firstlight_api::packages::PackageReport| {
            package.state == PackageState::Ready
        };
        let restart = self.spec.reboot == Reboot::IfNeeded && report.reboot_needed;
        if restart && report.packages.iter().all(is_done) {
            (self.tell)(News::Has(report.packages));
            self.drain().await;
            report = self.restart(&report.boot_id).await?;
        }
        self.come_back(&report.boot_id).await;
        Ok(report)
    }

    async fn drain(&self) {
        let Some(member) = &self.member else {
            return;
        };
        self.say(NodeState::Draining, "its pods are moved away");
        loop {
            match member.drain().await {
                Ok(Drained::Empty) => return,
                Ok(Drained::Waits(what)) => self.say(NodeState::Draining, what),
                Err(error) => self.say(NodeState::Draining, no_api(&member.cluster, &error)),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns when it runs another kernel than that of `boot_id`, and answers.
    async fn restart(&self, boot_id: &str) -> Result<Report, JobError> {
        self.say(NodeState::Restarting, "it restarts");
        let began = Instant::now();
        let mut ordered: Option<Instant> = None;
        loop {
            if ordered.is_none_or(|at| at.elapsed() > TAKE_TIME) {
                let order = Order::Restart {
                    boot_id: boot_id.to_owned(),
                };
                match self.order(&order, LOOK_TIME).await {
                    // It may be gone before it has said so.
                    Ok(_) => ordered = Some(Instant::now()),
                    Err(error) if error.reason == plan::UNREACHABLE => {
                        ordered = Some(Instant::now());
                    }
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(PAUSE).await;
            match self.look().await {
                Ok(report) if report.boot_id != boot_id => return Ok(report),
                Err(error) if error.reason != plan::UNREACHABLE => return Err(error),
                Ok(_) | Err(_) if began.elapsed() < RETURN_TIME => {}
                Ok(_) => {
                    return Err(JobError {
                        reason: plan::COMMAND_FAILED,
                        message: "it was told to restart several times and still runs".to_owned(),
                    });
                }
                Err(error) => {
                    return Err(JobError {
                        message: format!(
                            "it has not come back from its restart: {}",
                            error.message
                        ),
                        ..error
                    });
                }
            }
        }
    }

    /// Uncordons what was cordoned for this, once the node is well. Also where nothing restarted: an older wish may have begun it.
    async fn come_back(&self, boot_id: &str) {
        let Some(member) = &self.member else {
            return;
        };
        loop {
            let waits = match member.is_held().await {
                Ok(false) => return,
                // Packages need no API; only who may have cordoned waits for one.
                Err(_) if self.spec.reboot == Reboot::Never => return,
                Err(error) => no_api(&member.cluster, &error),
                Ok(true) => match member.is_back(boot_id).await {
                    Ok(true) => return self.uncordon().await,
                    Ok(false) => "its node is not ready yet".to_owned(),
                    Err(error) => no_api(&member.cluster, &error),
                },
            };
            self.say(NodeState::Restarting, waits);
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn uncordon(&self) {
        let Some(member) = &self.member else {
            return;
        };
        while let Err(error) = member.uncordon().await {
            self.say(NodeState::Restarting, no_api(&member.cluster, &error));
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn no_api(cluster: &str, error: &anyhow::Error) -> String {
    format!("the API of the cluster {cluster} does not answer: {error:#}")
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone)]
    pub struct Panicking;

    impl Hands for Panicking {
        async fn order(&self, _: &Node, _: &Order, _: Duration) -> Result<Report, JobError> {
            panic!("as a bug would")
        }
    }

    #[tokio::test]
    async fn a_job_that_panics_tells_its_end() {
        for job in [Job::Look, Job::Apply] {
            let told = Arc::new(Mutex::new(Vec::new()));
            let heard = told.clone();
            let work = Work {
                hands: Panicking,
                node: Some(Node {
                    mac: "52:54:00:00:00:01".parse().unwrap(),
                    address: [127, 0, 0, 1].into(),
                }),
                spec: SoftwareSpec::default(),
                member: None,
                tell: move |news: News| heard.lock().unwrap().push(news.is_end()),
            };
            let ended = tokio::spawn(work.run(job)).await;
            assert!(ended.unwrap_err().is_panic());
            assert_eq!(*told.lock().unwrap(), [true]);
        }
    }
}
