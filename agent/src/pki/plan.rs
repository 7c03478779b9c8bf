//! Which certificates have to be issued: pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spec::{AuthorityName, CertSpec, Output};

/// What was issued before, kept beside the certificates so that none has to be parsed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    issued: Vec<Issued>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Issued {
    spec: CertSpec,
    /// Of the authority's certificate.
    authority: String,
    /// Of the files, to notice damage.
    digest: String,
    /// Seconds since 1970.
    not_after: i64,
}

impl Record {
    pub fn insert(&mut self, spec: &CertSpec, authority: &str, digest: String, not_after: i64) {
        self.issued
            .retain(|issued| issued.spec.output != spec.output);
        self.issued.push(Issued {
            spec: spec.clone(),
            authority: authority.to_owned(),
            digest,
            not_after,
        });
    }
}

/// Renewed at a boot when less than this is left.
const MARGIN: i64 = 365 * 24 * 3600;

/// The certificates of `wanted` that are missing, damaged, of another authority, made to another spec, or near their end.
pub fn plan(
    wanted: &[CertSpec],
    record: &Record,
    authorities: &BTreeMap<AuthorityName, String>,
    digests: &BTreeMap<Output, String>,
    now: i64,
) -> Vec<CertSpec> {
    let good = |cert: &CertSpec| {
        record.issued.iter().any(|issued| {
            issued.spec == *cert
                && Some(&issued.authority) == authorities.get(&cert.authority)
                && Some(&issued.digest) == digests.get(&cert.output)
                && issued.not_after.saturating_sub(now) > MARGIN
        })
    };
    wanted.iter().filter(|cert| !good(cert)).cloned().collect()
}
