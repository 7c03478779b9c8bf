//! A receipt's envelope: signed by the site's CA on the box, read anywhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstlight_api::digest::Sha256Digest;
use firstlight_api::receipt::{
    Envelope, EnvelopeSignature, PAYLOAD_TYPE, Receipt, ReceiptError, signed,
};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why a receipt is not believed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unproven {
    /// It is none.
    #[error(transparent)]
    Unreadable(#[from] ReceiptError),
    /// There is no certificate in it.
    #[error("the receipt has no certificate that can be read")]
    NoCertificate,
    /// Of somebody else.
    #[error(
        "the receipt is of the site whose CA has the SHA-256 {0}, and not of the one that was named"
    )]
    OtherSite(Sha256Digest),
    /// Somebody changed it.
    #[error("the receipt was changed after it was signed, or its signature is of somebody else")]
    Changed,
}

/// Puts it into an envelope. `certificate` is PEM, and `sign` makes an ECDSA signature (P-256, SHA-256, ASN.1) with its key.
///
/// # Errors
/// Where `sign` fails, or there is no certificate.
pub fn seal<E: From<Unproven>>(
    receipt: &Receipt,
    certificate: &str,
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
) -> Result<Envelope, E> {
    let payload = serde_json::to_vec(receipt)
        .map_err(|error| Unproven::Unreadable(ReceiptError::Json(error.to_string())))?;
    let signature = EnvelopeSignature {
        keyid: fingerprint(certificate)?.to_string(),
        sig: STANDARD.encode(sign(&signed(&payload))?),
    };
    Ok(Envelope {
        payload_type: PAYLOAD_TYPE.to_owned(),
        payload: STANDARD.encode(payload),
        signatures: vec![signature],
        certificate: certificate.to_owned(),
    })
}

/// What the site's CA has signed; `ca` is the SHA-256 of its certificate.
///
/// # Errors
/// Where it is of another site, or nobody's.
pub fn open(envelope: &Envelope, ca: Sha256Digest) -> Result<Receipt, Unproven> {
    let der = der(&envelope.certificate)?;
    let found = Sha256Digest::of(&der);
    if found != ca {
        return Err(Unproven::OtherSite(found));
    }
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| Unproven::NoCertificate)?;
    let key = &certificate.public_key().subject_public_key.data;
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
    let payload = STANDARD.decode(&envelope.payload);
    let payload = payload.map_err(|_| Unproven::Changed)?;
    let message = signed(&payload);
    let holds = |signature: &EnvelopeSignature| {
        let signature = STANDARD.decode(&signature.sig);
        signature.is_ok_and(|signature| key.verify(&message, &signature).is_ok())
    };
    if !envelope.signatures.iter().any(holds) {
        return Err(Unproven::Changed);
    }
    Ok(Receipt::parse(&payload)?)
}

/// SHA-256 of a certificate's DER form, as `openssl x509 -fingerprint -sha256` shows it.
///
/// # Errors
/// Where it is no PEM certificate.
pub fn fingerprint(certificate: &str) -> Result<Sha256Digest, Unproven> {
    Ok(Sha256Digest::of(&der(certificate)?))
}

fn der(certificate: &str) -> Result<Vec<u8>, Unproven> {
    let mut blocks = Pem::iter_from_buffer(certificate.as_bytes());
    let first = blocks.next().and_then(Result::ok);
    let first = first.filter(|block| block.label == "CERTIFICATE");
    first
        .map(|block| block.contents)
        .ok_or(Unproven::NoCertificate)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SigningKey as _};

    use super::*;

    struct Site {
        key: KeyPair,
        certificate: String,
    }

    impl Site {
        fn new() -> Self {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
            let certificate = CertificateParams::default().self_signed(&key).unwrap();
            Self {
                certificate: certificate.pem(),
                key,
            }
        }

        fn ca(&self) -> Sha256Digest {
            fingerprint(&self.certificate).unwrap()
        }

        fn seals(&self, receipt: &Receipt) -> Envelope {
            let sign = |message: &[u8]| Ok::<_, Unproven>(self.key.sign(message).unwrap());
            seal(receipt, &self.certificate, sign).unwrap()
        }
    }

    fn receipt() -> Receipt {
        Receipt {
            site: "rack 7".to_owned(),
            ..Receipt::default()
        }
    }

    #[test]
    fn a_receipt_is_read_by_whoever_knows_the_ca() {
        let (ours, theirs) = (Site::new(), Site::new());
        let envelope = ours.seals(&receipt());
        let sent = serde_json::to_vec(&envelope).unwrap();
        assert_eq!(
            open(&Envelope::parse(&sent).unwrap(), ours.ca()),
            Ok(receipt())
        );
        let other = open(&envelope, theirs.ca());
        assert_eq!(other, Err(Unproven::OtherSite(ours.ca())));
        // Somebody signs what he likes and shows the site's certificate.
        let mut forged = theirs.seals(&receipt());
        forged.certificate.clone_from(&ours.certificate);
        assert_eq!(open(&forged, ours.ca()), Err(Unproven::Changed));
        forged.signatures.clear();
        assert_eq!(open(&forged, ours.ca()), Err(Unproven::Changed));
        forged.certificate = "nothing".to_owned();
        assert_eq!(open(&forged, ours.ca()), Err(Unproven::NoCertificate));
    }

    #[test]
    fn openssl_checks_the_signature_as_well() {
        let (site, folder) = (Site::new(), tempfile::tempdir().unwrap());
        let envelope = site.seals(&receipt());
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let payload = STANDARD.decode(&envelope.payload).unwrap();
        let message = write("message", &signed(&payload));
        let signature = STANDARD.decode(&envelope.signatures[0].sig).unwrap();
        let signature = write("signature", &signature);
        let key = write("key", site.key.public_key_pem().as_bytes());
        let checked = std::process::Command::new("openssl")
            .args(["dgst", "-sha256", "-verify"])
            .arg(key)
            .arg("-signature")
            .args([signature, message])
            .output()
            .unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_changed_byte_is_found_wherever_it_is(at: prop::sample::Index, to: u8) {
            let site = Site::new();
            let mut sent = serde_json::to_vec(&site.seals(&receipt())).unwrap();
            let whole = sent.clone();
            let at = at.index(sent.len());
            sent[at] = to;
            let opened = Envelope::parse(&sent).map_err(Unproven::from);
            let opened = opened.and_then(|envelope| open(&envelope, site.ca()));
            // White space and the name of the key are no part of it.
            if let Ok(opened) = opened {
                prop_assert_eq!(opened, receipt());
            } else {
                prop_assert_ne!(sent, whole);
            }
        }
    }
}
