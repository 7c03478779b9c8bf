//! Whether what was installed runs, and which object is to blame: pure.

use serde_json::Value;

/// A kind that can be well or not; others are as soon as they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub name: &'static str,
    pub plural: &'static str,
    /// Its pods are told by `spec.selector.matchLabels`.
    pub has_pods: bool,
}

const fn kind(
    group: &'static str,
    name: &'static str,
    plural: &'static str,
    has_pods: bool,
) -> Kind {
    Kind {
        group,
        version: "v1",
        name,
        plural,
        has_pods,
    }
}

const KINDS: [Kind; 6] = [
    kind("apps", "Deployment", "deployments", true),
    kind("apps", "DaemonSet", "daemonsets", true),
    kind("apps", "StatefulSet", "statefulsets", true),
    kind("batch", "Job", "jobs", true),
    kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    ),
    kind("apiregistration.k8s.io", "APIService", "apiservices", false),
];

/// One object of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub kind: Kind,
    /// `None`: it belongs to the cluster.
    pub namespace: Option<String>,
    pub name: String,
}

impl Part {
    /// For people: `DaemonSet kube-system/multus`.
    pub fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind.name, self.name),
            None => format!("{} {}", self.kind.name, self.name),
        }
    }
}

/// Behind what kubelet says of an image, which names it.
const PUSH: &str = "; `firstlight push` puts an archive of it on the box, as registry.firstlight.internal/NAME:TAG";

/// In the order of how bad it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Well,
    Waits(String),
    Broken(String),
    Gone(String),
}

/// The objects of a rendered manifest that can be well or not.
pub fn parts(manifest: &str, namespace: &str) -> Vec<Part> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap_or_default();
    let known = |document: &Value| {
        let version = document["apiVersion"].as_str()?;
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let kind = KINDS
            .into_iter()
            .find(|kind| document["kind"] == kind.name && group == kind.group)?;
        let own = document["metadata"]["namespace"].as_str();
        Some(Part {
            kind,
            namespace: kind.has_pods.then(|| own.unwrap_or(namespace).to_owned()),
            name: document["metadata"]["name"].as_str()?.to_owned(),
        })
    };
    documents.iter().filter_map(known).collect()
}

/// `pods` are those of its selector.
pub fn judge(part: &Part, object: &Value, pods: &[Value]) -> Verdict {
    let waits = |what: String| {
        pods.iter().find_map(ails).map_or_else(
            || Verdict::Waits(format!("{}: {what}", part.title())),
            |why| Verdict::Broken(format!("{}: {why}", part.title())),
        )
    };
    let number = |path: &str| object.pointer(path).and_then(Value::as_u64);
    let seen = number("/status/observedGeneration").unwrap_or(0);
    let is_new = part.kind.has_pods
        && part.kind.name != "Job"
        && seen < number("/metadata/generation").unwrap_or(0);
    if is_new {
        return waits("nobody has looked at it yet".to_owned());
    }
    let compare = |wanted: u64, updated: u64, have: u64, word: &str| {
        if updated < wanted {
            waits(format!("{updated} of {wanted} pods are of the new version"))
        } else if have < wanted {
            waits(format!("{have} of {wanted} pods are {word}"))
        } else {
            Verdict::Well
        }
    };
    let status = |name: &str| number(&format!("/status/{name}")).unwrap_or(0);
    let wanted = number("/spec/replicas").unwrap_or(1);
    match part.kind.name {
        "Deployment" => compare(
            wanted,
            status("updatedReplicas"),
            status("availableReplicas"),
            "available",
        ),
        "StatefulSet" => compare(
            wanted,
            status("updatedReplicas"),
            status("readyReplicas"),
            "ready",
        ),
        "DaemonSet" => compare(
            status("desiredNumberScheduled"),
            status("updatedNumberScheduled"),
            status("numberReady"),
            "ready",
        ),
        "Job" => match condition(object, "Failed") {
            Some(why) => Verdict::Broken(format!("{}: {why}", part.title())),
            None if condition(object, "Complete").is_some() => Verdict::Well,
            None => waits("it is not complete".to_owned()),
        },
        "CustomResourceDefinition" => served(part, object, "Established"),
        _ => served(part, object, "Available"),
    }
}

fn served(part: &Part, object: &Value, wanted: &str) -> Verdict {
    if condition(object, wanted).is_some() {
        return Verdict::Well;
    }
    let found = conditions(object).find(|condition| condition["type"] == wanted);
    let why = found
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or("it is not served yet");
    Verdict::Waits(format!("{}: {why}", part.title()))
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
}

