//! Handing out bootstrap data: from a question at the endpoint to its answer. What is next is decided at once; what takes time (reading
//! Secrets) comes back as an event, and what must last is on the disk before the host hears of it.

use std::{sync::Arc, time::Duration};

use firstlight_api::{bmh::BareMetalHost, site::SshKey, status::Problem};
use tokio::sync::{mpsc, oneshot};

use super::{
    bootstrap::{self, Next, Reading, Secrets, Subject},
    event::{Collect, Question},
    host::Host,
    memory::Step,
    store::Secret,
};
use crate::{
    fleet::{Answer, Ask, BootstrapData},
    ssh::Keys,
};

/// Whoever has the token, and the key of the ramdisk that wrote it to the disk, is the installed system: that it asks proves that the
/// image is on the disk.
pub fn heard(host: &mut Host, question: &Question, now: Duration) {
    if !fits(host, question) {
        return;
    }
    host.system.polled = Some(now);
    host.memory.note(|ledger| {
        if let Some(deployment) = &mut ledger.deployment {
            deployment.written = true;
        }
    });
}

fn fits(host: &Host, question: &Question) -> bool {
    let deployment = host.ledger().deployment.as_ref();
    let (token, key) = (&question.token, question.key);
    deployment.is_some_and(|deployment| bootstrap::fits(deployment, token, key))
}

/// The answer where there is one at once; `None`: its data have to be collected.
pub fn answer(host: &Host, question: &Question) -> Option<Answer> {
    let deployment = host.ledger().deployment.as_ref();
    let Some(deployment) = deployment.filter(|_| fits(host, question)) else {
        return Some(Answer::WrongToken);
    };
    match (bootstrap::next(deployment, host.plan()), &question.ask) {
        (Next::Deliver, _) => None,
        (Next::Used, _) => Some(Answer::Used),
        (_, Ask::Confirm { .. }) => Some(Answer::Differs),
        (Next::Wait { seconds }, Ask::Fetch) => Some(Answer::Wait { seconds }),
        (Next::Reboot, Ask::Fetch) => Some(Answer::Reboot),
    }
}

/// The answer once its data were collected; `None`: the host has shown that it has them, and is told so once that is on the disk.
pub fn collected(
    host: &mut Host,
    question: &Question,
    data: Result<BootstrapData, Problem>,
) -> Option<Answer> {
    let data = match data {
        Ok(data) => data,
        Err(problem) => {
            tracing::info!(mac = %host.mac, problem = problem.what, "its bootstrap data cannot be handed out yet");
            host.work.undelivered = Some(problem);
            let seconds = bootstrap::PAUSE;
            return Some(Answer::Wait { seconds });
        }
    };
    host.work.undelivered = None;
    match &question.ask {
        Ask::Fetch => Some(Answer::Bootstrap(Box::new(data))),
        Ask::Confirm { received } if !received.eq_ignore_ascii_case(&data.receipt()) => {
            Some(Answer::Differs)
        }
        // Another deployment may have begun meanwhile.
        Ask::Confirm { .. } if !fits(host, question) => Some(Answer::WrongToken),
        Ask::Confirm { .. } => {
            host.memory.queue(Step::Delivered {
                token: Some(question.token.hash()),
                ticket: question.ticket,
            });
            None
        }
    }
}

/// Where the data of a delivery are.
pub struct Collector<'a> {
    pub ssh_keys: &'a [SshKey],
    pub keys: &'a Keys,
    pub secrets: &'a mpsc::Sender<Reading>,
}

impl Collector<'_> {
    pub async fn collect(&self, of: &Collect) -> Result<BootstrapData, Problem> {
        let box_key = self.keys.public(of.mac).await;
        let secrets = match &of.object {
            Some(object) => read(self.secrets, object.clone()).await?,
            None => Secrets::default(),
        };
        let host_key = self.keys.host_key(of.mac).await;
        // An older box installed it, whose image makes no user for the box.
        let old = box_key.clone().filter(|_| host_key.is_none());
        let subject = Subject {
            name: &of.name,
            mac: of.mac,
            object: of.object.as_deref(),
            ssh_keys: &[self.ssh_keys, old.as_slice()].concat(),
            box_key: box_key.as_ref(),
            host_key,
        };
        bootstrap::data(&subject, &secrets)
    }
}

/// The Secrets that an object names.
pub async fn read(
    secrets: &mpsc::Sender<Reading>,
    host: Arc<BareMetalHost>,
) -> Result<Secrets, Problem> {
    ask(secrets, |answer| Reading::Bootstrap { host, answer }).await
}

/// What its BMC wants to hear.
pub async fn credentials(
    secrets: &mpsc::Sender<Reading>,
    host: Arc<BareMetalHost>,
) -> Result<Secret, Problem> {
    ask(secrets, |answer| Reading::Credentials { host, answer }).await
}

async fn ask<T>(
    secrets: &mpsc::Sender<Reading>,
    reading: impl FnOnce(oneshot::Sender<Result<T, Problem>>) -> Reading,
) -> Result<T, Problem> {
    let (answer, answered) = oneshot::channel();
    let stopping = || Problem {
        what: "the controller is stopping".to_owned(),
        next: "nothing: the host asks again".to_owned(),
    };
    let asked = secrets.send(reading(answer)).await;
    asked.map_err(|_| stopping())?;
    answered.await.map_err(|_| stopping())?
}
