//! What servers say of themselves, line by line: the ramdisk of a server, and the system that it installed. It comes by TLS that only the
//! box can answer, signed by the server's key.
//!
//! The clock of a server is nobody's to trust before it has met the box's: a line says how long ago it was.

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::report::{ReportError, boot_id};

/// At the bootstrap endpoint. Takes a [`Post`], signed.
pub const PATH: &str = "/servers/v1/logs";
/// Bytes of a post.
pub const LARGEST: usize = 512 * 1024;
/// Lines of a post.
pub const MOST_LINES: usize = 1000;
/// Characters of a line; what is longer is cut.
pub const LONGEST_LINE: usize = 4096;

/// Parts of a server's way whose lines are sought by themselves: names, and what is meant.
pub const STEPS: [(&str, &str); 9] = [
    (
        "box",
        "what the box says: addresses, files, decisions, Ironic",
    ),
    ("ramdisk", "the ramdisk, with its kernel"),
    ("system", "all of the installed system"),
    ("kernel", "kernels"),
    (
        "cloud-init",
        "cloud-init, and what waits for its data before",
    ),
    (
        "kubeadm",
        "kubeadm, and what else the first start of a node runs",
    ),
    ("kubelet", "kubelet"),
    ("containerd", "containerd"),
    ("apt", "apt and dpkg"),
];

/// Lines of one start of one server, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Post {
    /// Which system speaks.
    pub system: System,
    /// Random, of this start: 32 hexadecimal digits, as the journal has it.
    pub boot: String,
    /// At most [`MOST_LINES`].
    pub lines: Vec<Line>,
}

/// What runs on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// That the box sent it.
    Ramdisk,
    /// From its own disk.
    Installed,
}

/// One of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Milliseconds before the post that it was written.
    pub ago: u64,
    /// Of systemd, or what its program calls itself; at most 256 characters.
    pub unit: String,
    /// syslog's: 0 the worst, 7 for who looks for a mistake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// At most [`LONGEST_LINE`] characters.
    pub message: String,
}

impl System {
    /// As on the wire, and in the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ramdisk => "ramdisk",
            Self::Installed => "installed",
        }
    }
}

impl Post {
    /// What is too much is refused, texts are cut and cleaned.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in a post", body.len(), LARGEST)?;
        // What is wrong is not quoted: nobody knows yet what is in it.
        let post: Self = serde_json::from_slice(body)
            .map_err(|_| ReportError::Json("these are no lines of a log".to_owned()))?;
        bounded::length("lines in a post", post.lines.len(), MOST_LINES)?;
        Ok(Self {
            system: post.system,
            boot: boot_id(post.boot)?,
            lines: post.lines.into_iter().map(Line::bounded).collect(),
        })
    }
}

impl Line {
    fn bounded(self) -> Self {
        Self {
            ago: self.ago,
            unit: bounded::text(&self.unit),
            priority: self.priority.filter(|priority| *priority <= 7),
            message: bounded::line(&self.message, LONGEST_LINE),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn it_travels_as_documented() {
        let post = Post {
            system: System::Ramdisk,
            boot: "0123456789abcdef0123456789abcdef".into(),
            lines: vec![
                Line {
                    ago: 1500,
                    unit: "kernel".into(),
                    priority: Some(3),
                    message: "nvme0: controller is down".into(),
                },
                Line::default(),
            ],
        };
        let sent = serde_json::to_value(&post).unwrap();
        assert_eq!(
            sent,
            json!({
                "system": "ramdisk",
                "boot": "0123456789abcdef0123456789abcdef",
                "lines": [
                    {"ago": 1500, "unit": "kernel", "priority": 3, "message": "nvme0: controller is down"},
                    {"ago": 0, "unit": "", "message": ""},
                ],
            })
        );
        assert_eq!(Post::parse(sent.to_string().as_bytes()).unwrap(), post);
        assert!(Post::parse(br#"{"system":"box","boot":"a","lines":[]}"#).is_err());
        let many = json!({"system": "ramdisk", "boot": "a", "lines": vec![Line::default(); MOST_LINES + 1]});
        assert!(Post::parse(many.to_string().as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_lines_within_bounds_or_refused(
            body: Vec<u8>,
            ago: u64,
            unit in ".{0,300}",
            priority: Option<u8>,
            message in "(?s).{0,5000}",
        ) {
            let _ = Post::parse(&body);
            let said = Line { ago, unit, priority, message };
            let said = json!({"system": "installed", "boot": "a", "lines": [said]});
            let post = Post::parse(said.to_string().as_bytes()).unwrap();
            let line = &post.lines[0];
            prop_assert!(line.unit.chars().count() <= 256 && line.message.chars().count() <= LONGEST_LINE);
            prop_assert!(!line.unit.chars().chain(line.message.chars()).any(char::is_control));
            prop_assert!(line.priority.is_none_or(|priority| priority < 8));
        }
    }
}
