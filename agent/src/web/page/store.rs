//! The box's store on the page: what is there, how large it is, and who uses it.

use std::fmt::{self, Display, Write as _};

use firstlight_api::artifact::{Artifact, ArtifactState};

use super::{Text, write_problem};

pub fn write(out: &mut String, artifacts: &[Artifact]) -> fmt::Result {
    if artifacts.is_empty() {
        return Ok(());
    }
    let bytes = artifacts.iter().map(|artifact| artifact.spec.size).sum();
    writeln!(
        out,
        "<section class=\"card\"><h2>Store</h2>\n<p class=\"dim\" style=\"margin:0\">{} uploads, {}</p>\n<ol class=\"steps\">",
        artifacts.len(),
        Size(bytes)
    )?;
    artifacts
        .iter()
        .try_for_each(|artifact| write_artifact(out, artifact))?;
    out.write_str("</ol>\n</section>\n")
}

fn write_artifact(out: &mut String, artifact: &Artifact) -> fmt::Result {
    let spec = &artifact.spec;
    let (class, mark) = match artifact.state {
        ArtifactState::Uploading { .. } => ("busy", "▸"),
        ArtifactState::Publishing => ("busy", "●"),
        ArtifactState::Ready => ("good", "✓"),
        ArtifactState::Failed { .. } => ("bad", "✗"),
    };
    write!(
        out,
        "<li><span class=\"mark {class}\">{mark}</span><span>{} {} <span class=\"dim\">{}</span>",
        Text(&spec.name),
        Text(&spec.version),
        spec.kind
    )?;
    if !artifact.used_by.is_empty() {
        write!(
            out,
            "<br><span class=\"dim\">used by {}</span>",
            Text(&artifact.used_by.join(", "))
        )?;
    }
    write!(out, "</span><span class=\"time\">")?;
    match &artifact.state {
        ArtifactState::Uploading { offset } => {
            write!(out, "{} of {}", Size(*offset), Size(spec.size))?;
        }
        ArtifactState::Publishing => out.write_str("being put in place")?,
        ArtifactState::Ready | ArtifactState::Failed { .. } => write!(out, "{}", Size(spec.size))?,
    }
    out.write_str("</span>")?;
    if let ArtifactState::Failed { reason, next } = &artifact.state {
        let problem = firstlight_api::status::Problem {
            what: reason.clone(),
            next: next.clone(),
        };
        write_problem(out, &problem, "bad")?;
    }
    out.write_str("</li>\n")
}

/// Bytes, for people.
struct Size(u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000_000 => write!(f, "{} kB", self.0.div_ceil(1000)),
            1_000_000..10_000_000_000 => write!(f, "{} MB", self.0 / 1_000_000),
            bytes => write!(f, "{} GB", bytes / 1_000_000_000),
        }
    }
}
