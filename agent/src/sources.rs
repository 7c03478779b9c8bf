//! The box's apt repository, as servers are told of it: by their config drives, and by orders for packages.

use std::{
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use firstlight_api::{
    repository::{BASE, Repository, UPLOADS},
    status::Problem,
};

use crate::paths::Paths;

/// Where it is served, and where its keys are: the stick's is there, that of uploads is made on the box.
#[derive(Clone, Debug)]
pub struct Sources {
    pub address: Ipv4Addr,
    pub base: PathBuf,
    pub uploads: PathBuf,
}

impl Sources {
    pub fn new(paths: &Paths, address: Ipv4Addr) -> Self {
        Self {
            address,
            base: paths.apt_base().join(format!("{BASE}.asc")),
            uploads: paths.apt().join(format!("{UPLOADS}.asc")),
        }
    }

    /// `None` on a stick that brings no packages.
    pub async fn load(&self) -> Result<Option<Repository>, Problem> {
        let base = match tokio::fs::read_to_string(&self.base).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| unreadable(&self.base, &error))?,
        };
        let uploads = tokio::fs::read_to_string(&self.uploads).await;
        Ok(Some(Repository {
            host: self.address.to_string(),
            base,
            uploads: uploads.map_err(|error| unreadable(&self.uploads, &error))?,
        }))
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem {
        what: format!(
            "the key of its package repository cannot be read: {}: {error}",
            path.display()
        ),
        next: "the box tries again; if it stays, restart the box".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_server_gets_both_keys_or_waits() {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources::new(&Paths::new(dir.path()), Ipv4Addr::new(172, 22, 0, 1));
        assert_eq!(sources.load().await, Ok(None));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(&sources.base, "BASE");
        let problem = sources.load().await.unwrap_err();
        assert!(problem.what.contains("uploads.asc"), "{problem:?}");
        write(&sources.uploads, "UPLOADS");
        let repository = Repository {
            host: "172.22.0.1".to_owned(),
            base: "BASE".to_owned(),
            uploads: "UPLOADS".to_owned(),
        };
        assert_eq!(sources.load().await, Ok(Some(repository)));
    }
}
