//! The box's HTTP server: CA, reports, progress, and an image whose download breaks as told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use firstlight_api::report::{Directive, Fresh, Phase, Progress, Reply, Report};
use firstlight_api::signed;
use serde_json::Value;

use super::http::{Request, Response, serve};

/// Answers a report.
pub type Decide = std::boxed::Box<dyn Fn(&Report<Value>) -> Directive + Send>;

/// Ask Ironic for the node that it has.
pub fn lookup() -> Directive {
    Directive::Lookup {
        node: super::ironic::NODE.to_owned(),
    }
}

#[derive(Default)]
pub struct Box {
    pub ca_pem: String,
    pub image: Mutex<Vec<u8>>,
    /// For the next connections to the image: bytes until it breaks; 0 answers nothing at all.
    pub cuts: Mutex<VecDeque<usize>>,
    pub reports: Mutex<Vec<Report<Value>>>,
    /// Of the running agent; empty as long as the test does not care.
    pub session: Mutex<String>,
    /// Sequences of what was taken.
    pub sequences: Mutex<Vec<u64>>,
    /// Who signed the last post.
    pub key: Mutex<Option<signed::PublicKey>>,
    pub phases: Mutex<Vec<Phase>>,
    pub ranges: Mutex<Vec<String>>,
    /// What to answer to a report.
    pub decide: Mutex<Option<Decide>>,
}

impl Box {
    pub fn start(self: &Arc<Self>) -> u16 {
        let shared = Arc::clone(self);
        serve(None, move |request| shared.handle(&request))
    }

    fn handle(&self, request: &Request) -> Option<Response> {
        match request.target.as_str() {
            "/boot/ca.pem" => Some(Response::new(200, self.ca_pem.clone())),
            "/api/v1/ramdisk/report" => {
                let report: Report<Value> = serde_json::from_slice(&request.body).unwrap();
                if let Some(again) = self.check(request, &report.fresh) {
                    return Some(again);
                }
                let directive = self
                    .decide
                    .lock()
                    .unwrap()
                    .as_ref()
                    .map_or_else(lookup, |decide| decide(&report));
                self.reports.lock().unwrap().push(report);
                Some(self.reply(directive))
            }
            "/api/v1/ramdisk/progress" => {
                let progress: Progress = serde_json::from_slice(&request.body).unwrap();
                if let Some(again) = self.check(request, &progress.fresh) {
                    return Some(again);
                }
                self.phases.lock().unwrap().push(progress.phase);
                Some(Response::new(204, ""))
            }
            _ => self.image(request),
        }
    }

    fn reply(&self, directive: Directive) -> Response {
        let reply = Reply {
            session: self.session.lock().unwrap().clone(),
            directive,
        };
        Response::json(200, &serde_json::to_value(reply).unwrap())
    }

    /// Every post is signed; one of another session is asked for again.
    fn check(&self, request: &Request, fresh: &Fresh) -> Option<Response> {
        let key = request.header(signed::KEY_HEADER).unwrap();
        let key = signed::PublicKey::parse(key).unwrap();
        let signature = request.header(signed::SIGNATURE_HEADER).unwrap();
        let signature = signed::parse_signature(signature).unwrap();
        ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, key.as_bytes())
            .verify(&signed::message(&request.target, &request.body), &signature)
            .expect("a signature of path and body");
        if fresh.session != *self.session.lock().unwrap() {
            return Some(self.reply(Directive::Again));
        }
        *self.key.lock().unwrap() = Some(key);
        self.sequences.lock().unwrap().push(fresh.sequence);
        None
    }

    fn image(&self, request: &Request) -> Option<Response> {
        let image = self.image.lock().unwrap();
        let cut = self.cuts.lock().unwrap().pop_front();
        if cut == Some(0) {
            return None;
        }
        let mut response = match request.header("range") {
            Some(range) => {
                self.ranges.lock().unwrap().push(range.to_owned());
                assert_eq!(request.header("if-range"), Some("\"tag\""));
                let from: usize = range
                    .trim_start_matches("bytes=")
                    .trim_end_matches('-')
                    .parse()
                    .unwrap();
                let mut response = Response::new(206, &image[from..]);
                let place = format!("bytes {from}-{}/{}", image.len() - 1, image.len());
                response.headers.push(("content-range".into(), place));
                response
            }
            None => Response::new(200, image.clone()),
        };
        response.headers.push(("etag".into(), "\"tag\"".into()));
        if let Some(cut) = cut {
            response.body.truncate(cut);
        }
        Some(response)
    }
}
