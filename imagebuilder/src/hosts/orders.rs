//! What a verb writes, as a value, and how that reaches the box: its own `kubectl`, over SSH.
//!
//! What would do harm is refused before anything is written ([`firstlight_api::verb`]); the agent looks at it again.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use firstlight_api::bmh::{INSTALL_ANNOTATION, annotations::DETACHED};
use firstlight_api::capm3::FORGET_HOST_ANNOTATION;
use firstlight_api::status::{HostStatus, SiteStatus};
use firstlight_api::verb::{
    self, CONFIRM_ANNOTATION, Insistence, MOST_DEPARTURES, Manner, Owner, Verb,
};
use serde_json::{Value, json};

use super::find::find;
use super::{ForgetArgs, GiveBackArgs, PowerArgs, Switch};
use crate::UsageError;

const HOSTS: &str = "baremetalhosts.metal3.io";
const MACHINES: &str = "machines.cluster.x-k8s.io";
const METAL3_MACHINES: &str = "metal3machines.infrastructure.cluster.x-k8s.io";
/// Cluster API waits neither for pods to leave a server that is dead, nor for their disks.
const UNDRAINED: [&str; 2] = [
    "machine.cluster.x-k8s.io/exclude-node-draining",
    "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach",
];

/// All that is written for one command, in this order.
#[derive(Debug, PartialEq)]
pub struct Order<'a> {
    pub hosts: Vec<&'a HostStatus>,
    pub verb: &'static str,
    pub writes: Vec<Write>,
    /// A sentence without a full stop.
    pub done: String,
}

/// An object of the box's Kubernetes.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    kind: &'static str,
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Patch(Target, Value),
    /// It goes when nothing holds it any more.
    Delete(Target),
    /// Nothing that follows is written while it is there.
    UnlessThere(Target),
}

impl Target {
    fn host(host: &HostStatus) -> Self {
        Self::beside(host, HOSTS, &host.name)
    }

