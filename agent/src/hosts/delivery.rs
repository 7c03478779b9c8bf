//! Handing out bootstrap data: from a question at the endpoint to its answer. The controller decides at once what is next;
//! what takes time (reading Secrets) is a task, and what must last comes back to the controller.

use std::time::Duration;

use firstlight_api::{bmh::BareMetalHost, site::SshKey, status::Problem};
use firstlight_netboot::MacAddr;
use tokio::sync::{mpsc, oneshot};

use super::{
    bootstrap::{self, Next, Reading, Secrets, Subject},
    ledger::Ledgers,
    record::Record,
};
use crate::{
    fleet::{Answer, Ask, BootstrapData, Question},
    ssh::Keys,
};

/// What a delivery is made of, owned: it runs in a task of its own.
pub struct Delivery {
    pub mac: MacAddr,
    pub name: String,
    pub object: Option<BareMetalHost>,
    pub ssh_keys: Vec<SshKey>,
    pub keys: Keys,
    pub secrets: mpsc::Sender<Reading>,
}

pub struct Work {
    delivery: Delivery,
    question: Question,
    /// Of the deployment that it is about.
    token: Option<String>,
}

pub enum Outcome {
    Confirmed(Confirmed),
    Answered {
        mac: MacAddr,
        problem: Option<Problem>,
    },
}

/// The host has shown that it has the data; it is told so once that is on the disk.
pub struct Confirmed {
    pub mac: MacAddr,
    token: Option<String>,
    answer: oneshot::Sender<Answer>,
}

/// Whoever has the token, and the key of the ramdisk that wrote it to the disk, is the installed system: that it asks proves that the image is on the disk.
pub fn heard(record: &mut Record, question: &Question, ledgers: &Ledgers, now: Duration) {
    let known = record.ledger.deployment.as_ref();
    if !known.is_some_and(|deployment| bootstrap::fits(deployment, &question.token, question.key)) {
        return;
    }
    record.polled = Some(now);
    record.remember(ledgers, |ledger| {
        if let Some(deployment) = &mut ledger.deployment {
            deployment.written = true;
        }
    });
}

/// Answers at once where it can; otherwise what is left to do.
pub fn begin(record: &Record, question: Question, delivery: Delivery) -> Option<Work> {
    let Some(deployment) = record.ledger.deployment.as_ref() else {
        question.refuse(Answer::WrongToken);
        return None;
    };
    if !bootstrap::fits(deployment, &question.token, question.key) {
        question.refuse(Answer::WrongToken);
        return None;
    }
    let next = bootstrap::next(deployment, record.plan.as_ref());
    let answer = match (next, &question.ask) {
        (Next::Deliver, _) => {
            return Some(Work {
                delivery,
                question,
                token: deployment.token.clone(),
            });
        }
        (Next::Used, _) => Answer::Used,
        (_, Ask::Confirm { .. }) => Answer::Differs,
        (Next::Wait { seconds }, Ask::Fetch) => Answer::Wait { seconds },
        (Next::Reboot, Ask::Fetch) => Answer::Reboot,
    };
    question.refuse(answer);
    None
}

impl Work {
    pub async fn run(self) -> Outcome {
        let mac = self.delivery.mac;
        let (data, problem) = match self.delivery.data().await {
            Ok(data) => (data, None),
            Err(problem) => {
                tracing::info!(%mac, problem = problem.what, "its bootstrap data cannot be handed out yet");
                let wait = Answer::Wait {
                    seconds: bootstrap::PAUSE,
                };
                self.question.refuse(wait);
                return Outcome::Answered {
                    mac,
                    problem: Some(problem),
                };
            }
        };
        match &self.question.ask {
            Ask::Fetch => self.question.refuse(Answer::Bootstrap(Box::new(data))),
            Ask::Confirm { received } if received.eq_ignore_ascii_case(&data.receipt()) => {
                return Outcome::Confirmed(Confirmed {
                    mac,
                    token: self.token,
                    answer: self.question.answer,
                });
            }
            Ask::Confirm { .. } => self.question.refuse(Answer::Differs),
        }
        Outcome::Answered { mac, problem }
    }
}

impl Delivery {
    async fn data(&self) -> Result<BootstrapData, Problem> {
        let box_key = self.keys.public(self.mac).await;
        let secrets = match self.object.clone() {
            Some(host) => self.read(host).await?,
            None => Secrets::default(),
        };
        let host_key = self.keys.host_key(self.mac).await;
        // An older box installed it, whose image makes no user for the box.
        let old = box_key.clone().filter(|_| host_key.is_none());
        let subject = Subject {
            name: &self.name,
            mac: self.mac,
            object: self.object.as_ref(),
            ssh_keys: &[&self.ssh_keys[..], old.as_slice()].concat(),
            box_key: box_key.as_ref(),
            host_key,
        };
        bootstrap::data(&subject, &secrets)
    }

    async fn read(&self, host: BareMetalHost) -> Result<Secrets, Problem> {
        let (answer, answered) = oneshot::channel();
        let stopping = || Problem {
            what: "the controller is stopping".to_owned(),
            next: "nothing: the host asks again".to_owned(),
        };
        let reading = Reading { host, answer };
        self.secrets.send(reading).await.map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?
    }
}

impl Confirmed {
    /// The token works no more from the moment at which this is on the disk.
    pub fn finish(self, record: &mut Record, ledgers: &Ledgers) {
        let same = |token: &Option<String>| *token == self.token;
        let token = self.token.clone();
        let current = record.ledger.deployment.as_ref();
        if !current.is_some_and(|deployment| same(&deployment.token)) {
            drop(self.answer.send(Answer::WrongToken));
            return;
        }
        let kept = record.remember(ledgers, |ledger| {
            let current = ledger.deployment.as_mut();
            if let Some(deployment) = current.filter(|deployment| deployment.token == token) {
                deployment.delivered = true;
            }
        });
        record.hand_out_problem = None;
        let answer = if kept {
            Answer::Confirmed
        } else {
            Answer::Differs
        };
        // Who does not hear it asks again, and is told that the token was used.
        drop(self.answer.send(answer));
    }
}
