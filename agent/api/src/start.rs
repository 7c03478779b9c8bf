//! How a server comes into the system that was written to its disk: by its firmware, or started by the ramdisk's kernel (kexec).
//! The box's order travels in the `extra` of the Ironic node; what came of it is part of the ramdisk's progress.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{bounded, net::ValueError};

/// The key in the node's `extra`.
pub const EXTRA: &str = "firstlight_start";
/// Bytes of all arguments; the kernel takes 2047 in all.
const LONGEST: usize = 1024;

/// As site.yaml says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPolicy {
    /// By kexec, unless that failed on a server of the same model, or another one is the first to try it.
    #[default]
    Auto,
    /// By kexec, whatever happened to servers of the same model.
    Kexec,
    /// By its firmware.
    Restart,
}

impl StartPolicy {
    /// As in `site.yaml`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kexec => "kexec",
            Self::Restart => "restart",
        }
    }
}

impl FromStr for StartPolicy {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let all = [Self::Auto, Self::Kexec, Self::Restart];
        let found = all.into_iter().find(|policy| policy.word() == text);
        found.ok_or_else(|| {
            ValueError(format!(
                "`{text}` starts nothing; use auto (the installed kernel is started directly, unless that failed on a server of the same model), \
                 kexec (directly, whatever failed) or restart (by the firmware)"
            ))
        })
    }
}

/// Words for the command line of the installed kernel, with one space between them. None needs quotes, for a boot loader or for the
/// kernel, so that they mean the same wherever they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct KernelArguments(String);

impl KernelArguments {
    /// # Errors
    /// There is none, there are too many, or one has a character that some boot loader would read otherwise.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let joined = words.join(" ");
        let good = |c: char| c.is_ascii_alphanumeric() || "_-.,:=/+@%*".contains(c);
        let bad = joined.chars().find(|c| *c != ' ' && !good(*c));
        if let Some(bad) = bad {
            return Err(ValueError(format!(
                "a kernel argument cannot have `{}` in it; use letters, digits and _-.,:=/+@%*, such as hugepages=64 iommu=pt",
                bad.escape_default()
            )));
        }
        if joined.is_empty() || joined.len() > LONGEST {
            return Err(ValueError(format!(
                "kernel arguments have 1 to {LONGEST} characters, such as hugepages=64 iommu=pt"
            )));
        }
        Ok(Self(joined))
    }

    /// With one space between two.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for KernelArguments {
    type Error = String;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).map_err(|ValueError(message)| message)
    }
}

impl From<KernelArguments> for String {
    fn from(arguments: KernelArguments) -> Self {
        arguments.0
    }
}

impl fmt::Display for KernelArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The value of [`EXTRA`]: what the ramdisk does once the image is on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StartOrder {
    /// Whether it may start the installed kernel by itself, if it can.
    pub kexec: bool,
    /// Written into the configuration of the installed system's boot loader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_arguments: Option<KernelArguments>,
}

impl StartOrder {
    /// Of a node's `extra`; where there is none, the firmware starts it, as with any Ironic.
    ///
    /// # Errors
    /// A sentence: it is of another version.
    pub fn of_node(node: &Value) -> Result<Self, String> {
        match &node["extra"][EXTRA] {
            Value::Null => Ok(Self::default()),
            value => Self::deserialize(value)
                .map_err(|error| bounded::sentence(&format!("extra.{EXTRA} of the node: {error}"))),
        }
    }
}

/// What a ramdisk does at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "way", rename_all = "camelCase")]
pub enum Start {
    /// It starts the installed kernel: no firmware runs.
    Kexec,
    /// It restarts the machine.
    Restart {
        /// Why it could not do otherwise, as a sentence of at most 1000 characters; empty if nobody wanted it to.
        reason: String,
    },
}

impl Default for Start {
    fn default() -> Self {
        Self::Restart {
            reason: String::new(),
        }
    }
}

impl Start {
    /// Cut and cleaned.
    #[must_use]
    pub fn bounded(self) -> Self {
        match self {
            Self::Kexec => Self::Kexec,
            Self::Restart { reason } => Self::Restart {
                reason: bounded::sentence(&reason),
            },
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
    fn arguments_are_words_that_mean_the_same_everywhere() {
        let parsed = KernelArguments::parse("  hugepages=64\tiommu=pt \n").unwrap();
        assert_eq!(parsed.as_str(), "hugepages=64 iommu=pt");
        for bad in [
            "",
            "  ",
            "a=\"b c\"",
            "a=$b",
            "a;b",
            "a'b",
            "a\\b",
            "{a}",
            "a#b",
            "ä",
            &"a".repeat(1025),
        ] {
            let ValueError(message) = KernelArguments::parse(bad).unwrap_err();
            assert!(message.contains("hugepages=64 iommu=pt"), "{message}");
        }
    }

    #[test]
    fn an_order_comes_back_from_a_node_and_a_strange_one_is_refused() {
        let order = StartOrder {
            kexec: true,
            kernel_arguments: Some(KernelArguments::parse("a=1 b").unwrap()),
        };
        let node = |order: Value| json!({"extra": {EXTRA: order}});
        let sent = node(json!(order));
        assert_eq!(
            sent["extra"][EXTRA],
            json!({"kexec": true, "kernelArguments": "a=1 b"})
        );
        assert_eq!(StartOrder::of_node(&sent), Ok(order));
        assert_eq!(StartOrder::of_node(&json!({})), Ok(StartOrder::default()));
        for strange in [
            json!(1),
            json!({"kexec": 1}),
            json!({"kernelArguments": "$x"}),
            json!({"other": 1}),
        ] {
            let why = StartOrder::of_node(&node(strange)).unwrap_err();
            assert!(
                why.starts_with("extra.firstlight_start of the node: "),
                "{why}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_value_is_an_order_or_a_sentence(kexec in "true|false|1|\"x\"", arguments in "[ -~]{0,40}") {
            let text = format!("{{\"extra\": {{\"{EXTRA}\": {{\"kexec\": {kexec}, \"kernelArguments\": {}}}}}}}", json!(arguments));
            match StartOrder::of_node(&serde_json::from_str(&text).unwrap()) {
                Ok(order) => {
                    let node = json!({"extra": {EXTRA: json!(order)}});
                    prop_assert_eq!(StartOrder::of_node(&node), Ok(order));
                }
                Err(why) => prop_assert!(why.chars().count() <= 1000 && !why.contains(char::is_control)),
            }
        }
    }
}