    fn beside(host: &HostStatus, kind: &'static str, name: &str) -> Self {
        Self {
            kind,
            namespace: host.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// It goes into a shell on the box: only what can be a name is let through.
    fn words(&self) -> Result<String> {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        for word in [namespace, name] {
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
            let fine = !word.is_empty() && !word.starts_with('-') && word.bytes().all(letter);
            ensure!(fine, "{word:?} is no name of an object");
        }
        Ok(format!("{kind} {name} --namespace {namespace}"))
    }
}

impl Write {
    pub fn to_host(host: &HostStatus, patch: Value) -> Self {
        Self::Patch(Target::host(host), patch)
    }

    fn command(&self) -> Result<String> {
        Ok(match self {
            Self::Patch(target, patch) => {
                let (words, patch) = (target.words()?, patch.to_string());
                ensure!(!patch.contains('\''), "no quotes in {patch}");
                format!("kubectl patch {words} --type merge --patch '{patch}'")
            }
            Self::Delete(target) => {
                let words = target.words()?;
                format!("kubectl delete {words} --wait=false --ignore-not-found")
            }
            Self::UnlessThere(target) => {
                let (words, name) = (target.words()?, &target.name);
                format!(
                    "found=$(kubectl get {words} --ignore-not-found --output name) && {{ test -z \"$found\" || {{ echo \"the Metal3Machine {name} is \
                     there: delete its Machine instead\" >&2; false; }}; }}"
                )
            }
        })
    }
}

impl Order<'_> {
    /// `way` is an `ssh` with everything but the command.
    pub fn send(&self, mut way: Command) -> Result<()> {
        let commands: Result<Vec<String>> = self.writes.iter().map(Write::command).collect();
        let output = way
            .arg(commands?.join(" && "))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .context("running ssh; install openssh-client")?;
        ensure!(
            output.status.success(),
            "the box did not take `{}` for {}: {}",
            self.verb,
            names(&self.hosts, ", "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }
}

pub fn names(hosts: &[&HostStatus], between: &str) -> String {
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    names.join(between)
}

/// One asks, and how.
#[derive(Clone, Copy)]
struct Request<'a> {
    verb: Verb,
    manner: Manner,
    host: &'a HostStatus,
}

impl<'a> Request<'a> {
    fn soft(verb: Verb, host: &'a HostStatus) -> Self {
        let manner = Manner::Soft;
        Self { verb, manner, host }
    }

    /// The host's owner, if it may be done: at once, or because of what the person insists on.
    fn permitted(self, site: &'a SiteStatus, insist: &[Insistence]) -> Result<Option<Owner<'a>>> {
        let Self { verb, manner, host } = self;
        let owner = Owner::of(site, host);
        let Some(refusal) = verb::refusal(verb, manner, host, owner.as_ref()) else {
            return Ok(owner);
        };
        if refusal.unless.is_some_and(|flag| insist.contains(&flag)) {
            return Ok(owner);
        }
        let way_out = match refusal.unless {
            Some(Insistence::Names) => {
                let held = site.hosts.iter().filter(|host| host.control.held);
                let held: Vec<&HostStatus> = held.collect();
                format!(
                    "; if it is meant, all that wait: firstlight hosts give-back {} --yes-all-of {}",
                    names(&held, " "),
                    names(&held, ",")
                )
            }
            Some(flag) => format!("; `{}` does it all the same", flag.flag()),
            None => String::new(),
        };
        Err(UsageError(format!(
            "`{}` was not done to {} ({}): {}{way_out}",
            verb.as_str(),
            host.name,
            host.mac,
            refusal.why
        ))
        .into())
    }
}

/// For verbs that are one annotation.
pub fn plain<'a>(site: &'a SiteStatus, verb: Verb, server: &str) -> Result<Order<'a>> {
    let host = find(&site.hosts, server)?;
    Request::soft(verb, host).permitted(site, &[])?;
    let name = &host.name;
    let done = match verb {
        Verb::SkipInspection => format!("{name} goes on without an inspection"),
        Verb::Spare => format!(
            "{name} is a spare: no machine claims it until `firstlight hosts unspare {name}`"
        ),
        Verb::Unspare => format!("{name} is no spare any more"),
        Verb::AllowKexec => {
            format!("servers of the model of {name} may be started by kexec again")
        }
        _ => {
            let failed = host.control.failed.map_or("its step", |step| step.as_str());
            format!("{name}: {failed} begins again within ten seconds")
        }
    };
    let patch = verb.patch(Manner::Soft).context("one object's verb")?;
    Ok(Order {
        hosts: vec![host],
        verb: verb.as_str(),
        writes: vec![Write::to_host(host, patch)],
        done,
    })
}

pub fn power<'a>(site: &'a SiteStatus, args: &PowerArgs) -> Result<Order<'a>> {
    let host = find(&site.hosts, &args.server)?;
    let verb = match args.what {
        Switch::On => Verb::PowerOn,
        Switch::Off => Verb::PowerOff,
        Switch::Cycle => Verb::PowerCycle,
    };
    let manner = if args.hard {
        Manner::Hard
    } else {
        Manner::Soft
    };
    let insist: &[Insistence] = if args.yes { &[Insistence::Yes] } else { &[] };
    Request { verb, manner, host }.permitted(site, insist)?;
    let patch = verb.patch(manner).context("one object's verb")?;
    let name = &host.name;
    Ok(Order {
        hosts: vec![host],
        verb: verb.as_str(),
        writes: vec![Write::to_host(host, patch)],
        done: match verb {
            Verb::PowerOn => format!("{name} is switched on"),
            Verb::PowerOff => {
                format!("{name} is switched off, until `firstlight hosts power on {name}`")
            }
            _ => format!("{name} is restarted"),
        },
    })
}

