//! Changes of files as kubeadm writes them, line by line, so that everything else in them stays as it is. `None`: they are not such files. Pure.

use firstlight_api::authorities::replace_behind;

/// A pod's manifest with this label.
pub fn with_label(manifest: &str, name: &str, value: &str) -> Option<String> {
    let line = format!("    {name}: {value}");
    let mut lines: Vec<&str> = manifest.lines().collect();
    let labels = lines.iter().position(|line| *line == "  labels:")?;
    let spec = lines.iter().position(|line| *line == "spec:")?;
    if labels > spec {
        return None;
    }
    let own = format!("    {name}: ");
    lines.retain(|line| !line.starts_with(&own));
    lines.insert(labels + 1, &line);
    Some(lines.join("\n") + "\n")
}

/// The manager's manifest, signing with `PAIR.crt` and `PAIR.key`.
pub fn with_signer(manifest: &str, pair: &str) -> Option<String> {
    let flags = [("cert", "crt"), ("key", "key")];
    let mut text = manifest.to_owned();
    for (kind, end) in flags {
        let flag = format!("--cluster-signing-{kind}-file=");
        text = replace_behind(&text, &flag, &format!("{pair}.{end}"))?;
    }
    Some(text)
}
