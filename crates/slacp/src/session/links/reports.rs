//! Questions and reports about a link's packets, which travel over another link.

use units::Instant;

use crate::session::{Session, SessionPath};
use crate::wire::frame::{self, Frame};

impl Session {
    /// Sends and answers questions about other links, and applies the peer's reports.
    pub(super) fn exchange_reports(&mut self, now: Instant) {
        let working = self.paths.iter().enumerate().filter(|(_, path)| path.is_working());
        let quickest = working.min_by_key(|(_, path)| path.rtt.smoothed());
        let quickest = quickest.map(|(number, _)| number);
        for number in 0..self.paths.len() {
            let Some(requests) = self.paths[number].take_requests() else { continue };
            if let Some(other) = quickest.filter(|other| requests.asks && *other != number) {
                let question = Frame::LinkAsks(requests.link.into());
                self.paths[other].send_own(&mut self.shared, question);
            }
            if requests.asked != 0 {
                self.answer_report_requests(now, number, requests.asked);
            }
            if let Some((link, bytes)) = requests.report {
                self.apply_peer_report(now, link, &bytes);
            }
        }
    }

    /// Queues reports about the links in the bit mask `asked`, to be sent on the path at position
    /// `asker`.
    fn answer_report_requests(&mut self, now: Instant, asker: usize, asked: u8) {
        let report = |path: &mut SessionPath| {
            let link = path.link().filter(|link| asked & 1 << link != 0)?;
            Some(path.write_report(now, link))
        };
        let reports = self.paths.iter_mut().filter_map(report).collect();
        // Replaces reports that were not sent yet: only the newest counts.
        self.paths[asker].set_reports(reports);
    }

    /// Applies the peer's report about a link.
    fn apply_peer_report(&mut self, now: Instant, link: u64, mut bytes: &[u8]) {
        let path = self.paths.iter_mut().find(|path| path.link().map(u64::from) == Some(link));
        let Ok(Some(Frame::Ack(ack))) = frame::read(&mut bytes) else { return };
        if let Some(path) = path.filter(|path| path.waits_for_report()) {
            path.reroute_cargo(&mut self.shared, now, Some(&ack));
        }
    }
}
