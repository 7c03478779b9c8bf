//! Public SSH keys in the settings of a site.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::UsageError;

const LIST: &str = "sshKeys:";

/// Out of files like `~/.ssh/id_ed25519.pub`, a key a line.
pub fn load(files: &[PathBuf]) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for path in files {
        let name = path.display();
        let text =
            fs::read_to_string(path).map_err(|error| UsageError(format!("{name}: {error}")))?;
        if text.contains("PRIVATE KEY") {
            let wrong =
                format!("{name}: this is a private key; name its public half, like {name}.pub");
            return Err(UsageError(wrong).into());
        }
        let found = text.lines().map(str::trim);
        let found = found.filter(|line| !line.is_empty() && !line.starts_with('#'));
        keys.extend(found.map(str::to_owned));
    }
    Ok(keys)
}

/// `None`: the list is there, and not one that lines can be put into.
pub fn with_keys(text: &str, keys: &[&String]) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| line.starts_with(LIST));
    let at = match at {
        None => {
            lines.extend([String::new(), LIST.to_owned()]);
            lines.len()
        }
        Some(at) => {
            let rest = lines[at][LIST.len()..].trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                return None;
            }
            at + 1
        }
    };
    let item = lines[at..]
        .iter()
        .find(|line| line.trim_start().starts_with("- "));
    let indent = item.map_or(2, |line| line.len() - line.trim_start().len());
    // A comment may have what YAML takes for its own.
    let quoted = |key: &&String| {
        let key = key.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{:indent$}- \"{key}\"", "")
    };
    let new: Vec<String> = keys.iter().map(quoted).collect();
    lines.splice(at..at, new);
    Some(lines.join("\n") + "\n")
}
