//! Images of the box's registry that a chart names: what is not there is told before anything is installed, for its pods could not start.

use std::collections::BTreeSet;

use firstlight_api::names::REGISTRY;
use serde_json::Value;

use crate::store::Registry;

/// Of a pod's spec, wherever in an object that is.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// In a sentence.
const MOST: usize = 5;

/// An image of the box's registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Image {
    repository: String,
    /// Or a digest.
    tag: String,
}

impl Image {
    /// `None`: it is another registry's, or no reference, which kubelet says better.
    fn parse(reference: &str) -> Option<Self> {
        let path = reference.strip_prefix(REGISTRY)?.strip_prefix('/')?;
        let (repository, tag) = match path.split_once('@') {
            Some((name, digest)) => (name.split(':').next().unwrap_or(name), digest),
            None => path.split_once(':').unwrap_or((path, "latest")),
        };
        let is_plain = |text: &str, more: &[u8]| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
            !text.is_empty() && text.bytes().all(known)
        };
        (is_plain(repository, b"._-/") && is_plain(tag, b"._-:")).then(|| Self {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        })
    }
}

fn named(manifest: &str) -> BTreeSet<Image> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap_or_default();
    let mut found = BTreeSet::new();
    let mut left: Vec<&Value> = documents.iter().collect();
    while let Some(value) = left.pop() {
        match value {
            Value::Object(object) => {
                let containers = LISTS
                    .iter()
                    .filter_map(|list| object.get(*list)?.as_array());
                let images = containers.flatten().filter_map(|one| one["image"].as_str());
                found.extend(images.filter_map(Image::parse));
                left.extend(object.values());
            }
            Value::Array(list) => left.extend(list),
            _ => {}
        }
    }
    found
}

/// A sentence, if there are some; a registry that does not answer says nothing of them.
pub async fn missing(manifest: &str, registry: Registry) -> Option<String> {
    let mut missing = Vec::new();
    for Image { repository, tag } in named(manifest) {
        if let Ok(None) = registry.tagged(&repository, &tag).await {
            let mark = if tag.contains(':') { '@' } else { ':' };
            missing.push(format!("{REGISTRY}/{repository}{mark}{tag}"));
        }
    }
    let more = match missing.len().checked_sub(MOST) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    missing.truncate(MOST);
    (!missing.is_empty()).then(|| {
        format!(
            "it names images that are not on the box: {}{more}; put an archive of each there with `firstlight push`, and it is installed by itself",
            missing.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_in_all_pods_of_a_manifest() {
        let manifest = "apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {\n\
            initContainers: [{image: 'registry.firstlight.internal/team/init'}],\n\
            containers: [{image: 'registry.firstlight.internal/team/web:1.2'}, {image: 'docker.io/web:1'}, {image: 7}]}}}\n\
            ---\napiVersion: batch/v1\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {\n\
            containers: [{image: 'registry.firstlight.internal/job:2@sha256:ab'}, {image: 'registry.firstlight.internal/a b:1'}]}}}}}\n\
            ---\nkind: ConfigMap\ndata: {image: 'registry.firstlight.internal/text:1'}\n";
        let image = |repository: &str, tag: &str| Image {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        };
        let wanted = [
            image("job", "sha256:ab"),
            image("team/init", "latest"),
            image("team/web", "1.2"),
        ];
        assert_eq!(named(manifest), wanted.into());
        assert!(named("[").is_empty());
    }

    proptest::proptest! {
        /// What is asked of the registry is a path without anything else.
        #[test]
        fn a_reference_of_whoever_is_a_plain_path_or_nothing(rest in ".{0,40}", manifest in "[-a-z:{}\\[\\], \n]{0,80}") {
            for text in [manifest.clone(), format!("containers: [{manifest}]"), format!("containers: [{{image: {rest}}}]")] {
                let all = named(&text);
                proptest::prop_assert!(all.len() <= text.len());
            }
            if let Some(Image { repository, tag }) = Image::parse(&format!("{REGISTRY}/{rest}")) {
                let path = format!("/v2/{repository}/manifests/{tag}");
                proptest::prop_assert!(path.parse::<http::Uri>().is_ok());
                proptest::prop_assert!(!path.contains(['?', '#', ' ', '%']));
            }
        }
    }
}
