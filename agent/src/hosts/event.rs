//! What the hosts controller hears, and what it orders: values, so that a test can say and compare them.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc, time::Duration};

use firstlight_api::{
    account,
    bmh::BareMetalHost,
    mirror,
    report::{Directive, Progress, Report},
    signed::PublicKey,
    start::StartOrder,
    status::{HostStatus, Problem},
};
use firstlight_ironic::Node;
use firstlight_netboot::{BootTarget, ClientArch, MacAddr};

use super::{
    account::{AccountError, Change},
    ledger::{Deployment, Ledger},
    memory::Ticket,
    objects::ObjectTarget,
    plan::Action,
    store::Versions,
    stray::Strays,
    token::Token,
};
use crate::{
    fleet::{Answer, Ask, BootstrapData, Speaker},
    network::firewall::Endpoint,
    ssh::{SshError, Towards},
    store::{Reference, ServedImage},
};

/// The clocks, as they are handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub up: Duration,
    /// Seconds since 1970, for what others read.
    pub wall: i64,
}

#[derive(Debug)]
pub enum Event {
    /// `arch` is set when firmware or a boot loader asked.
    Dhcp {
        mac: MacAddr,
        arch: Option<ClientArch>,
        address: Option<Ipv4Addr>,
    },
    Report {
        ticket: Ticket,
        from: Speaker,
        report: Box<Report>,
    },
    Progress {
        ticket: Ticket,
        from: Speaker,
        progress: Progress,
    },
    /// What a ramdisk says of its BMC.
    Bmc {
        ticket: Ticket,
        from: Speaker,
        post: Box<account::Post>,
    },
    /// What was to be written about the account of a host.
    AccountWritten {
        mac: MacAddr,
        by: AccountBy,
        result: Result<(), AccountError>,
    },
    /// What came of [`Effect::AskSystem`]; an error is why nothing did.
    SystemTold {
        mac: MacAddr,
        call: Call,
        result: Result<account::Told, SshError>,
    },
    /// What came of [`Effect::LookAtMirror`].
    MirrorTold {
        mac: MacAddr,
        call: Call,
        result: Result<mirror::Told, SshError>,
    },
    /// At the bootstrap endpoint.
    Asked(Question),
    /// What a delivery is made of was read.
    Collected {
        mac: MacAddr,
        question: Question,
        data: Result<BootstrapData, Problem>,
    },
    /// Ironic is there, and images are at this URL.
    Ironic {
        box_http: String,
    },
    /// It has answered; `asked` is when the look began.
    Nodes {
        nodes: Vec<Node>,
        asked: Duration,
    },
    /// One of them, or that there is none.
    Node {
        mac: MacAddr,
        node: Option<Box<Node>>,
        asked: Duration,
    },
    /// It has not, and why.
    IronicSilent(String),
    Objects(Vec<Arc<BareMetalHost>>),
    /// The versions of Secrets that may be credentials.
    Secrets(Versions),
    Uploads(Vec<ServedImage>),
    Saved {
        mac: MacAddr,
        result: Result<(), String>,
    },
    Acted {
        mac: MacAddr,
        action: Action,
        end: End,
    },
    Restarted {
        mac: MacAddr,
        into: Towards,
        result: Result<(), String>,
    },
    /// What came of [`Effect::StartRamdisk`].
    RamdiskStarted {
        mac: MacAddr,
        result: Result<(), String>,
    },
    Ssh {
        mac: MacAddr,
        answers: bool,
    },
    /// Time has passed.
    Tick,
}

/// What an installed system asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub ticket: Ticket,
    /// The UUID of its Ironic node.
    pub host: String,
    pub token: Token,
    /// Whose signature the question has.
    pub key: Option<PublicKey>,
    pub ask: Ask,
}

/// How an action went.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Begun,
    /// A passing thing: it is tried again.
    Later,
    Refused(Problem),
}

