//! Pushes to the box's registry and deletions there, by the distribution protocol, on loopback.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use firstlight_api::bounded;
use firstlight_artifacts::container::{Manifest, Range, digest_of};
use http::{HeaderMap, Method, StatusCode, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::net::TcpStream;

use super::{publish_error::PublishError, pushed::Tagged, room::Room};
use crate::pieces::pieces;

/// As much as registries take as a manifest.
const LARGEST_ANSWER: usize = 4 << 20;
/// For an answer; it may have to hash what it was sent.
const TIME: Duration = Duration::from_mins(1);
/// Bytes a second that it takes at least, on a worn stick.
const LEAST_RATE: u64 = 512 * 1024;
const DIGEST: &str = "docker-content-digest";
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// One blob, and where its bytes are.
#[derive(Clone, Debug)]
pub struct Blob {
    pub digest: String,
    pub size: u64,
    pub source: Source,
}

#[derive(Clone, Debug)]
pub enum Source {
    Part(PathBuf, Range),
    Memory(Bytes),
}

impl Blob {
    pub fn part(path: PathBuf, digest: String, range: Range) -> Self {
        Self {
            digest,
            size: range.size,
            source: Source::Part(path, range),
        }
    }

    pub fn memory(bytes: Vec<u8>) -> Self {
        Self {
            digest: digest_of(&bytes),
            size: bytes.len() as u64,
            source: Source::Memory(bytes.into()),
        }
    }
}

/// Everything of one image or chart; of the manifests the last is called `tag`.
#[derive(Clone, Debug)]
pub struct Push {
    pub repository: String,
    pub tag: String,
    pub blobs: Vec<Blob>,
    pub manifests: Vec<Manifest>,
}

impl Push {
    /// As it is noted.
    pub fn tagged(&self) -> Tagged {
        let digests = self.manifests.iter().map(|it| it.digest.clone());
        Tagged {
            repository: self.repository.clone(),
            tag: self.tag.clone(),
            manifests: digests.collect(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Registry(pub SocketAddr);

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: Bytes,
}

#[derive(Default, Deserialize)]
struct Tags {
    /// Null where there is none.
    tags: Option<Vec<String>>,
}

/// Of an image, or of several for as many machines.
#[derive(Default, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

impl Registry {
    /// May be repeated at any point: what is there already is not sent again.
    pub async fn push(self, push: &Push, room: &Room) -> Result<(), PublishError> {
        let base = format!("/v2/{}", push.repository);
        for blob in &push.blobs {
            self.push_blob(&base, blob, room).await?;
        }
        let last = push.manifests.len().saturating_sub(1);
        for (at, manifest) in push.manifests.iter().enumerate() {
            let name = if at == last {
                &push.tag
            } else {
                &manifest.digest
            };
            let answer = self
                .ask(
                    Method::PUT,
                    &format!("{base}/manifests/{name}"),
                    Some(&manifest.media_type),
                    Bytes::from(manifest.content.clone()).into(),
                )
                .await?;
            answer.expect(StatusCode::CREATED, "the manifest")?;
        }
        Ok(())
    }

    /// The digest of what is called so.
    pub async fn tagged(self, repository: &str, tag: &str) -> Result<Option<String>, PublishError> {
        let place = format!("/v2/{repository}/manifests/{tag}");
        let answer = self
            .ask(Method::HEAD, &place, None, Content::empty())
            .await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        answer.expect(StatusCode::OK, "a question")?;
        Ok(answer.digest())
    }

    /// Takes the tag and its manifests out, but what another tag needs; may be repeated at any point. Layers that nothing needs
    /// then go with the next collection of garbage (`manifests/registry.yaml`).
    pub async fn remove(self, pushed: &Tagged) -> Result<(), PublishError> {
        let base = format!("/v2/{}", pushed.repository);
        // Whoever pushed over it since keeps it.
        if self.tagged(&pushed.repository, &pushed.tag).await?.as_ref() == pushed.digest() {
            self.delete(&format!("{base}/manifests/{}", pushed.tag))
                .await?;
        }
        let needed = self.needed(&base).await?;
        let unneeded = |digest: &&String| !needed.contains(*digest);
        for digest in pushed.manifests.iter().rev().filter(unneeded) {
            self.delete(&format!("{base}/manifests/{digest}")).await?;
        }
        Ok(())
    }

    /// Digests of all manifests behind the tags of a repository.
    async fn needed(self, base: &str) -> Result<BTreeSet<String>, PublishError> {
        let place = format!("{base}/tags/list");
        let answer = self
            .ask(Method::GET, &place, None, Content::empty())
            .await?;
        let listed: Tags = answer.read(&place)?;
        let mut needed = BTreeSet::new();
        for tag in listed.tags.unwrap_or_default() {
            let place = format!("{base}/manifests/{tag}");
            let answer = self
                .ask(Method::GET, &place, None, Content::empty())
                .await?;
            let index: Index = answer.read(&place)?;
            needed.extend(index.manifests.into_iter().map(|one| one.digest));
            needed.extend(answer.digest());
        }
        Ok(needed)
    }

    async fn delete(self, path: &str) -> Result<(), PublishError> {
        let answer = self
            .ask(Method::DELETE, path, None, Content::empty())
            .await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        answer.expect(StatusCode::ACCEPTED, "a deletion")
    }

    async fn push_blob(self, base: &str, blob: &Blob, room: &Room) -> Result<(), PublishError> {
        let place = format!("{base}/blobs/{}", blob.digest);
        let there = self
            .ask(Method::HEAD, &place, None, Content::empty())
            .await?;
        if there.status == StatusCode::OK {
            return Ok(());
        }
        let admitted = room.admit(blob.size);
        if let Err(left) = admitted.map_err(|error| PublishError::later(error.to_string()))? {
            return Err(PublishError::no_room("a layer in the registry", left));
        }
        let begun = self
            .ask(
                Method::POST,
                &format!("{base}/blobs/uploads/"),
                None,
                Content::empty(),
            )
            .await?;
        begun.expect(StatusCode::ACCEPTED, "an upload")?;
        let location = begun
            .headers
            .get(header::LOCATION)
            .and_then(|place| place.to_str().ok());
        let location = location.and_then(|place| place.parse::<http::Uri>().ok());
        let place = location.as_ref().and_then(http::Uri::path_and_query);
        let place = place
            .ok_or_else(|| PublishError::refused("the registry names no place for an upload"))?;
        let sent = self.send_blob(place, blob).await;
        if sent.is_err() {
            // What the registry has of it would lie there until it purges by itself (`manifests/registry.yaml`). The error says
            // more than one from here.
            let cancelled = self.ask(Method::DELETE, place.as_str(), None, Content::empty());
            drop(cancelled.await);
        }
        sent
    }

    async fn send_blob(self, place: &PathAndQuery, blob: &Blob) -> Result<(), PublishError> {
        let joint = if place.query().is_some() { '&' } else { '?' };
        let place = format!("{place}{joint}digest={}", blob.digest);
        let content = match &blob.source {
            Source::Memory(bytes) => bytes.clone().into(),
            Source::Part(path, range) => part(path, *range).await?,
        };
        let done = self
            .ask(
                Method::PUT,
                &place,
                Some("application/octet-stream"),
                content,
            )
            .await?;
        done.expect(StatusCode::CREATED, "a layer")
    }

    /// A registry that does not answer is given up, one that takes bytes slowly later than one that has none to take.
    async fn ask(
        self,
        method: Method,
        path: &str,
        kind: Option<&str>,
        content: Content,
    ) -> Result<Answer, PublishError> {
        let time = TIME + Duration::from_secs(content.size / LEAST_RATE);
        let answer = self.ask_patiently(method, path, kind, content);
        let answer = tokio::time::timeout(time, answer).await;
        answer.map_err(|_| PublishError::later("the box's registry does not answer in time"))?
    }

    async fn ask_patiently(
        self,
        method: Method,
        path: &str,
        kind: Option<&str>,
        content: Content,
    ) -> Result<Answer, PublishError> {
        let away = |error: &dyn std::fmt::Display| {
            PublishError::later(format!("the box's registry does not answer: {error}"))
        };
        let stream = TcpStream::connect(self.0)
            .await
            .map_err(|error| away(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| away(&error))?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.0.to_string())
            .header(header::ACCEPT, MANIFESTS)
            .header(header::CONTENT_LENGTH, content.size);
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let request = request.body(content.body).map_err(|error| {
            PublishError::refused(&format!("no request can be made of {path}: {error}"))
        })?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| away(&error))?;
        let (head, body) = response.into_parts();
        let text = Limited::new(body, LARGEST_ANSWER).collect().await;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            text: text.map_err(|error| away(&error))?.to_bytes(),
        })
    }
}

impl Answer {
    /// What is not there reads as empty.
    fn read<T: Default + DeserializeOwned>(&self, path: &str) -> Result<T, PublishError> {
        if self.status == StatusCode::NOT_FOUND {
            return Ok(T::default());
        }
        self.expect(StatusCode::OK, "a question")?;
        serde_json::from_slice(&self.text).map_err(|error| {
            PublishError::later(format!("the registry's answer to {path}: {error}"))
        })
    }

    /// Of the manifest that was asked for.
    fn digest(&self) -> Option<String> {
        let digest = self.headers.get(DIGEST)?;
        Some(digest.to_str().ok()?.to_owned())
    }

    fn expect(&self, status: StatusCode, what: &str) -> Result<(), PublishError> {
        if self.status == status {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&self.text);
        let sentence = format!(
            "the registry did not take {what}: {} {}",
            self.status,
            bounded::sentence(said.trim())
        );
        Err(if self.status.is_server_error() {
            PublishError::later(sentence)
        } else {
            PublishError::refused(&sentence)
        })
    }
}

struct Content {
    size: u64,
    body: Body,
}

impl Content {
    fn empty() -> Self {
        Bytes::new().into()
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self {
            size: bytes.len() as u64,
            body: Full::new(bytes)
                .map_err(|never| match never {})
                .boxed_unsync(),
        }
    }
}

async fn part(path: &Path, range: Range) -> Result<Content, PublishError> {
    let file = tokio::fs::File::open(path).await;
    let file = file.map_err(|error| PublishError::unreadable(path, &error))?;
    let pieces = pieces(file.into_std().await, range.offset, range.size);
    Ok(Content {
        size: range.size,
        body: BodyExt::boxed_unsync(StreamBody::new(pieces)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Its manifests are what people push.
        #[test]
        fn whatever_the_registry_answers_is_read_or_a_short_reason(
            status in 200..600_u16,
            text in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                (".{0,8}", 0..2000_usize).prop_map(|(word, times)| word.repeat(times).into_bytes()),
                "(null|1|\\[(\"a\"|1|null)\\])".prop_map(|tags| format!("{{\"tags\": {tags}, \"manifests\": {tags}}}").into_bytes()),
            ],
            header in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let status = StatusCode::from_u16(status).expect("three digits");
            let value = header::HeaderValue::from_bytes(&header);
            let headers = value.ok().map(|value| (header::HeaderName::from_static(DIGEST), value));
            let answer = Answer { status, headers: headers.into_iter().collect(), text: text.into() };
            if let Some(digest) = answer.digest() {
                prop_assert_eq!(digest.as_bytes(), header);
            }
            let troubles = [
                answer.read::<Tags>("/v2/a/tags/list").err(),
                answer.read::<Index>("/v2/a/manifests/b").err(),
                answer.expect(StatusCode::CREATED, "the manifest").err(),
            ];
            for trouble in troubles.into_iter().flatten() {
                let (PublishError::Later { reason, .. } | PublishError::Never { reason, .. }) = trouble;
                prop_assert!(reason.chars().count() < 1200 && !reason.contains(char::is_control), "{reason}");
            }
        }
    }
}
