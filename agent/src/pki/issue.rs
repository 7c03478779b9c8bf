//! Making keys and certificates with rcgen.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SigningKey as _,
};
use std::sync::Arc;
use time::OffsetDateTime;

use super::{
    fingerprint,
    spec::{AuthorityName, CertSpec, Usage},
};

/// 2020-01-01: no clock of a box can be before it, systemd sets it to at least its own build time.
const VALID_FROM: i64 = 1_577_836_800;
/// 2026-01-01: where counting starts when the clock is behind.
const COUNT_FROM: i64 = 1_767_225_600;
const YEAR: i64 = 365 * 24 * 3600;

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// A certificate authority with its key.
#[derive(Clone)]
pub struct Authority {
    name: AuthorityName,
    /// PEM
    pub certificate: String,
    /// Of `certificate`, see [`fingerprint`].
    pub fingerprint: String,
    key: Arc<KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("name", &self.name)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

pub fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("making an EC P-256 key")
}

/// Until when a certificate issued now is valid, seconds since 1970.
pub fn leaf_end(now: i64) -> i64 {
    now.max(COUNT_FROM).saturating_add(10 * YEAR)
}

impl Authority {
    pub fn make(name: AuthorityName, now: i64) -> Result<Self> {
        Self::self_signed(name, new_key()?, now)
    }

    /// For a key that lost its certificate.
    pub fn from_key(name: AuthorityName, key: &str, now: i64) -> Result<Self> {
        Self::self_signed(name, KeyPair::from_pem(key).context("reading a key")?, now)
    }

    pub fn load(name: AuthorityName, certificate: &str, key: &str) -> Result<Self> {
        let key = KeyPair::from_pem(key).context("reading a key")?;
        // One that is no certificate has none, and is not consistent.
        let fingerprint = fingerprint(certificate).unwrap_or_default();
        Ok(Self {
            name,
            certificate: certificate.to_owned(),
            fingerprint,
            key: Arc::new(key),
        })
    }

    fn self_signed(name: AuthorityName, key: KeyPair, now: i64) -> Result<Self> {
        let mut params = authority_params(name);
        let end = now.max(COUNT_FROM).saturating_add(30 * YEAR);
        validity(&mut params, [VALID_FROM, end])?;
        let certificate = params
            .self_signed(&key)
            .with_context(|| format!("signing the authority {name:?}"))?
            .pem();
        let fingerprint = fingerprint(&certificate)?;
        Ok(Self {
            name,
            certificate,
            fingerprint,
            key: Arc::new(key),
        })
    }

    /// Whether the certificate is whole, and this key's.
    pub fn is_consistent(&self) -> bool {
        let framed = self.certificate.trim_end();
        let framed = framed.starts_with("-----BEGIN CERTIFICATE-----")
            && framed.ends_with("-----END CERTIFICATE-----");
        let key = self.key.public_key_raw();
        framed
            && super::der(&self.certificate)
                .is_ok_and(|der| der.windows(key.len()).any(|part| part == key))
    }

    /// ECDSA with SHA-256, in its ASN.1 form.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        self.key.sign(message).context("signing with an authority")
    }

    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// For programs of this site: they live longer than the clocks that they are judged by are wrong.
    pub fn issue(&self, spec: &CertSpec, now: i64) -> Result<Pair> {
        self.issue_for(spec, [VALID_FROM, leaf_end(now)])
    }

    /// Valid from the first of these seconds since 1970 to the other.
    pub fn issue_for(&self, spec: &CertSpec, valid: [i64; 2]) -> Result<Pair> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        params.distinguished_name =
            distinguished_name(&spec.common_name, spec.organization.as_deref());
        for name in &spec.dns {
            params.subject_alt_names.push(SanType::DnsName(
                name.as_str().try_into().context("a DNS name")?,
            ));
        }
        params
            .subject_alt_names
            .extend(spec.ips.iter().map(|ip| SanType::IpAddress(*ip)));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match spec.usage {
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Both => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        };
        params.use_authority_key_identifier_extension = true;
        validity(&mut params, valid)?;
        let authority = authority_params(self.name);
        let issuer = Issuer::from_params(&authority, &*self.key);
        let certificate = params
            .signed_by(&key, &issuer)
            .context("signing a certificate")?
            .pem();
        Ok(Pair {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn authority_params(name: AuthorityName) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(name.common_name(), None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn validity(params: &mut CertificateParams, [begin, end]: [i64; 2]) -> Result<()> {
    params.not_before =
        OffsetDateTime::from_unix_timestamp(begin).context("the first day of validity")?;
    params.not_after = OffsetDateTime::from_unix_timestamp(end)
        .context("the last day of validity; is the clock right?")?;
    Ok(())
}
