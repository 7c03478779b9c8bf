//! The key `backup`.

use super::{Fields, Walk};
use crate::{
    backup::{
        AgeRecipient, BackupPlan, MOST_COUNT, MOST_RECIPIENTS, Outside, SftpPlace, USUAL_COUNT,
    },
    site::{SshKey, ValueError, schema, yaml::Value},
};

impl Walk {
    pub(super) fn backup(&mut self, fields: &Fields<'_>) -> Option<BackupPlan> {
        let node = fields.get("backup")?;
        let fields = self.fields(node, schema::BACKUP_KEYS, "`backup`");
        if !matches!(node.value, Value::Map(_)) {
            return None;
        }
        let mut recipients: Vec<AgeRecipient> = Vec::new();
        for node in self.items(&fields, "recipients") {
            let Some(key) = self.scalar(node, AgeRecipient::parse) else {
                continue;
            };
            if recipients.contains(&key) {
                self.report(node.place, "this key is listed twice");
            } else if recipients.len() == MOST_RECIPIENTS {
                let message = format!("a backup is for {MOST_RECIPIENTS} keys at most");
                self.report(node.place, message);
            } else {
                recipients.push(key);
            }
        }
        if recipients.is_empty() && self.problems.is_empty() {
            let message = "`backup` has `recipients`, public keys of age's whose other halves are kept away from the site (`age-keygen` makes one): without them nobody could read a backup";
            self.report(node.place, message);
        }
        let count = self.value(&fields, "count", count).unwrap_or(USUAL_COUNT);
        let outside = fields.get("outside").and_then(|node| {
            let keys = self.fields(node, schema::OUTSIDE_KEYS, "`outside`");
            let place = self.value(&keys, "place", SftpPlace::parse);
            let host_key = self.value(&keys, "hostKey", SshKey::parse);
            for key in schema::OUTSIDE_KEYS {
                if matches!(node.value, Value::Map(_)) && !keys.contains_key(key) {
                    self.report(node.place, format!("`outside` has a `{key}`"));
                }
            }
            Some(Outside {
                place: place?,
                host_key: host_key?,
            })
        });
        Some(BackupPlan {
            recipients,
            count,
            outside,
        })
    }
}

fn count(text: &str) -> Result<u8, ValueError> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MOST_COUNT).contains(number))
        .ok_or_else(|| ValueError(format!("`{text}` is not a number from 1 to {MOST_COUNT}")))
}
