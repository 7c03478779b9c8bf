//! A site's receipt: what its stick is, what was written to which server and on whose word, and what people put on it since
//! (docs/receipt.md). It is signed by the site's CA and read without the box.
//!
//! Must not: hold a secret. Of a config drive, which has some, only the digest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    artifact::Artifact,
    boot_choice::SystemSlot,
    bounded::{self, Excess},
    digest::Sha256Digest,
    measured::Quote,
    people::AuditLine,
    seal::SealStatus,
    slot::SystemContent,
    start::KernelArguments,
    status::{AddonLine, ClusterStatus, HostState, SoftwareLine},
    tpm::Fingerprint,
};

/// Answers with an [`Envelope`].
pub const PATH: &str = "/api/v1/receipt";
/// What is in the envelope: a [`Receipt`].
pub const PAYLOAD_TYPE: &str = "application/vnd.firstlight.receipt.v1+json";
/// Bytes of an envelope. A thousand servers make some three million.
pub const LARGEST: usize = 16 << 20;
/// Of any list in a receipt.
const MOST: usize = 20_000;
const LONGEST_CERTIFICATE: usize = 16 * 1024;
const MOST_SIGNATURES: usize = 16;

/// As DSSE has it (Dead Simple Signing Envelope 1.0), and with the certificate whose key has signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// [`PAYLOAD_TYPE`]
    pub payload_type: String,
    /// In base64.
    pub payload: String,
    /// One.
    pub signatures: Vec<EnvelopeSignature>,
    /// PEM, of the site's CA. Nobody believes it who has not seen its fingerprint elsewhere.
    pub certificate: String,
}

/// ECDSA with SHA-256 on P-256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeSignature {
    /// SHA-256 of the certificate, in hex.
    pub keyid: String,
    /// In base64, of its ASN.1 form.
    pub sig: String,
}

impl Envelope {
    /// Whatever somebody says is a receipt.
    ///
    /// # Errors
    /// Where it is larger than one, or another thing.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReceiptError> {
        bounded::length("bytes in a receipt", bytes.len(), LARGEST)?;
        let envelope: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        let (signatures, certificate) = (envelope.signatures.len(), envelope.certificate.len());
        bounded::length("signatures", signatures, MOST_SIGNATURES)?;
        bounded::length("bytes in a certificate", certificate, LONGEST_CERTIFICATE)?;
        if envelope.payload_type != PAYLOAD_TYPE {
            return Err(ReceiptError::Kind(bounded::text(&envelope.payload_type)));
        }
        Ok(envelope)
    }
}

/// What is signed: DSSE's pre-authentication encoding.
pub fn signed(payload: &[u8]) -> Vec<u8> {
    let (kind, length) = (PAYLOAD_TYPE.len(), payload.len());
    let mut message = format!("DSSEv1 {kind} {PAYLOAD_TYPE} {length} ").into_bytes();
    message.extend_from_slice(payload);
    message
}

/// Why bytes are no receipt.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReceiptError {
    /// It is no JSON, or another one; a half sentence.
    #[error("this is no receipt: {0}")]
    Json(String),
    /// It says so.
    #[error("this is no receipt but {0:?}")]
    Kind(String),
    /// More than there can be.
    #[error(transparent)]
    Excess(#[from] Excess),
}

/// The error may quote what it met.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: serde_json::Error) -> ReceiptError {
    ReceiptError::Json(bounded::sentence(&error.to_string()))
}

/// What the box knows of itself and of its servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// `name` of site.yaml.
    pub site: String,
    /// When, in RFC 3339, by the box's clock.
    pub made: String,
    /// Of Firstlight.
    pub version: String,
    /// `open`, `approve` or `named`: whether a new server waits for a person.
    pub join: String,
    /// Absent on a box that does not run from a stick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stick: Option<StickReceipt>,
    /// Versions of what is on it.
    pub versions: Value,
    /// All that the box knows.
    pub servers: Vec<ServerReceipt>,
    /// A person's word on a server, oldest first.
    pub approvals: Vec<AuditLine>,
    /// What else people have done that the box remembers, oldest first.
    pub done: Vec<AuditLine>,
    /// What people have put on the box.
    pub uploads: Vec<Artifact>,
    /// As they are now.
    pub clusters: Vec<ClusterStatus>,
    /// As they are now.
    pub addons: Vec<AddonLine>,
    /// As it is now.
    pub software: Vec<SoftwareLine>,
}

