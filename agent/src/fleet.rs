//! The port between the edges (DHCP, HTTP) and the hosts controller: what they tell it, and what they read from it.
//!
//! The controller owns everything about hosts. The edges hand in an [`Input`] and look decisions up in the [`View`],
//! so that a controller that is slow, or waits for Kubernetes, never holds up a network boot.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use firstlight_api::{
    account,
    report::{Directive, Progress, Report},
    signed::PublicKey,
    tpm::Fingerprint,
};
use firstlight_measured::Booted;
use firstlight_netboot::{BootTarget, ClientArch, MacAddr};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};

use crate::ssh::HostKey;

/// Something that an edge heard about a host.
#[derive(Debug)]
pub enum Input {
    /// A DHCP request. `arch` is set when firmware or a boot loader sent it; `address` is what it was given, if anything.
    Dhcp {
        mac: MacAddr,
        arch: Option<ClientArch>,
        address: Option<Ipv4Addr>,
    },
    /// The ramdisk's report; the answer goes back over HTTP.
    Report {
        from: Speaker,
        report: Box<Report>,
        answer: oneshot::Sender<Directive>,
    },
    /// The answer says whether it was believed.
    Progress {
        from: Speaker,
        progress: Progress,
        answer: oneshot::Sender<bool>,
    },
    /// What a ramdisk says of its BMC; `None`: it is not believed.
    Bmc {
        from: Speaker,
        post: Box<account::Post>,
        answer: oneshot::Sender<Option<account::Order>>,
    },
    /// An installed system at the bootstrap endpoint.
    Bootstrap(Question),
}

/// Who signed a post, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    pub peer: IpAddr,
    pub key: PublicKey,
    /// Earlier keys of the same machine, as far as a report has shown it.
    pub follows: Vec<PublicKey>,
    /// The TPM that a report has proved; progress says nothing of it.
    pub tpm: Option<Fingerprint>,
    /// How a report says that its machine was started; progress says nothing of it.
    pub boot: Option<Booted>,
}

/// A question with its way back.
pub struct Question {
    /// The UUID of its Ironic node, which the host's address at the endpoint ends in.
    pub host: String,
    pub token: String,
    /// Whose signature the question has.
    pub key: Option<PublicKey>,
    pub ask: Ask,
    pub answer: oneshot::Sender<Answer>,
}

impl Question {
    /// Whoever asked may be gone.
    pub fn refuse(self, answer: Answer) {
        drop(self.answer.send(answer));
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question")
            .field("host", &self.host)
            .field("ask", &self.ask)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Fetch,
    /// It has the data: their SHA-256 in hex.
    Confirm {
        received: String,
    },
}

/// The content of a config drive, by whichever way it goes.
#[derive(Clone, PartialEq)]
pub struct BootstrapData {
    pub user_data: String,
    pub meta_data: Value,
    pub network_data: Value,
    /// Of the host itself; only by TLS.
    pub host_key: Option<HostKey>,
}

impl std::fmt::Debug for BootstrapData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootstrapData").finish_non_exhaustive()
    }
}

impl BootstrapData {
    /// What the host sends back when it has it.
    pub fn receipt(&self) -> String {
        firstlight_artifacts::hex(&Sha256::digest(&self.user_data))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Wait {
        seconds: u32,
    },
    Reboot,
    Bootstrap(Box<BootstrapData>),
    Confirmed,
    /// The data were had before.
    Used,
    WrongToken,
    Unknown,
    /// What it confirms is not what it was to receive.
    Differs,
}

/// What the controller has decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub targets: BTreeMap<MacAddr, BootTarget>,
    /// Who signs for which host.
    pub speakers: BTreeMap<PublicKey, Named>,
}

/// A host as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub mac: MacAddr,
    pub name: String,
}

impl View {
    /// A host that nobody knows boots the ramdisk, which tells what it is.
    pub fn boot_target(&self, mac: MacAddr) -> BootTarget {
        self.targets
            .get(&mac)
            .cloned()
            .unwrap_or(BootTarget::Ramdisk)
    }
}

/// The edges' end.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Random, in hex: what was signed in another session means nothing.
    session: Arc<str>,
    inputs: mpsc::Sender<Input>,
    view: watch::Receiver<Arc<View>>,
}

/// The controller's end.
#[derive(Debug)]
pub struct Controller {
    pub inputs: mpsc::Receiver<Input>,
    pub view: watch::Sender<Arc<View>>,
}

/// The controller answers at once, or something is wrong with it; the ramdisk asks again.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Inputs that may wait for the controller; hosts repeat themselves, so what is beyond is dropped.
const BACKLOG: usize = 256;

