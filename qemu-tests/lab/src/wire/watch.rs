//! Looks at every frame once: leaks, a foreign user of our address, who answers by DHCP, requests by TFTP, the capture file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::frame::{self, Mac, Site};
use super::pcap::Capture;

/// A runaway guest must not fill the memory with different texts.
const DISTINCT_LEAKS: usize = 100;
/// Nor with different clients.
const CLIENTS: usize = 100;

/// What was seen on the wire since it was laid.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Frames that left or entered the site, by their text, with how often they came. Empty is what tests want.
    pub leaks: BTreeMap<String, u64>,
    pub frames: u64,
    pub bytes: u64,
    /// Frames lost because a machine did not take them fast enough.
    pub dropped: u64,
    /// Requests to TFTP servers.
    pub tftp_requests: u64,
    /// When a DHCP server first answered.
    pub first_dhcp_answer: Option<Instant>,
    /// Which DHCP servers answered whom.
    pub dhcp_answers: BTreeMap<Mac, BTreeSet<Ipv4Addr>>,
}

pub(super) struct Watch {
    pub site: Site,
    pub host_mac: Mac,
    pub host_address: Ipv4Addr,
    pub capture: Option<Capture>,
    pub report: Arc<Mutex<Report>>,
}

impl Watch {
    pub fn see(&mut self, bytes: &[u8]) {
        let capturing = self
            .capture
            .as_mut()
            .map_or(Ok(()), |capture| capture.frame(bytes));
        let fault = frame::leak(bytes, &self.site).or_else(|| self.conflict(bytes));
        let mut report = self.report();
        report.frames += 1;
        report.bytes += bytes.len() as u64;
        report.tftp_requests += u64::from(frame::is_tftp_request(bytes));
        if let Some((client, server)) = frame::dhcp_answer(bytes) {
            report.first_dhcp_answer.get_or_insert_with(Instant::now);
            let is_known = report.dhcp_answers.contains_key(&client);
            if is_known || report.dhcp_answers.len() < CLIENTS {
                report
                    .dhcp_answers
                    .entry(client)
                    .or_default()
                    .insert(server);
            }
        }
        if let Some(text) = fault
            && (report.leaks.len() < DISTINCT_LEAKS || report.leaks.contains_key(&text))
        {
            *report.leaks.entry(text).or_default() += 1;
        }
        drop(report);
        if capturing.is_err() {
            self.capture = None;
        }
    }

    pub fn dropped(&self) {
        self.report().dropped += 1;
    }

    /// What the capture holds back goes to its file.
    pub fn flush(&mut self) {
        if self
            .capture
            .as_mut()
            .is_some_and(|capture| capture.flush().is_err())
        {
            self.capture = None;
        }
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn conflict(&self, bytes: &[u8]) -> Option<String> {
        let (_, from) = frame::addresses(bytes)?;
        let taken = frame::arp_sender(bytes)? == self.host_address && from != self.host_mac;
        taken.then(|| {
            format!(
                "{} uses {}, the address of the test host",
                frame::format_mac(from),
                self.host_address
            )
        })
    }
}
