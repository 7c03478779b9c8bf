//! An apt repository's index: `Packages` of each architecture, `Release` over them, and its signature ([`key`]).
//!
//! Form: <https://wiki.debian.org/DebianRepository/Format>. Pure; the caller has the files, the clock and the key.

pub mod key;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use self::key::{KeyError, SigningKey};
use crate::{Unfit, deb::Control, hex};

/// One package file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// What the package says of itself.
    pub control: Control,
    /// Below the repository's root.
    pub filename: String,
    /// In bytes.
    pub size: u64,
    /// Lower-case hex, of the whole file.
    pub sha256: String,
}

/// Fields that describe the file and not the package: ours take their place.
const OF_THE_FILE: [&str; 6] = ["Filename", "Size", "MD5sum", "SHA1", "SHA256", "SHA512"];

/// `Packages`: those of `arch` and those of `all`, by name and version, so that the same set has the same bytes.
pub fn packages(all: &[Package], arch: &str) -> String {
    let fits = |package: &&Package| [arch, "all"].contains(&package.control.architecture());
    let mut chosen: Vec<&Package> = all.iter().filter(fits).collect();
    chosen.sort_by_key(|package| {
        (
            package.control.package(),
            package.control.version(),
            package.control.architecture(),
        )
    });
    let mut text = String::new();
    for package in chosen {
        for (name, value) in package.control.fields() {
            if !OF_THE_FILE
                .iter()
                .any(|field| field.eq_ignore_ascii_case(name))
            {
                let _ = writeln!(text, "{name}: {value}");
            }
        }
        let _ = writeln!(
            text,
            "Filename: {}\nSize: {}\nSHA256: {}\n",
            package.filename, package.size, package.sha256
        );
    }
    text
}

/// What a suite is called, and when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite<'a> {
    /// A folder below `dists`.
    pub name: &'a str,
    /// Debian's names, `amd64` for one; packages of `all` are in each.
    pub architectures: &'a [&'a str],
    /// RFC 2822, in UTC.
    pub date: &'a str,
}

/// Paths below the suite's folder with their content.
pub fn indexes(suite: &Suite, all: &[Package]) -> Vec<(String, String)> {
    let path = |arch: &str| format!("main/binary-{arch}/Packages");
    suite
        .architectures
        .iter()
        .map(|arch| (path(arch), packages(all, arch)))
        .collect()
}

/// `Release`, which is signed and covers all the indexes.
pub fn release(suite: &Suite, indexes: &[(String, String)]) -> String {
    let mut text = format!(
        "Origin: Firstlight\nLabel: Firstlight\nSuite: {name}\nCodename: {name}\nDate: {date}\nArchitectures: {arches}\nComponents: main\nDescription: packages on the box\nAcquire-By-Hash: yes\nSHA256:\n",
        name = suite.name,
        date = suite.date,
        arches = suite.architectures.join(" "),
    );
    for (path, content) in indexes {
        let _ = writeln!(
            text,
            " {} {} {path}",
            hex(&Sha256::digest(content)),
            content.len()
        );
    }
    text
}

/// What a repository of one suite consists of besides its packages: paths below its root with their content, in the order in
/// which they are to be written. Indexes lie under their digests too, which the signed `InRelease` names: a client that reads while
/// they change sees the one or the other state, and never a mixture. `now` in seconds since 1970.
pub fn files(
    suite: &Suite,
    all: &[Package],
    key: &SigningKey,
    now: u32,
) -> Result<Vec<(String, String)>, KeyError> {
    let home = format!("dists/{}", suite.name);
    let indexes = indexes(suite, all);
    let signed = key.clear_sign(&release(suite, &indexes), now)?;
    let mut files = Vec::new();
    for (path, content) in indexes {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let digest = hex(&Sha256::digest(&content));
        let by_hash = format!("{home}/{folder}/by-hash/SHA256/{digest}");
        files.push((by_hash, content.clone()));
        files.push((format!("{home}/{path}"), content));
    }
    files.push((format!("{}.asc", suite.name), key.public()?));
    files.push((format!("{home}/InRelease"), signed));
    Ok(files)
}

/// Where a package's file lies: apart by name and version, which a repository has once.
pub fn filename(control: &Control) -> Result<String, Unfit> {
    let (package, version, arch) = (control.package(), control.version(), control.architecture());
    let good = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".+~:-".contains(&byte))
            && !text.starts_with('.')
    };
    if !good(package) || !good(version) || !good(arch) {
        return Err(Unfit::new(format!(
            "`{package}` `{version}` `{arch}` are no names for a file"
        )));
    }
    // No version has an underscore, and no file a colon.
    Ok(format!(
        "pool/{package}/{package}_{}_{arch}.deb",
        version.replace(':', "_")
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn package(name: &str, version: &str, arch: &str) -> Package {
        let control = Control::parse(&format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {arch}\nFilename: ./lies.deb\nDescription: one\n two\n"
        ))
        .unwrap();
        Package {
            filename: filename(&control).unwrap(),
            control,
            size: 7,
            sha256: "ab".repeat(32),
        }
    }

    #[test]
    fn an_index_has_the_fields_of_the_package_and_ours_of_the_file() {
        let all = [
            package("web", "1:2-1", "amd64"),
            package("doc", "1", "all"),
            package("arm", "1", "arm64"),
        ];
        assert_eq!(
            packages(&all, "amd64"),
            format!(
                "Package: doc\nVersion: 1\nArchitecture: all\nDescription: one\n two\nFilename: pool/doc/doc_1_all.deb\nSize: 7\nSHA256: {sha}\n\n\
                 Package: web\nVersion: 1:2-1\nArchitecture: amd64\nDescription: one\n two\nFilename: pool/web/web_1_2-1_amd64.deb\nSize: 7\nSHA256: {sha}\n\n",
                sha = "ab".repeat(32)
            )
        );
    }

    #[test]
    fn a_release_covers_every_index() {
        let suite = Suite {
            name: "uploads",
            architectures: &["amd64"],
            date: "Mon, 23 Nov 2026 04:00:00 +0000",
        };
        let found = indexes(&suite, &[package("web", "1", "amd64")]);
        let text = release(&suite, &found);
        let line = format!(
            " {} {} main/binary-amd64/Packages\n",
            hex(&Sha256::digest(&found[0].1)),
            found[0].1.len()
        );
        assert!(
            text.ends_with(&line) && text.contains("Suite: uploads\n"),
            "{text}"
        );
    }

    #[test]
    fn no_package_leads_out_of_the_pool() {
        let bad = Control::parse("Package: ../x\nVersion: 1\nArchitecture: amd64\n").unwrap();
        assert!(filename(&bad).is_err());
    }
}
