//! What an installed system says of the mirror (RAID 1) that its root is on, when the box asks it over SSH.

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::order::DiskId;
use crate::report::ReportError;

/// Bytes of an answer.
pub const LARGEST: usize = 4 * 1024;
/// Disks of one mirror.
pub const MOST_DISKS: usize = 8;
/// Of a whole.
const PERCENT: u8 = 100;

/// The answer to `firstlight-bootstrap mirror`, on its standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Told {
    /// Absent if its root is on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
}

/// As its kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mirror {
    /// Disks that hold all of it; at most [`MOST_DISKS`].
    pub whole: Vec<DiskId>,
    /// How much of another disk has been filled, in percent, while one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<u8>,
}

impl Told {
    /// Lengths beyond their limits are refused, texts are cut and cleaned.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in an answer about a mirror", body.len(), LARGEST)?;
        let told: Self = serde_json::from_slice(body)
            .map_err(|error| ReportError::Json(bounded::sentence(&error.to_string())))?;
        let Some(mirror) = told.mirror else {
            return Ok(Self::default());
        };
        bounded::length("disks in a mirror", mirror.whole.len(), MOST_DISKS)?;
        let clean =
            |id: &DiskId| DiskId::new(id.serial.as_deref(), id.wwn.as_deref(), id.size_bytes);
        Ok(Self {
            mirror: Some(Mirror {
                whole: mirror.whole.iter().map(clean).collect(),
                filled: mirror.filled.map(|percent| percent.min(PERCENT)),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_travels_as_documented_and_more_than_is_asked_for_is_refused() {
        let told = Told {
            mirror: Some(Mirror {
                whole: vec![DiskId::new(Some("S3X2"), None, 480)],
                filled: Some(42),
            }),
        };
        let sent = r#"{"mirror":{"whole":[{"serial":"S3X2","sizeBytes":480}],"filled":42}}"#;
        assert_eq!(serde_json::to_string(&told).unwrap(), sent);
        assert_eq!(Told::parse(sent.as_bytes()).unwrap(), told);
        assert_eq!(Told::parse(b"{}").unwrap(), Told::default());
        for refused in [
            sent.replace("42", "4242"),
            sent.replace("filled", "full"),
            sent.to_owned() + &" ".repeat(LARGEST),
        ] {
            assert!(Told::parse(refused.as_bytes()).is_err(), "{refused}");
        }
    }

    proptest! {
        /// The system of a host may say anything.
        #[test]
        fn whatever_a_system_says_is_a_mirror_of_few_disks_or_refused(
            body: Vec<u8>, serial in ".{0,300}", disks in 0..20_usize, filled in any::<Option<u8>>(),
        ) {
            let _ = Told::parse(&body);
            let disk = DiskId { serial: Some(serial), wwn: None, size_bytes: 1 };
            let said = Told { mirror: Some(Mirror { whole: vec![disk; disks], filled }) };
            if let Ok(told) = Told::parse(&serde_json::to_vec(&said).unwrap()) {
                let mirror = told.mirror.unwrap();
                prop_assert!(mirror.whole.len() <= MOST_DISKS && mirror.filled.is_none_or(|percent| percent <= 100));
                let short = |disk: &DiskId| disk.serial.as_ref().is_some_and(|text| text.chars().count() <= 128);
                prop_assert!(mirror.whole.iter().all(short));
            }
        }
    }
}
