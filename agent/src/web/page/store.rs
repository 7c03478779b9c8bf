//! The box's store: what is there, how large it is, and who uses it.

use firstlight_api::{
    artifact::{Artifact, ArtifactState},
    status::Problem,
};
use maud::{Markup, html};

use super::{
    View,
    parts::{Size, Tone, mark, nothing_yet, problem},
};

pub fn render(view: View<'_>) -> Markup {
    let artifacts = &view.site.artifacts;
    let bytes = artifacts.iter().map(|artifact| artifact.spec.size).sum();
    html! {
        @if artifacts.is_empty() {
            (nothing_yet("Store", "Nothing was uploaded.", &html! {
                code { "firstlight push FILE" } " puts images, packages, containers and charts here."
            }))
        } @else {
            section.card {
                h2 { "Uploads" }
                p.dim { (artifacts.len()) " uploads, " (Size(bytes)) }
                ol.steps { @for one in artifacts { (artifact(one)) } }
            }
        }
    }
}

fn artifact(artifact: &Artifact) -> Markup {
    let spec = &artifact.spec;
    let tone = match artifact.state {
        ArtifactState::Uploading { .. } | ArtifactState::Publishing => Tone::Busy,
        ArtifactState::Ready => Tone::Good,
        ArtifactState::Failed { .. } => Tone::Bad,
    };
    html! {
        li id={ "artifact-" (artifact.id) } {
            (mark(tone))
            span {
                (spec.name) " " (spec.version) " " span.dim { (spec.kind) }
                @if !artifact.used_by.is_empty() { br; span.dim { "used by " (artifact.used_by.join(", ")) } }
            }
            span.time {
                @match &artifact.state {
                    ArtifactState::Uploading { offset } => { (Size(*offset)) " of " (Size(spec.size)) }
                    ArtifactState::Publishing => "being put in place",
                    ArtifactState::Ready => (Size(spec.size)),
                    ArtifactState::Failed { .. } => { "failed, " (Size(spec.size)) }
                }
            }
            @if let ArtifactState::Failed { reason, next } = &artifact.state {
                (problem(&Problem { what: reason.clone(), next: next.clone() }, Tone::Bad))
            }
        }
    }
}
