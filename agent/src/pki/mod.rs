//! Keys and certificates, made at first boot and kept on the state partition.
//!
//! `spec` lists what must exist (a value), `plan` compares it with what is there, `issue` makes certificates, and
//! [`load_or_make`] brings the two together at the edge. To add a certificate: a line in `spec`.
//!
//! Clocks: a server's CMOS clock may be years wrong. Certificates are valid from a fixed day before Firstlight
//! existed, and until long after whichever is later, that day's successor or the clock.

mod issue;
mod kubeconfig;
mod plan;
mod spec;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_artifacts::hex;
use sha2::{Digest, Sha256};

pub use issue::{Authority, Pair};
pub use spec::{AuthorityName, CertSpec, NODE_ADDRESS, NODE_NAME, Output, Usage};

use crate::{
    files::{self, Access, NewFile},
    paths::Paths,
};

/// What the rest of the agent needs of it.
#[derive(Clone, Debug)]
pub struct Pki {
    /// The CA of the site: signs Ironic's certificate, and hosts trust nothing else.
    pub site: Authority,
}

/// SHA-256 of a certificate's DER form, in hex.
pub fn fingerprint(pem: &str) -> Result<String> {
    Ok(hex(&Sha256::digest(der(pem)?)))
}

/// The DER form of a PEM certificate.
pub fn der(pem: &str) -> Result<Vec<u8>> {
    let body: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    STANDARD.decode(body).context("decoding a PEM certificate")
}

/// Makes what is missing, damaged, outdated or about to expire; returns after everything is on the disk.
pub fn load_or_make(paths: &Paths, now: i64) -> Result<Pki> {
    for dir in [
        paths.agent_state(),
        paths.site_pki(),
        paths.kube(),
        paths.kube_pki(),
    ] {
        files::make_dir(&dir, 0o750)?;
    }
    let mut new_files = Vec::new();
    let mut authorities = BTreeMap::new();
    for name in AuthorityName::ALL {
        let authority = load_or_make_authority(paths, name, now, &mut new_files)?;
        authorities.insert(name, authority);
    }
    let fingerprints = authorities
        .iter()
        .map(|(name, authority)| (*name, authority.fingerprint.clone()))
        .collect();
    let record_path = paths.agent_state().join("issued.json");
    let mut record: plan::Record = fs::read(&record_path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let wanted = spec::wanted();
    let on_disk = wanted
        .iter()
        .map(|cert| {
            (
                cert.output.clone(),
                digest(&output_files(paths, &cert.output)),
            )
        })
        .collect();
    for cert in plan::plan(&wanted, &record, &fingerprints, &on_disk, now) {
        let authority = &authorities[&cert.authority];
        let pair = authority
            .issue(&cert, now)
            .with_context(|| format!("issuing {:?}", cert.output))?;
        let made = leaf_files(
            paths,
            &cert,
            &pair,
            &authorities[&AuthorityName::Kube].certificate,
        );
        let made_digest = digest_of(made.iter().map(|file| file.content.as_slice()));
        tracing::info!(name = ?cert.output, "certificate issued");
        record.insert(
            &cert,
            &authority.fingerprint,
            made_digest,
            issue::leaf_end(now),
        );
        new_files.extend(made);
    }
    if !paths.kube_pki().join("sa.key").exists() || !paths.kube_pki().join("sa.pub").exists() {
        new_files.extend(service_account_key(paths)?);
    }
    if !new_files.is_empty() {
        let content =
            serde_json::to_vec_pretty(&record).context("encoding the record of certificates")?;
        new_files.push(NewFile {
            path: record_path,
            content,
            access: Access::Group,
        });
        files::write_all(&new_files)?;
    }
    let site = authorities
        .remove(&AuthorityName::Site)
        .expect("ALL has Site");
    Ok(Pki { site })
}

/// The key decides: with it the certificate can be made again, without it the authority is a new one.
fn load_or_make_authority(
    paths: &Paths,
    name: AuthorityName,
    now: i64,
    new: &mut Vec<NewFile>,
) -> Result<Authority> {
    let (certificate, key) = authority_files(paths, name);
    let existing = (
        fs::read_to_string(&certificate).ok(),
        fs::read_to_string(&key).ok(),
    );
    if let (Some(certificate), Some(key)) = &existing
        && let Ok(authority) = Authority::load(name, certificate, key)
    {
        return Ok(authority);
    }
    tracing::info!(name = ?name, "making a certificate authority");
    let authority = match existing
        .1
        .as_deref()
        .map(|key| Authority::from_key(name, key, now))
    {
        Some(Ok(authority)) => authority,
        _ => Authority::make(name, now)?,
    };
    let file = |path: PathBuf, text: &str, access| NewFile {
        path,
        content: text.as_bytes().to_vec(),
        access,
    };
    new.push(file(key, &authority.key_pem(), Access::Group));
    new.push(file(certificate, &authority.certificate, Access::Everybody));
    Ok(authority)
}

fn authority_files(paths: &Paths, name: AuthorityName) -> (PathBuf, PathBuf) {
    let (dir, stem) = match name {
        AuthorityName::Site => (paths.site_pki(), "ca"),
        AuthorityName::Kube => (paths.kube_pki(), "ca"),
        AuthorityName::FrontProxy => (paths.kube_pki(), "front-proxy-ca"),
        AuthorityName::Etcd => (paths.kube_pki(), "etcd-ca"),
    };
    (
        dir.join(format!("{stem}.crt")),
        dir.join(format!("{stem}.key")),
    )
}

fn output_files(paths: &Paths, output: &Output) -> Vec<PathBuf> {
    match output {
        Output::Pair(stem) => ["key", "crt"]
            .map(|ext| paths.kube_pki().join(format!("{stem}.{ext}")))
            .into(),
        Output::Kubeconfig(stem) => vec![paths.kube().join(format!("{stem}.conf"))],
    }
}

/// In the order of [`output_files`].
fn leaf_files(paths: &Paths, cert: &CertSpec, pair: &Pair, kube_ca: &str) -> Vec<NewFile> {
    let texts = match &cert.output {
        Output::Pair(_) => vec![
            (pair.key.clone(), Access::Group),
            (pair.certificate.clone(), Access::Everybody),
        ],
        Output::Kubeconfig(name) => vec![(kubeconfig::render(name, kube_ca, pair), Access::Group)],
    };
    output_files(paths, &cert.output)
        .into_iter()
        .zip(texts)
        .map(|(path, (text, access))| NewFile {
            path,
            content: text.into_bytes(),
            access,
        })
        .collect()
}

/// Empty when a file is missing, which no digest is.
fn digest(paths: &[PathBuf]) -> String {
    let contents: Result<Vec<_>, _> = paths.iter().map(fs::read).collect();
    contents.map_or_else(
        |_| String::new(),
        |contents| digest_of(contents.iter().map(Vec::as_slice)),
    )
}

fn digest_of<'a>(contents: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for content in contents {
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    hex(&hash.finalize())
}

fn service_account_key(paths: &Paths) -> Result<Vec<NewFile>> {
    let key = issue::new_key()?;
    let file = |name: &str, text: String, access| NewFile {
        path: paths.kube_pki().join(name),
        content: text.into_bytes(),
        access,
    };
    Ok(vec![
        file("sa.key", key.serialize_pem(), Access::Group),
        file("sa.pub", key.public_key_pem(), Access::Everybody),
    ])
}