pub fn give_back<'a>(site: &'a SiteStatus, args: &GiveBackArgs) -> Result<Order<'a>> {
    let mut hosts = Vec::new();
    for server in &args.servers {
        let host = find(&site.hosts, server)?;
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    let said: BTreeSet<&str> = args.yes_all_of.iter().map(String::as_str).collect();
    let meant: BTreeSet<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let named = !said.is_empty();
    if named && said != meant {
        let meant: Vec<&str> = meant.into_iter().collect();
        return Err(UsageError(format!(
            "nothing was given back: `--yes-all-of` has to say the whole names of all that are meant, which are {}",
            meant.join(",")
        ))
        .into());
    }
    let mut insist = vec![Insistence::Force; usize::from(args.force)];
    insist.extend(named.then_some(Insistence::Names));
    for host in &hosts {
        Request::soft(Verb::GiveBack, host).permitted(site, &insist)?;
    }
    if hosts.len() > MOST_DEPARTURES && !named {
        return Err(UsageError(format!(
            "nothing was given back: more than {MOST_DEPARTURES} at once may be a mistake; if it is meant, say their names again: --yes-all-of {}",
            names(&hosts, ",")
        ))
        .into());
    }
    let mut writes = Vec::new();
    for host in &hosts {
        writes.extend(give_one_back(host, args.wipe, named));
    }
    let wiped = if args.wipe {
        "; what else is on their disks is erased, too. The word stays: take the annotation firstlight.internal/install away once they are free"
    } else {
        ""
    };
    Ok(Order {
        done: format!("given back and cleaned: {}{wiped}", names(&hosts, ", ")),
        hosts,
        verb: Verb::GiveBack.as_str(),
        writes,
    })
}

fn give_one_back(host: &HostStatus, wipe: bool, named: bool) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut patch = json!({});
    let control = &host.control;
    // What is held waits for its name only: whoever takes it away has done that already.
    if !control.held {
        for field in [
            "image",
            "customDeploy",
            "userData",
            "metaData",
            "networkData",
        ] {
            patch["spec"][field] = Value::Null;
        }
        if !control.consumer.is_empty() {
            patch["spec"]["consumerRef"] = Value::Null;
        }
        if let Some(machine) = control.consumer.strip_prefix("Metal3Machine ") {
            let target = Target::beside(host, METAL3_MACHINES, machine);
            writes.push(Write::UnlessThere(target));
        }
    }
    if named {
        patch["metadata"]["annotations"][CONFIRM_ANNOTATION] = json!(host.name);
    }
    if wipe {
        patch["metadata"]["annotations"][INSTALL_ANNOTATION] = json!("wipe");
    }
    writes.push(Write::to_host(host, patch));
    writes
}

pub fn forget<'a>(site: &'a SiteStatus, args: &ForgetArgs) -> Result<Order<'a>> {
    let host = find(&site.hosts, &args.server)?;
    let insist: &[Insistence] = if args.force {
        &[Insistence::Force]
    } else {
        &[]
    };
    let owner = Request::soft(Verb::Forget, host).permitted(site, insist)?;
    let owner = owner.filter(|_| !host.control.consumer.is_empty());
    let mut writes = Vec::new();
    if let Some(owner) = owner {
        let machine = Target::beside(host, MACHINES, owner.machine());
        let mut patch = json!({});
        for name in UNDRAINED.iter().chain([&FORGET_HOST_ANNOTATION]) {
            patch["metadata"]["annotations"][name] = json!("");
        }
        writes.push(Write::Patch(machine.clone(), patch));
        writes.push(Write::Delete(machine));
    }
    if args.force {
        let patch = json!({"metadata": {"annotations": {DETACHED: r#"{"force":true}"#}}});
        writes.push(Write::to_host(host, patch));
    }
    writes.push(Write::Delete(Target::host(host)));
    let with = owner.map_or(String::new(), |owner| {
        format!(" with its Machine {} and its Node", owner.machine())
    });
    Ok(Order {
        hosts: vec![host],
        verb: Verb::Forget.as_str(),
        writes,
        done: format!(
            "{} is forgotten{with}; if the server comes back, it is listed and left alone",
            host.name
        ),
    })
}

#[cfg(test)]
mod tests;
