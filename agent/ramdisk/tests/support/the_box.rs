//! The box's HTTP server: CA, reports, progress, and an image whose download breaks as told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use firstlight_api::report::{Directive, Phase, Progress, Report};

use super::http::{Request, Response, serve};

/// Answers a report.
pub type Decide = std::boxed::Box<dyn Fn(&Report) -> Directive + Send>;

#[derive(Default)]
pub struct Box {
    pub ca_pem: String,
    pub image: Mutex<Vec<u8>>,
    /// For the next connections to the image: bytes until it breaks; 0 answers nothing at all.
    pub cuts: Mutex<VecDeque<usize>>,
    pub reports: Mutex<Vec<Report>>,
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
                let report: Report = serde_json::from_slice(&request.body).unwrap();
                let directive = self
                    .decide
                    .lock()
                    .unwrap()
                    .as_ref()
                    .map_or(Directive::Lookup, |decide| decide(&report));
                self.reports.lock().unwrap().push(report);
                Some(Response::json(
                    200,
                    &serde_json::to_value(directive).unwrap(),
                ))
            }
            "/api/v1/ramdisk/progress" => {
                let progress: Progress = serde_json::from_slice(&request.body).unwrap();
                self.phases.lock().unwrap().push(progress.phase);
                Some(Response::new(204, ""))
            }
            _ => self.image(request),
        }
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
