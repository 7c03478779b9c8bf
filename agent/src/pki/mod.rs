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
use rcgen::KeyPair;
use sha2::{Digest, Sha256};

pub use issue::{Authority, Pair};
pub use spec::{AuthorityName, CertSpec, NODE_ADDRESS, NODE_NAME, Output, Usage};

use crate::{
    encryption,
    files::{self, Access, NewFile},
    keep::{self, Kept, Reader, Remedy},
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

/// Makes what is missing, outdated, about to expire, or damaged and can be made again; returns after everything is on the disk. A
/// key that others depend on is made once, see [`keep`].
pub fn load_or_make(paths: &Paths, now: i64) -> Result<Pki> {
    for dir in [
        paths.agent_state(),
        paths.site_pki(),
        paths.kube(),
        paths.kube_pki(),
    ] {
        files::make_dir(&dir, 0o750)?;
    }
    let (pki, new_files) = Found::read(paths, &|path| fs::read(path))?.complete(now)?;
    files::write_all(&new_files)?;
    Ok(pki)
}

/// What is on the disk. `None` is a file that is not there.
struct Found<'a> {
    paths: &'a Paths,
    /// Certificate and key.
    authorities: BTreeMap<AuthorityName, (Option<String>, Option<String>)>,
    leaves: BTreeMap<Output, Vec<Option<Vec<u8>>>>,
    /// Private and public half.
    service_accounts: (Option<String>, Option<String>),
    /// The key for Secrets, and whether etcd has some that only it opens.
    secrets: (Option<String>, bool),
    /// Written last: with it, everything was there once.
    record: Option<Vec<u8>>,
}

impl<'a> Found<'a> {
    fn read(paths: &'a Paths, reader: Reader) -> Result<Self, Kept> {
        let text = |path: PathBuf| keep::read_text(&path, reader);
        let mut authorities = BTreeMap::new();
        for name in AuthorityName::ALL {
            let (certificate, key) = authority_files(paths, name);
            authorities.insert(name, (text(certificate)?, text(key)?));
        }
        let mut leaves = BTreeMap::new();
        for cert in spec::wanted() {
            let files = output_files(paths, &cert.output);
            let contents = files.iter().map(|path| keep::read(path, reader));
            leaves.insert(cert.output, contents.collect::<Result<_, _>>()?);
        }
        let (private, public) = service_account_files(paths);
        Ok(Self {
            paths,
            authorities,
            leaves,
            service_accounts: (text(private)?, text(public)?),
            secrets: (
                text(secrets_file(paths))?,
                keep::read(&paths.encrypted_secrets(), reader)?.is_some(),
            ),
            record: keep::read(&record_file(paths), reader)?,
        })
    }

    /// With what has to be written for it, in this order.
    fn complete(self, now: i64) -> Result<(Pki, Vec<NewFile>)> {
        let mut new_files = Vec::new();
        let mut authorities = BTreeMap::new();
        for name in AuthorityName::ALL {
            authorities.insert(name, self.authority(name, now, &mut new_files)?);
        }
        let fingerprints = authorities
            .iter()
            .map(|(name, authority)| (*name, authority.fingerprint.clone()))
            .collect();
        let record = self.record.as_deref();
        let record = record.and_then(|text| serde_json::from_slice(text).ok());
        let mut record: plan::Record = record.unwrap_or_default();
        let on_disk = self.leaves.iter();
        let on_disk = on_disk
            .map(|(output, contents)| (output.clone(), digest(contents)))
            .collect();
        for cert in plan::plan(&spec::wanted(), &record, &fingerprints, &on_disk, now) {
            let authority = &authorities[&cert.authority];
            let pair = authority
                .issue(&cert, now)
                .with_context(|| format!("issuing {:?}", cert.output))?;
            let kube_ca = &authorities[&AuthorityName::Kube].certificate;
            let made = leaf_files(self.paths, &cert, &pair, kube_ca);
            let digest = digest_of(made.iter().map(|file| file.content.as_slice()));
            tracing::info!(name = ?cert.output, "certificate issued");
            record.insert(&cert, &authority.fingerprint, digest, issue::leaf_end(now));
            new_files.extend(made);
        }
        self.add_service_account_keys(&mut new_files)?;
        self.add_secrets_key(&mut new_files)?;
        if !new_files.is_empty() {
            let content = serde_json::to_vec_pretty(&record)
                .context("encoding the record of certificates")?;
            new_files.push(NewFile {
                path: record_file(self.paths),
                content,
                access: Access::Group,
            });
        }
        let site = authorities
            .remove(&AuthorityName::Site)
            .expect("ALL has Site");
        Ok((Pki { site }, new_files))
    }

