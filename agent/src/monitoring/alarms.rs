//! What vmalert finds: `GET /api/v1/alerts`.

use std::collections::BTreeMap;

use anyhow::Result;
use firstlight_api::{
    bounded,
    status::{Alarm, Problem},
};
use serde::Deserialize;

/// On the page.
const MOST: usize = 50;
/// What this rule says is on the page already.
const OF_THE_PAGE: &str = "Problem";

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    alerts: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    name: String,
    state: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Those that hold, and that nothing else has put on the page; in the order of their names.
pub fn firing(answer: &[u8]) -> Result<Vec<Alarm>> {
    let answer: Answer = serde_json::from_slice(answer)?;
    let alerts = answer.data.alerts.into_iter();
    let mut alarms: Vec<Alarm> = alerts
        .filter(|found| found.state == "firing" && found.name != OF_THE_PAGE)
        .map(|found| {
            let said = |key: &str| {
                let text = found.annotations.get(key);
                bounded::sentence(text.map_or("", String::as_str))
            };
            Alarm {
                name: bounded::text(&found.name),
                problem: Problem {
                    what: said("summary"),
                    next: said("description"),
                },
            }
        })
        .collect();
    alarms.sort_by(|a, b| (&a.name, &a.problem.what).cmp(&(&b.name, &b.problem.what)));
    alarms.truncate(MOST);
    Ok(alarms)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_holds_is_told_and_what_the_page_says_itself_is_not() {
        let alert = |name: &str, state: &str| {
            json!({
                "name": name, "state": state, "value": "0.05", "labels": {},
                "annotations": {"summary": format!("{name} holds"), "description": "look"},
            })
        };
        let answer = json!({"status": "success", "data": {"alerts": [
            alert("StickFull", "firing"), alert("Problem", "firing"), alert("Silent", "pending"), alert("ClockApart", "firing"),
        ]}});
        let found = firing(answer.to_string().as_bytes()).unwrap();
        let names: Vec<_> = found.iter().map(|alarm| alarm.name.as_str()).collect();
        assert_eq!(names, ["ClockApart", "StickFull"]);
        assert_eq!(found[1].problem.what, "StickFull holds");
        assert_eq!(found[1].problem.next, "look");
    }

    proptest! {
        #[test]
        fn whatever_is_answered_is_alarms_or_none(answer: Vec<u8>, name in "\\PC{0,300}", text in ".{0,3000}") {
            let _ = firing(&answer);
            let one = json!({"name": name, "state": "firing", "annotations": {"summary": text}});
            let answer = json!({"data": {"alerts": vec![one; 60]}});
            let found = firing(answer.to_string().as_bytes()).unwrap();
            prop_assert!(found.len() <= MOST);
            prop_assert!(found.iter().all(|alarm| !alarm.problem.what.contains('\n')));
        }
    }
}
