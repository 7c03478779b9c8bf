//! What a server keeps about the box's apt repository: where its suites are, and the keys that sign them.

use serde::{Deserialize, Serialize};

/// In the config drive's metadata.
pub const METADATA_KEY: &str = "firstlight_packages";
/// Suites, each with a key of its own and a folder below `/apt` of the box: what the stick brings, and what people upload.
pub const BASE: &str = "base";
/// See [`BASE`].
pub const UPLOADS: &str = "uploads";

/// `OpenPGP` keys, armored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    /// The box, as servers reach it.
    pub host: String,
    /// The key that signs [`BASE`].
    pub base: String,
    /// The key that signs [`UPLOADS`].
    pub uploads: String,
}

impl Repository {
    /// Files below `/` with their content: apt's only sources (sources.list(5), deb822), and the keys that they name.
    pub fn files(&self) -> Vec<(String, String)> {
        let suites = [(BASE, &self.base), (UPLOADS, &self.uploads)];
        let key = |suite: &str| format!("etc/apt/keyrings/firstlight-{suite}.asc");
        let source = |suite: &str| {
            format!(
                "Types: deb\nURIs: http://{}/apt/{suite}\nSuites: {suite}\nComponents: main\nSigned-By: /{}\n",
                self.host,
                key(suite)
            )
        };
        let mut files: Vec<(String, String)> = suites
            .iter()
            .map(|(suite, armored)| (key(suite), (*armored).clone()))
            .collect();
        let sources = suites.map(|(suite, _)| source(suite)).join("\n");
        // Last: a source without its key would be an error of apt.
        files.push((
            "etc/apt/sources.list.d/firstlight.sources".to_owned(),
            sources,
        ));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_is_trusted_by_its_own_key_only() {
        let repository = Repository {
            host: "172.22.0.1".to_owned(),
            base: "BASE KEY".to_owned(),
            uploads: "UPLOAD KEY".to_owned(),
        };
        let sources = "Types: deb\nURIs: http://172.22.0.1/apt/base\nSuites: base\nComponents: main\n\
                       Signed-By: /etc/apt/keyrings/firstlight-base.asc\n\n\
                       Types: deb\nURIs: http://172.22.0.1/apt/uploads\nSuites: uploads\nComponents: main\n\
                       Signed-By: /etc/apt/keyrings/firstlight-uploads.asc\n";
        let file = |path: &str, content: &str| (path.to_owned(), content.to_owned());
        assert_eq!(
            repository.files(),
            [
                file("etc/apt/keyrings/firstlight-base.asc", "BASE KEY"),
                file("etc/apt/keyrings/firstlight-uploads.asc", "UPLOAD KEY"),
                file("etc/apt/sources.list.d/firstlight.sources", sources),
            ]
        );
    }
}