pub fn channel() -> (Fleet, Controller) {
    let (sender, inputs) = mpsc::channel(BACKLOG);
    let (view, reader) = watch::channel(Arc::new(View::default()));
    (
        Fleet {
            session: format!("{:032x}", rand::random::<u128>()).into(),
            inputs: sender,
            view: reader,
        },
        Controller { inputs, view },
    )
}

impl Fleet {
    pub fn boot_target(&self, mac: MacAddr) -> BootTarget {
        self.view.borrow().boot_target(mac)
    }

    /// The host that `key` signs for: its ramdisk that is there, or the system that it has.
    pub fn speaker(&self, key: PublicKey) -> Option<Named> {
        self.view.borrow().speakers.get(&key).cloned()
    }

    pub fn session(&self) -> &str {
        &self.session
    }

    /// Never waits.
    pub fn tell(&self, input: Input) {
        if self.inputs.try_send(input).is_err() {
            tracing::debug!("the hosts controller is busy; a message of a host was dropped");
        }
    }

    /// `key` is whose signature the question has.
    pub async fn bootstrap(
        &self,
        host: String,
        token: String,
        key: Option<PublicKey>,
        ask: Ask,
    ) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.tell(Input::Bootstrap(Question {
            host,
            token,
            key,
            ask,
            answer,
        }));
        match tokio::time::timeout(ANSWER_TIME, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Answer::Wait { seconds: 10 },
        }
    }

    pub async fn report(&self, from: Speaker, report: Report) -> Directive {
        let (answer, answered) = oneshot::channel();
        self.tell(Input::Report {
            from,
            report: Box::new(report),
            answer,
        });
        let busy = || Directive::Wait {
            seconds: 5,
            reason: "the box is still starting".to_owned(),
        };
        match tokio::time::timeout(ANSWER_TIME, answered).await {
            Ok(Ok(directive)) => directive,
            Ok(Err(_)) | Err(_) => busy(),
        }
    }

    /// `None` if it is not believed.
    pub async fn bmc(&self, from: Speaker, post: account::Post) -> Option<account::Order> {
        let (answer, answered) = oneshot::channel();
        self.tell(Input::Bmc {
            from,
            post: Box::new(post),
            answer,
        });
        let answered = tokio::time::timeout(ANSWER_TIME, answered).await;
        match answered {
            Ok(Ok(order)) => order,
            Ok(Err(_)) | Err(_) => Some(account::Order::Repeat { seconds: 5 }),
        }
    }

    /// True if it was believed.
    pub async fn progress(&self, from: Speaker, progress: Progress) -> bool {
        let (answer, answered) = oneshot::channel();
        self.tell(Input::Progress {
            from,
            progress,
            answer,
        });
        let answered = tokio::time::timeout(ANSWER_TIME, answered).await;
        matches!(answered, Ok(Ok(true)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use firstlight_api::report::{Fresh, Inventory, LookupState};

    fn report() -> Report {
        Report {
            boot_mac: "52:54:00:00:00:01".into(),
            boot_id: "1".into(),
            address: String::new(),
            inventory: Inventory::default(),
            disks: vec![],
            lookup: LookupState::NotAsked,
            tpm: firstlight_api::tpm::Tpm::default(),
            follows: Vec::new(),
            fresh: Fresh::default(),
        }
    }

    #[tokio::test]
    async fn an_unknown_host_boots_the_ramdisk_and_a_decided_one_as_decided() {
        let (fleet, controller) = channel();
        let mac = MacAddr::new([0x52, 0x54, 0, 0, 0, 1]).unwrap();
        assert_eq!(fleet.boot_target(mac), BootTarget::Ramdisk);
        controller.view.send_replace(Arc::new(View {
            targets: BTreeMap::from([(mac, BootTarget::Disk)]),
            ..View::default()
        }));
        assert_eq!(fleet.boot_target(mac), BootTarget::Disk);
    }

    #[tokio::test]
    async fn a_report_is_answered_by_the_controller_and_without_one_the_host_waits() {
        let (fleet, mut controller) = channel();
        let from = Speaker {
            peer: IpAddr::from([172, 22, 0, 100]),
            key: PublicKey::new([1; 32]),
            follows: Vec::new(),
            tpm: None,
            boot: None,
        };
        let asked = tokio::spawn({
            let (fleet, from) = (fleet.clone(), from.clone());
            async move { fleet.report(from, report()).await }
        });
        let Some(Input::Report { answer, .. }) = controller.inputs.recv().await else {
            panic!("a report")
        };
        answer.send(Directive::BootDisk).unwrap();
        assert_eq!(asked.await.unwrap(), Directive::BootDisk);
        drop(controller);
        assert!(matches!(
            fleet.report(from, report()).await,
            Directive::Wait { seconds: 5, .. }
        ));
    }
}
