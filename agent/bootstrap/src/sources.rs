//! The key `firstlight_packages` of a config drive's `meta_data.json`: the box as the source of this server's packages. It needs no
//! invitation: a server that is no member of a cluster has it too.

use firstlight_api::repository::{METADATA_KEY, Repository};
use serde_json::{Map, Value};

use crate::files::NewFile;

/// Files below `/`; none where the metadata name no repository.
pub fn plan_sources(meta_data: &Map<String, Value>) -> Result<Vec<NewFile>, serde_json::Error> {
    let Some(block) = meta_data.get(METADATA_KEY) else {
        return Ok(vec![]);
    };
    Ok(files(&serde_json::from_value(block.clone())?))
}

/// Below `/`.
pub fn files(repository: &Repository) -> Vec<NewFile> {
    let files = repository.files().into_iter();
    files
        .map(|(path, content)| NewFile::new(path, 0o644, content))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn packages_come_from_the_box_that_the_drive_names_and_from_nowhere_else() {
        let plan = |meta_data: Value| plan_sources(meta_data.as_object().unwrap());
        assert_eq!(plan(json!({"name": "n1"})).unwrap(), []);
        assert!(plan(json!({METADATA_KEY: {"host": "172.22.0.1", "base": "KEY"}})).is_err());
        let files =
            plan(json!({METADATA_KEY: {"host": "172.22.0.1", "base": "KEY", "uploads": "OTHER"}}))
                .unwrap();
        assert_eq!(files.len(), 3);
        assert_eq!(
            files[1],
            NewFile::new("etc/apt/keyrings/firstlight-uploads.asc", 0o644, "OTHER")
        );
        let list = String::from_utf8_lossy(&files[2].content);
        assert!(list.contains("http://172.22.0.1/apt/uploads"));
    }

    proptest! {
        #[test]
        fn any_block_is_files_below_etc_or_refused(host in ".{0,20}", base in ".{0,20}", uploads in ".{0,20}") {
            let block = json!({"host": host, "base": base, "uploads": uploads});
            if let Ok(files) = plan_sources(json!({METADATA_KEY: block}).as_object().unwrap()) {
                prop_assert!(files.iter().all(|file| file.path.starts_with("etc/apt")));
            }
            let word = json!({METADATA_KEY: host});
            prop_assert!(plan_sources(word.as_object().unwrap()).is_err());
        }
    }
}
