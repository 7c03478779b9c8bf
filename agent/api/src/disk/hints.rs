//! Root device hints: which disk an operator means. Same operators as ironic-lib's specs matcher.
//!
//! A hint's value is compared with the disk's: text without regard to case, size in GiB. A value may begin with an
//! operator: `=` (at least), `==`, `!=`, `>=`, `<=`, `<`, `>` for numbers; `s==`, `s!=`, `s<`, `s<=`, `s>`, `s>=` for
//! text; `<in>` (contains), `<all-in>`, `<or>`.

use serde_json::{Map, Value, json};

use super::Disk;
use crate::bmh::RootDeviceHints;

/// With any other Ironic, disks smaller than this are never chosen without a hint: its own rule.
const SMALLEST: u64 = 4 << 30;

const TEXT_KEYS: [&str; 10] = [
    "model",
    "vendor",
    "serial",
    "wwn",
    "wwn_with_extension",
    "wwn_vendor_extension",
    "name",
    "hctl",
    "by_path",
    "tran",
];

/// Hints that all must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    list: Vec<(String, Hint)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hint {
    Text(Match),
    Size(Match),
    Rotational(bool),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Match {
    Compare(Operator, String),
    AllIn(Vec<String>),
    Or(Vec<String>),
    In(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Longer operators come before their prefixes.
const OPERATORS: [(&str, Operator); 13] = [
    ("s==", Operator::Equal),
    ("s!=", Operator::NotEqual),
    ("s<=", Operator::LessEqual),
    ("s>=", Operator::GreaterEqual),
    ("s<", Operator::Less),
    ("s>", Operator::Greater),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessEqual),
    (">=", Operator::GreaterEqual),
    ("=", Operator::GreaterEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl Hints {
    /// Parses the object in `root_device`; a word that is no hint is refused, since ignoring it would widen the choice.
    ///
    /// # Errors
    /// A sentence that names the hint.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let object = value.as_object().ok_or("expected an object of hints")?;
        let list = object
            .iter()
            .map(|(key, value)| Ok((key.clone(), parse_one(key, value)?)))
            .collect::<Result<_, String>>()?;
        Ok(Self { list })
    }

    /// All hints hold for it.
    pub fn matches(&self, disk: &Disk) -> bool {
        self.list.iter().all(|(key, hint)| hint.holds(disk, key))
    }

    /// The keys of the hints that do not hold, each with what the disk has instead.
    pub fn differences(&self, disk: &Disk) -> Vec<String> {
        let differ = self
            .list
            .iter()
            .filter(|(key, hint)| !hint.holds(disk, key));
        differ
            .map(|(key, hint)| match hint {
                Hint::Rotational(_) => format!("rotational is {}", disk.rotational),
                Hint::Size(_) => format!("size is {} GiB", disk.size >> 30),
                Hint::Text(_) => match text_of(disk, key) {
                    Some(text) => format!("{key} is `{text}`"),
                    None => format!("it has no {key}"),
                },
            })
            .collect()
    }
}

impl Hint {
    fn holds(&self, disk: &Disk, key: &str) -> bool {
        match self {
            Self::Rotational(wanted) => disk.rotational == *wanted,
            Self::Size(wanted) => wanted.number(disk.size >> 30),
            Self::Text(wanted) => text_of(disk, key).is_some_and(|text| wanted.text(text)),
        }
    }
}

/// A person's hints in Ironic's words, where a value begins with its operator; `None`: they say nothing.
pub fn root_device(hints: &RootDeviceHints) -> Option<Value> {
    let by_path = hints.device_name.starts_with("/dev/disk/by-path/");
    let name = if by_path { "by_path" } else { "name" };
    let texts = [
        (name, "s==", &hints.device_name),
        ("hctl", "s==", &hints.hctl),
        ("model", "<in>", &hints.model),
        ("vendor", "<in>", &hints.vendor),
        ("serial", "s==", &hints.serial_number),
        ("wwn", "s==", &hints.wwn),
        ("wwn_with_extension", "s==", &hints.wwn_with_extension),
        ("wwn_vendor_extension", "s==", &hints.wwn_vendor_extension),
    ];
    let mut all: Map<String, Value> = texts
        .into_iter()
        .filter(|(_, _, value)| !value.is_empty())
        .map(|(key, operator, value)| (key.to_owned(), json!(format!("{operator} {value}"))))
        .collect();
    if let Some(size) = hints.min_size_gigabytes {
        all.insert("size".to_owned(), json!(format!(">= {size}")));
    }
    if let Some(rotational) = hints.rotational {
        all.insert("rotational".to_owned(), json!(rotational.to_string()));
    }
    (!all.is_empty()).then_some(Value::Object(all))
}

/// The disk to install for any other Ironic: what the hints mean, else the smallest of at least 4 GiB; ties by name.
pub fn root_disk<'a>(disks: &'a [Disk], hints: Option<&Hints>) -> Option<&'a Disk> {
    let mut suitable: Vec<&Disk> = match hints {
        Some(hints) => disks.iter().filter(|d| hints.matches(d)).collect(),
        None => disks.iter().filter(|d| d.size >= SMALLEST).collect(),
    };
    if hints.is_some() {
        suitable.sort_by(|a, b| a.name.cmp(&b.name));
    } else {
        suitable.sort_by(|a, b| a.size.cmp(&b.size).then_with(|| a.name.cmp(&b.name)));
    }
    suitable.first().copied()
}

