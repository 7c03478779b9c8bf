//! Objects that are no host of ours: what they ask for counts for nothing, and they are told why. Pure.

use std::sync::Arc;

use firstlight_api::{
    bmh::{
        BareMetalHost, BareMetalHostStatus, Condition, ConditionStatus, ErrorType,
        OperationalStatus,
    },
    status::Problem,
};
use firstlight_netboot::MacAddr;

use super::{
    made,
    objects::{Leave, ObjectTarget},
};

/// All of them, as of one look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strays {
    /// For the page.
    pub problems: Vec<Problem>,
    pub targets: Vec<Arc<ObjectTarget>>,
}

impl Strays {
    /// `now` is RFC 3339.
    pub fn tell(&mut self, object: &BareMetalHost, why: &Why, now: &str) {
        self.problems.push(why.problem(object));
        self.targets.push(Arc::new(told(object, why, now)));
    }

    /// Of objects of this namespace.
    pub fn names_in(&self, namespace: &str) -> impl Iterator<Item = &str> {
        let metas = self.targets.iter().map(|target| &target.host.metadata);
        let here = metas.filter(move |meta| meta.namespace == namespace);
        here.map(|meta| meta.name.as_str())
    }

    pub fn replace(&mut self, made: &BareMetalHost) {
        self.targets.push(Arc::new(replaced(made)));
    }
}

/// Why nobody looks at an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// It does not say which server it is about.
    NoAddress,
    /// Another object of this name is about the same server.
    Second { counts: String, mac: MacAddr },
}

impl Why {
    fn reason(&self) -> &'static str {
        match self {
            Self::NoAddress => "NoBootMACAddress",
            Self::Second { .. } => "SecondObject",
        }
    }

    pub fn problem(&self, object: &BareMetalHost) -> Problem {
        let called = called(object);
        match self {
            Self::NoAddress => {
                let said = &object.spec.boot_mac_address;
                Problem {
                    what: if said.is_empty() {
                        format!("the BareMetalHost {called} does not say which server it is about")
                    } else {
                        format!("the BareMetalHost {called} is about `{said}`, which is no MAC address")
                    },
                    next: "set `spec.bootMACAddress` to the address of the card that the server starts from; the page lists the servers \
                           that the box has seen"
                        .to_owned(),
                }
            }
            Self::Second { counts, mac } => Problem {
                what: format!(
                    "two BareMetalHost objects are about the server {mac}: {counts} counts, {called} is not looked at, and nothing new \
                     is installed"
                ),
                next: format!(
                    "delete {called} (`kubectl delete bmh {called}`), or give it the MAC address of its own server"
                ),
            },
        }
    }
}

pub fn called(object: &BareMetalHost) -> String {
    made::called(&object.metadata.namespace, &object.metadata.name)
}

/// The object with what it is told.
fn told(stray: &BareMetalHost, why: &Why, now: &str) -> ObjectTarget {
    let before = stray.status.clone().unwrap_or_default();
    let problem = why.problem(stray);
    let message = format!("{}; {}", problem.what, problem.next);
    let not_ready = Condition::new(
        "Ready",
        ConditionStatus::False,
        why.reason(),
        &message,
        &before.conditions,
        now,
    );
    let mut status = BareMetalHostStatus {
        operational_status: OperationalStatus::Error,
        error_type: Some(ErrorType::Registration),
        error_message: message,
        conditions: vec![not_ready],
        ..before.clone()
    };
    if status != before {
        status.last_updated = Some(now.to_owned());
    }
    ObjectTarget {
        host: BareMetalHost {
            status: Some(status),
            ..stray.clone()
        },
        // It was a host once.
        leave: if stray.is_deleted() {
            Leave::Deleted
        } else {
            Leave::No
        },
        ..ObjectTarget::stray()
    }
}

/// The object that the box made for a server goes when somebody brings one of their own for it: nobody has written a word into it.
fn replaced(made: &BareMetalHost) -> ObjectTarget {
    ObjectTarget {
        host: made.clone(),
        leave: if made.is_deleted() {
            Leave::Deleted
        } else {
            Leave::Unmissed
        },
        ..ObjectTarget::stray()
    }
}

/// Of several objects about one server: the one that counts, those that it takes the place of, and others.
pub struct Parted {
    pub counts: Arc<BareMetalHost>,
    pub replaced: Vec<Arc<BareMetalHost>>,
    pub others: Vec<Arc<BareMetalHost>>,
}

/// `known`: the namespace and name of the object that counted until now. `None`: there are none.
pub fn part(mut objects: Vec<Arc<BareMetalHost>>, known: Option<(&str, &str)>) -> Option<Parted> {
    let rank = |object: &Arc<BareMetalHost>| {
        let meta = &object.metadata;
        let ours = meta
            .finalizers
            .iter()
            .any(|it| it == firstlight_api::bmh::FINALIZER);
        let counted = known == Some((meta.namespace.as_str(), meta.name.as_str()));
        (
            made::is_as_made(object),
            !counted,
            !ours,
            meta.namespace.clone(),
            meta.name.clone(),
        )
    };
    objects.sort_by_cached_key(rank);
    let mut objects = objects.into_iter();
    let counts = objects.next()?;
    let (replaced, others) =
        objects.partition(|other| made::is_as_made(other) && !made::is_as_made(&counts));
    Some(Parted {
        counts,
        replaced,
        others,
    })
}