#[derive(Debug, PartialEq)]
pub enum Effect {
    /// To the disk; [`Event::Saved`] says how that went.
    Save {
        mac: MacAddr,
        ledger: Box<Ledger>,
    },
    /// By Ironic; [`Event::Acted`].
    Act(Box<Act>),
    /// Over SSH; [`Event::Restarted`].
    Restart {
        mac: MacAddr,
        address: Option<Ipv4Addr>,
        into: Towards,
    },
    /// Its running system starts the ramdisk by itself (kexec), over SSH; [`Event::RamdiskStarted`].
    StartRamdisk {
        mac: MacAddr,
        address: Ipv4Addr,
    },
    /// Does SSH answer? [`Event::Ssh`].
    Probe {
        mac: MacAddr,
        address: Ipv4Addr,
    },
    /// Secrets and keys of a delivery; [`Event::Collected`].
    Collect(Box<Collect>),
    /// The account in a BMC; [`Event::AccountWritten`].
    Account {
        mac: MacAddr,
        by: AccountBy,
        object: Arc<BareMetalHost>,
        change: Change,
    },
    /// Its running system is asked for the account in its BMC, over SSH; [`Event::SystemTold`].
    AskSystem {
        mac: MacAddr,
        address: Ipv4Addr,
        ask: account::Ask,
        call: Call,
    },
    /// Its running system is asked, over SSH, how the mirror is that it runs on; [`Event::MirrorTold`].
    LookAtMirror {
        mac: MacAddr,
        address: Ipv4Addr,
        call: Call,
    },
    /// Objects that count for nothing.
    Strays(Strays),
    Answer {
        ticket: Ticket,
        answer: Reply,
    },
    /// What is known of a host has changed; `None`: it is forgotten.
    Show {
        mac: MacAddr,
        shown: Option<Shown>,
    },
    /// Ironic is asked soon, and then at this pace.
    Look(Look),
    /// The file of a host that is as if it had never been here.
    ForgetLedger(MacAddr),
    /// The box's keys for a host that is gone.
    ForgetKeys(MacAddr),
    /// Which disks hosts refer to.
    Use(Vec<Reference>),
    /// Hosts that shall be given back and wait for a person, as they are called.
    Held(Vec<String>),
    /// Where the BMCs listen that they name.
    Bmcs(BTreeSet<Endpoint>),
    /// Somebody was not believed.
    Refused(&'static str),
}

/// How Ironic is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The time between two looks, if Ironic is quick to answer.
    pub pause: Duration,
    /// Where something goes on, if each is to be asked for by itself: all others are looked at now and then. `None`: all are.
    pub few: Option<Vec<MacAddr>>,
}

/// Which question to the system of a host: an answer to an older one counts for nothing.
pub type Call = u64;

/// Who made or took away an account in a BMC, and is told what came of writing that down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountBy {
    /// The host's ramdisk, which waits for its answer.
    Ramdisk(Ticket),
    /// Its running system, which was asked.
    System(Call),
}

/// One action with all that is known for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    pub action: Action,
    pub mac: MacAddr,
    pub name: String,
    pub report: Option<Report>,
    /// Where its ramdisk listens.
    pub ramdisk: Option<std::net::SocketAddr>,
    pub object: Option<Arc<BareMetalHost>>,
    /// The mark of the BMC that its object names.
    pub bmc: Option<String>,
    /// Its node says that nothing is erased.
    pub uncleaned: bool,
    /// What the disk holds already, or is to get.
    pub deployment: Option<Deployment>,
    /// What the ramdisk does once the image is on the disk.
    pub start: StartOrder,
    pub token: Token,
    /// Of the ramdisk that writes the image.
    pub key: Option<PublicKey>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Collect {
    pub mac: MacAddr,
    pub name: String,
    pub object: Option<Arc<BareMetalHost>>,
    pub question: Question,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Directive(Directive),
    /// The progress was believed.
    Believed(bool),
    /// `None`: who speaks is not believed.
    Account(Option<account::Order>),
    Bootstrap(Answer),
}

/// All that others see of a host. What has not changed is the same as the last time.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub status: Arc<HostStatus>,
    pub target: BootTarget,
    /// Of its ramdisk that is there, and of the system that it has.
    pub keys: Vec<PublicKey>,
    /// `None`: it is no object yet.
    pub desired: Option<Arc<ObjectTarget>>,
}