fn parse_one(key: &str, value: &Value) -> Result<Hint, String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => return Err(format!("{key}: expected text or a number")),
    };
    match key {
        "rotational" => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "t" | "y" => Ok(Hint::Rotational(true)),
            "false" | "0" | "no" | "off" | "f" | "n" => Ok(Hint::Rotational(false)),
            _ => Err(format!("rotational: {text} is neither true nor false")),
        },
        "size" => Match::parse(&text, Operator::Equal)
            .filter(Match::is_numeric)
            .map(Hint::Size)
            .ok_or_else(|| format!("size: {text} is not a number of GiB")),
        _ if TEXT_KEYS.contains(&key) => Match::parse(&normal(&text), Operator::Equal)
            .map(Hint::Text)
            .ok_or_else(|| format!("{key}: the value is empty")),
        _ => Err(format!(
            "{key} is not a hint; known are size, rotational, {}",
            TEXT_KEYS.join(", ")
        )),
    }
}

impl Match {
    fn parse(text: &str, default: Operator) -> Option<Self> {
        let parts = |word: &str| {
            let list: Vec<String> = text
                .split(word)
                .map(|p| p.trim().to_owned())
                .filter(|p| !p.is_empty())
                .collect();
            (!list.is_empty()).then_some(list)
        };
        if text.starts_with("<or>") {
            return parts("<or>").map(Self::Or);
        }
        if let Some(rest) = text.strip_prefix("<all-in>") {
            let list: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
            return (!list.is_empty()).then_some(Self::AllIn(list));
        }
        if let Some(rest) = text.strip_prefix("<in>") {
            return Some(Self::In(rest.trim().to_owned()));
        }
        let (operator, operand) = OPERATORS
            .iter()
            .find_map(|(word, operator)| Some((*operator, text.strip_prefix(word)?)))
            .unwrap_or((default, text));
        let operand = operand.trim();
        (!operand.is_empty()).then(|| Self::Compare(operator, operand.to_owned()))
    }

    fn is_numeric(&self) -> bool {
        let number = |text: &String| text.parse::<f64>().is_ok();
        match self {
            Self::Compare(_, operand) => number(operand),
            Self::Or(list) => list.iter().all(number),
            Self::AllIn(_) | Self::In(_) => false,
        }
    }

    fn text(&self, actual: &str) -> bool {
        let actual = normal(actual);
        match self {
            Self::Compare(operator, operand) => {
                operator.holds(actual.as_str().cmp(operand.as_str()))
            }
            Self::AllIn(list) => list.iter().all(|part| actual.contains(part)),
            Self::Or(list) => list.contains(&actual),
            Self::In(part) => actual.contains(part),
        }
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "disks are far smaller than 2^53 GiB"
    )]
    fn number(&self, actual: u64) -> bool {
        let actual = actual as f64;
        let order = |operand: &String| {
            operand
                .parse::<f64>()
                .ok()
                .and_then(|o| actual.partial_cmp(&o))
        };
        match self {
            Self::Compare(operator, operand) => order(operand).is_some_and(|o| operator.holds(o)),
            Self::Or(list) => list
                .iter()
                .any(|o| order(o) == Some(std::cmp::Ordering::Equal)),
            Self::AllIn(_) | Self::In(_) => false,
        }
    }
}

impl Operator {
    fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterEqual => order.is_ge(),
        }
    }
}

fn normal(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}

fn text_of<'a>(disk: &'a Disk, key: &str) -> Option<&'a str> {
    match key {
        "model" => Some(disk.model.as_str()),
        "name" => Some(disk.name.as_str()),
        "vendor" => disk.vendor.as_deref(),
        "serial" => disk.serial.as_deref(),
        "wwn" => disk.wwn.as_deref(),
        "wwn_with_extension" => disk.wwn_with_extension.as_deref(),
        "wwn_vendor_extension" => disk.wwn_vendor_extension.as_deref(),
        "hctl" => disk.hctl.as_deref(),
        "by_path" => disk.by_path.as_deref(),
        "tran" => disk.tran.as_deref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
