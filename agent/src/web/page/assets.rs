//! Style and script of all pages: files with a name of their content, so that a browser keeps them.

use std::{fmt::Write as _, sync::LazyLock};

use sha2::{Digest, Sha256};

/// One file.
#[derive(Debug)]
pub struct Asset {
    /// Where it is.
    pub path: String,
    pub content_type: &'static str,
    pub content: &'static str,
}

pub static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("css", "text/css; charset=utf-8", include_str!("page.css")));
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let content_type = "text/javascript; charset=utf-8";
    Asset::new("js", content_type, include_str!("page.js"))
});
/// Below it they are.
pub const ASSETS: &str = "/page/";

impl Asset {
    fn new(suffix: &str, content_type: &'static str, content: &'static str) -> Self {
        let mut path = ASSETS.to_owned();
        for byte in &Sha256::digest(content)[..8] {
            let _ = write!(path, "{byte:02x}");
        }
        let path = format!("{path}.{suffix}");
        Self {
            path,
            content_type,
            content,
        }
    }

    /// That is at this path.
    pub fn find(path: &str) -> Option<&'static Self> {
        [&*STYLE, &*SCRIPT].into_iter().find(|it| it.path == path)
    }
}
