//! Alarms as Events of the box's node, for whoever watches a site with kubectl.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use firstlight_api::status::{Alarm, Problem, SiteStatus};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::pki::NODE_NAME;

const REPORTER: &str = "firstlight-alarms";
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters that Kubernetes takes.
const NOTE: usize = 1000;

/// By name and what holds.
type Told = BTreeMap<(String, String), Problem>;

/// Until the agent stops.
pub async fn run(
    mut kubernetes: watch::Receiver<Option<Client>>,
    mut shown: watch::Receiver<SiteStatus>,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(client) = kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let recorder = Recorder::new(client, REPORTER.into());
        let mut told = Told::new();
        loop {
            let holds = known(&shown.borrow_and_update().alarms);
            for event in changes(&told, &holds) {
                publish(&recorder, &event).await;
            }
            told = holds;
            if shown.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::select! {
        done = work => done,
        () = stop.cancelled() => Ok(()),
    }
}

fn known(alarms: &[Alarm]) -> Told {
    let key = |alarm: &Alarm| (alarm.name.clone(), alarm.problem.what.clone());
    let pairs = alarms
        .iter()
        .map(|alarm| (key(alarm), alarm.problem.clone()));
    pairs.collect()
}

/// What began, and what is over.
fn changes(told: &Told, holds: &Told) -> Vec<Event> {
    let began = holds.iter().filter(|(key, _)| !told.contains_key(*key));
    let began = began.map(|((name, what), problem)| {
        event(
            EventType::Warning,
            name,
            &format!("{what}; {}", problem.next),
        )
    });
    let over = told.keys().filter(|key| !holds.contains_key(*key));
    let over = over.map(|(name, what)| event(EventType::Normal, name, &format!("over: {what}")));
    began.chain(over).collect()
}

fn event(type_: EventType, name: &str, note: &str) -> Event {
    Event {
        type_,
        reason: name.to_owned(),
        note: Some(note.chars().take(NOTE).collect()),
        action: "Alarm".to_owned(),
        secondary: None,
    }
}

/// One that is not written is on the page all the same.
async fn publish(recorder: &Recorder, event: &Event) {
    let node = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(NODE_NAME.to_owned()),
        // As kubelet's own events of it.
        uid: Some(NODE_NAME.to_owned()),
        ..ObjectReference::default()
    };
    let told = tokio::time::timeout(PATIENCE, recorder.publish(event, &node)).await;
    if let Ok(Err(error)) = told {
        tracing::debug!(%error, "an alarm is no Event");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(name: &str, what: &str) -> Alarm {
        Alarm {
            name: name.to_owned(),
            problem: Problem {
                what: what.to_owned(),
                next: "look".to_owned(),
            },
        }
    }

    #[test]
    fn an_alarm_is_told_when_it_begins_and_when_it_is_over() {
        let none = Told::new();
        let (first, second) = (alarm("StickFull", "9% left"), alarm("Silent", "etcd"));
        let holds = known(&[first.clone(), second.clone()]);
        let notes = |events: Vec<Event>| -> Vec<String> {
            events.into_iter().filter_map(|event| event.note).collect()
        };
        assert_eq!(
            notes(changes(&none, &holds)),
            ["etcd; look", "9% left; look"]
        );
        assert_eq!(notes(changes(&holds, &holds)), [""; 0]);
        assert_eq!(notes(changes(&holds, &known(&[second]))), ["over: 9% left"]);
        let long = known(&[alarm("StickFull", &"x".repeat(3000))]);
        assert!(notes(changes(&none, &long))[0].len() == NOTE);
    }
}