impl Receipt {
    /// Out of an envelope whose signature holds.
    ///
    /// # Errors
    /// Where it is none, or has more of something than a site can have.
    pub fn parse(payload: &[u8]) -> Result<Self, ReceiptError> {
        let receipt: Self = serde_json::from_slice(payload).map_err(unreadable)?;
        for (what, found) in [
            ("servers", receipt.servers.len()),
            ("approvals", receipt.approvals.len()),
            ("lines of what was done", receipt.done.len()),
            ("uploads", receipt.uploads.len()),
        ] {
            bounded::length(what, found, MOST)?;
        }
        Ok(receipt)
    }
}

/// The system that the box runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StickReceipt {
    /// Where it is.
    pub slot: SystemSlot,
    /// Its layers and what is read before them, with the signature if it has one: the same that `firstlight build` of these sources makes again.
    pub system: SystemContent,
    /// Whose systems the box takes, as SSH shows keys; empty: anybody's.
    pub keys: Vec<String>,
    /// What keeps the key of the box's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<SealStatus>,
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerReceipt {
    /// Of its host; empty if it has not been heard since the box started.
    pub name: String,
    /// Of the NIC that it boots from.
    pub mac: String,
    /// As its firmware says, `VENDOR PRODUCT`; empty while unknown.
    pub product: String,
    /// As its firmware says.
    pub serial: String,
    /// Where it is on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<HostState>,
    /// site.yaml names it.
    pub named: bool,
    /// Code of the key that a person has compared; empty: nobody has.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub approved: String,
    /// The TPM that alone is believed in its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Fingerprint>,
    /// Its TPM's word on how it was started when it was believed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
    /// What is on its disks; absent if nothing of the box's is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<Installed>,
}

/// An image on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Installed {
    /// Every byte is on the disk and was verified.
    pub complete: bool,
    /// When, in RFC 3339, by the box's clock; empty if an older version wrote it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Kernel name, size and serial of each disk.
    pub disks: Vec<String>,
    /// Where the image came from.
    pub image: String,
    /// Of the file that was written, which the ramdisk has verified; in hex, as long as its kind says.
    pub checksum: String,
    /// What the ramdisk says it has written; absent if it was one of an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrote: Option<Wrote>,
    /// The server had its bootstrap data.
    pub delivered: bool,
}

/// What a ramdisk has put onto a disk, besides the partition table that it fitted to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wrote {
    /// Bytes of the image as they are on the disk.
    pub image_bytes: u64,
    /// SHA-256 of the config drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<Sha256Digest>,
    /// Given to its kernel besides those of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_arguments: Option<KernelArguments>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_signed_is_as_dsse_has_it() {
        let message = String::from_utf8(signed(b"{}")).unwrap();
        assert_eq!(
            message,
            "DSSEv1 42 application/vnd.firstlight.receipt.v1+json 2 {}"
        );
    }

    #[test]
    fn a_receipt_of_an_older_box_is_read() {
        let text = br#"{"site":"s","made":"","version":"","join":"open","versions":{},"servers":[{"mac":"52:54:00:00:00:01"}],
            "approvals":[],"done":[],"uploads":[],"clusters":[],"addons":[],"software":[]}"#;
        let receipt = Receipt::parse(text).unwrap();
        assert_eq!(receipt.servers[0].mac, "52:54:00:00:00:01");
        assert!(receipt.stick.is_none() && receipt.servers[0].installed.is_none());
    }

    proptest! {
        #[test]
        fn whatever_is_said_to_be_a_receipt_is_one_or_a_sentence(noise: Vec<u8>, kind in ".{0,80}", payload in ".{0,80}") {
            let _ = Receipt::parse(&noise);
            let _ = Envelope::parse(&noise);
            let said = serde_json::json!({"payloadType": kind, "payload": payload, "signatures": [], "certificate": ""});
            let parsed = Envelope::parse(said.to_string().as_bytes());
            prop_assert_eq!(parsed.is_ok(), kind == PAYLOAD_TYPE);
            if let Err(error) = parsed {
                prop_assert!(!error.to_string().chars().any(char::is_control));
            }
        }
    }
}