    /// The key decides: with it the certificate can be made again, without it nothing that it signed may be there.
    fn authority(
        &self,
        name: AuthorityName,
        now: i64,
        new: &mut Vec<NewFile>,
    ) -> Result<Authority> {
        let (certificate_file, key_file) = authority_files(self.paths, name);
        let damaged = |error: anyhow::Error| Kept::damaged(&key_file, format!("{error:#}"));
        let authority = match &self.authorities[&name] {
            (Some(certificate), Some(key)) => {
                let loaded = Authority::load(name, certificate, key).map_err(damaged)?;
                if !loaded.is_consistent() {
                    return Err(Kept::Damaged {
                        path: certificate_file,
                        reason: format!("it is no certificate of {}", key_file.display()),
                        remedy: Remedy::Remove,
                    }
                    .into());
                }
                return Ok(loaded);
            }
            (None, Some(key)) => Authority::from_key(name, key, now).map_err(damaged)?,
            (certificate, None) => {
                let by_it = certificate.is_some().then(|| certificate_file.clone());
                if let Some(made) = by_it.or_else(|| self.signed_by(name)) {
                    return Err(Kept::Gone {
                        path: key_file,
                        made,
                    }
                    .into());
                }
                Authority::make(name, now)?
            }
        };
        tracing::info!(name = ?name, "making a certificate authority");
        new.push(file(key_file, authority.key_pem(), Access::Group));
        let certificate = authority.certificate.clone();
        new.push(file(certificate_file, certificate, Access::Everybody));
        Ok(authority)
    }

    /// A file that shows that this authority was there before.
    fn signed_by(&self, name: AuthorityName) -> Option<PathBuf> {
        let signed = spec::wanted().into_iter().find(|cert| {
            cert.authority == name && self.leaves[&cert.output].iter().any(Option::is_some)
        });
        let signed = signed.and_then(|cert| output_files(self.paths, &cert.output).pop());
        let record = self.record.as_ref().map(|_| record_file(self.paths));
        signed.or(record)
    }

    fn add_service_account_keys(&self, new: &mut Vec<NewFile>) -> Result<()> {
        let (private_file, public_file) = service_account_files(self.paths);
        let key = match &self.service_accounts {
            (Some(private), public) => {
                let key = KeyPair::from_pem(private)
                    .map_err(|error| Kept::damaged(&private_file, error.to_string()))?;
                match public {
                    Some(public) if *public == key.public_key_pem() => return Ok(()),
                    Some(_) => {
                        return Err(Kept::Damaged {
                            path: public_file,
                            reason: format!("it is not the half of {}", private_file.display()),
                            remedy: Remedy::Remove,
                        }
                        .into());
                    }
                    None => key,
                }
            }
            (None, public) => {
                let by_it = public.is_some().then(|| public_file.clone());
                let record = self.record.as_ref().map(|_| record_file(self.paths));
                if let Some(made) = by_it.or(record) {
                    return Err(Kept::Gone {
                        path: private_file,
                        made,
                    }
                    .into());
                }
                let key = issue::new_key()?;
                new.push(file(private_file, key.serialize_pem(), Access::Group));
                key
            }
        };
        new.push(file(public_file, key.public_key_pem(), Access::Everybody));
        Ok(())
    }

    fn add_secrets_key(&self, new: &mut Vec<NewFile>) -> Result<()> {
        let path = secrets_file(self.paths);
        match &self.secrets {
            (Some(text), _) if encryption::has_key(text) => {}
            (Some(_), _) => return Err(Kept::damaged(&path, "it has no key").into()),
            (None, true) => {
                let made = self.paths.encrypted_secrets();
                return Err(Kept::Gone { path, made }.into());
            }
            (None, false) => new.push(file(path, encryption::make("box")?, Access::Group)),
        }
        Ok(())
    }
}

fn file(path: PathBuf, text: String, access: Access) -> NewFile {
    NewFile {
        path,
        content: text.into_bytes(),
        access,
    }
}

fn record_file(paths: &Paths) -> PathBuf {
    paths.agent_state().join("issued.json")
}

fn service_account_files(paths: &Paths) -> (PathBuf, PathBuf) {
    let at = |name: &str| paths.kube_pki().join(name);
    (at("sa.key"), at("sa.pub"))
}

fn secrets_file(paths: &Paths) -> PathBuf {
    paths.kube_pki().join("secrets.json")
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
        .map(|(path, (text, access))| file(path, text, access))
        .collect()
}

/// Empty when a file is missing, which no digest is.
fn digest(contents: &[Option<Vec<u8>>]) -> String {
    let contents: Option<Vec<&[u8]>> = contents.iter().map(Option::as_deref).collect();
    contents.map_or_else(String::new, |contents| digest_of(contents.into_iter()))
}

fn digest_of<'a>(contents: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for content in contents {
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    hex(&hash.finalize())
}
