//! Somebody who asks the API of several control planes by their address, ten times a second.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Cluster, ENDPOINT};
use crate::pods::curl;

const ASK: Duration = Duration::from_millis(100);

pub fn longest_silence(answers: &[Instant]) -> Option<Duration> {
    let pairs = answers.windows(2);
    pairs.map(|pair| pair[1].duration_since(pair[0])).max()
}

/// Asks for what etcd has to agree on, each time by a connection of its own, and waits for no answer before it asks again.
pub struct ApiVisitor {
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Vec<Instant>>>,
    asking: JoinHandle<()>,
}

impl ApiVisitor {
    pub fn begin(cluster: &Cluster, place: &Path) -> Result<Self> {
        for (field, file) in [
            ("users[0].user.client-certificate-data", "client.crt"),
            ("users[0].user.client-key-data", "client.key"),
            ("clusters[0].cluster.certificate-authority-data", "ca.crt"),
        ] {
            cluster.shell(&format!(
                "kubectl config view --raw -o 'jsonpath={{.{field}}}' | base64 -d >\"$HOME/{file}\""
            ))?;
        }
        let path = |name: &str| place.join(name).display().to_string();
        let words = [
            "--cacert".to_owned(),
            path("ca.crt"),
            "--cert".to_owned(),
            path("client.crt"),
            "--key".to_owned(),
            path("client.key"),
            format!("https://{ENDPOINT}:6443/api/v1/namespaces/default"),
        ];
        let stop = Arc::new(AtomicBool::new(false));
        let answers: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (told, heard) = (stop.clone(), answers.clone());
        let asking = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let (words, heard) = (words.clone(), heard.clone());
                thread::spawn(move || {
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    if curl(&words).is_ok() {
                        heard
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(Instant::now());
                    }
                });
                thread::sleep(ASK);
            }
        });
        Ok(Self {
            stop,
            answers,
            asking,
        })
    }

    /// When they came, in order.
    pub fn answers(&self) -> Vec<Instant> {
        let mut answers = self
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        answers.sort();
        answers
    }

    pub fn end(self) -> Vec<Instant> {
        self.stop.store(true, Ordering::Relaxed);
        let answers = self.answers();
        drop(self.asking.join());
        answers
    }
}