/// The message of a condition that holds.
fn condition(object: &Value, kind: &str) -> Option<String> {
    let found = conditions(object)
        .find(|condition| condition["type"] == kind && condition["status"] == "True")?;
    Some(found["message"].as_str().unwrap_or(kind).to_owned())
}

/// What does not pass by waiting: images that cannot be had, programs that end, nodes that do not fit.
fn ails(pod: &Value) -> Option<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let states = ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    for state in states {
        let waiting = &state["state"]["waiting"];
        let reason = waiting["reason"].as_str().unwrap_or_default();
        let passes = ["", "ContainerCreating", "PodInitializing"].contains(&reason);
        if !passes {
            let message = waiting["message"].as_str().unwrap_or_default();
            let next = match reason {
                "ErrImagePull" | "ImagePullBackOff" => PUSH,
                _ => "",
            };
            return Some(format!("pod {name}: {reason}: {message}{next}"));
        }
    }
    let unscheduled = conditions(pod).find(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable"
    })?;
    let message = unscheduled["message"].as_str().unwrap_or_default();
    Some(format!("pod {name} fits on no node: {message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(kind: &str) -> Part {
        let manifest = format!("apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web}}\n");
        parts(&manifest, "team").remove(0)
    }

    #[test]
    fn a_manifest_has_the_parts_that_can_be_unwell() {
        let manifest = "---\n# Source: a\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: b, namespace: kube-system}\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: c.d}\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: e}\n";
        let titles: Vec<_> = parts(manifest, "team").iter().map(Part::title).collect();
        assert_eq!(
            titles,
            [
                "DaemonSet kube-system/b",
                "CustomResourceDefinition c.d",
                "Job team/e"
            ]
        );
    }

    #[test]
    fn an_object_that_is_not_well_says_what_it_lacks() {
        let deployment = |status: Value| json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status});
        let waits = |what: &str| Verdict::Waits(format!("Deployment team/web: {what}"));
        for (status, verdict) in [
            (json!({}), waits("nobody has looked at it yet")),
            (
                json!({"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}),
                waits("nobody has looked at it yet"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 2}),
                waits("1 of 2 pods are of the new version"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 1}),
                waits("1 of 2 pods are available"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                Verdict::Well,
            ),
        ] {
            assert_eq!(
                judge(&part("Deployment"), &deployment(status), &[]),
                verdict
            );
        }
        // No node matches: nothing to run is as good as everything running.
        assert_eq!(
            judge(&part("DaemonSet"), &json!({"status": {}}), &[]),
            Verdict::Well
        );
    }

    #[test]
    fn a_pod_that_cannot_run_is_named_with_its_reason() {
        let pod = |status: Value| json!({"metadata": {"name": "web-1"}, "status": status});
        let container =
            |waiting: Value| json!({"containerStatuses": [{"state": {"waiting": waiting}}]});
        let object = json!({"spec": {"replicas": 1}, "status": {}});
        let broken = |what: &str| Verdict::Broken(format!("Deployment team/web: {what}"));
        for (status, verdict) in [
            (
                container(json!({"reason": "ContainerCreating"})),
                Verdict::Waits(
                    "Deployment team/web: 0 of 1 pods are of the new version".to_owned(),
                ),
            ),
            (
                container(json!({"reason": "ErrImagePull", "message": "not found"})),
                broken(&format!("pod web-1: ErrImagePull: not found{PUSH}")),
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/2 nodes"}]}),
                broken("pod web-1 fits on no node: 0/2 nodes"),
            ),
        ] {
            assert_eq!(judge(&part("Deployment"), &object, &[pod(status)]), verdict);
        }
    }

    proptest::proptest! {
        /// Also where numbers, lists and texts are not what they should be.
        #[test]
        fn whatever_a_cluster_says_is_judged(
            kind in 0..KINDS.len(),
            values in proptest::collection::vec(
                proptest::sample::select(vec![
                    json!(null), json!(-1), json!(u64::MAX), json!(1.5), json!("a"), json!([]), json!({}),
                    json!([null, {"type": "Failed", "status": "True"}]), json!([{"type": 7, "status": "True"}]),
                ]),
                6,
            ),
        ) {
            let [a, b, c, d, e, f] = values.try_into().expect("six were asked for");
            let part = Part { kind: KINDS[kind], namespace: None, name: "web".to_owned() };
            let object = json!({
                "metadata": {"generation": a},
                "spec": {"replicas": b},
                "status": {"observedGeneration": c, "conditions": d, "updatedReplicas": e, "readyReplicas": f},
            });
            let pod = json!({"metadata": a, "status": {"containerStatuses": b, "conditions": d}});
            proptest::prop_assert!(!matches!(judge(&part, &object, &[pod, e, f]), Verdict::Gone(_)));
        }
    }
}
