//! Loss of a link: its data in flight is sent over the others, except what the peer reports as
//! received.

use units::{ByteCount, Instant};

use super::LinkMembership;
use crate::links::LinkTurn;
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::SentContent;
use crate::session::{Session, SessionPath, SharedState};
use crate::wire::frame::{self, AckFrame, Frame};

/// Maximum size of an acknowledgement of another link, in bytes.
const MOST_REPORT: usize = 800;

/// Requests and reports that a path passes to the others.
struct LinkRequests {
    /// The path's own link.
    link: u8,
    /// The peer is to be asked about it.
    asks: bool,
    /// The links that the peer asks about, as a bit mask.
    asked: u8,
    /// The peer's report about a link, as an ACK frame.
    report: Option<(u64, Vec<u8>)>,
}

impl SessionPath {
    /// The time at which the link is doubted unless something is acknowledged, or for a doubted
    /// link the deadline of the peer's report. Its data in flight is then sent on the others, long
    /// before the link counts as in an outage.
    pub(in crate::session) fn link_doubt_timeout(&self) -> Option<Instant> {
        let membership = self.membership.as_ref()?;
        if membership.doubted || membership.other_links.is_none() {
            return membership.reroute_at;
        }
        // Beyond its budget the peer sends one ACK per quarter RTT.
        let held = ACK_DELAY.max(self.rtt.smoothed() / 4);
        let oldest = self.sender.sent.oldest_after_acked()?;
        self.is_reachable().then(|| oldest + self.rtt.probe_delay(held))
    }

    /// Doubts the link, or stops waiting for the peer's report about it.
    pub(in crate::session) fn on_link_doubt(&mut self, shared: &mut SharedState, now: Instant) {
        let in_flight = self.sender.sent.outstanding() as u64 * self.discovery.pmtu.size() as u64;
        let Some(membership) = &mut self.membership else { return };
        if !core::mem::replace(&mut membership.doubted, true) {
            membership.turn = LinkTurn::Nothing;
            self.probes.request();
            // Much of it may have arrived. Asking first pays if resending all of it takes longer
            // than the answer, a round trip on the quickest other link.
            let (rate, rtt) = membership.other_links.unwrap_or_default();
            if rate.time_to_send(ByteCount::new(in_flight)) > rtt {
                (membership.wants_report, membership.reroute_at) =
                    (true, Some(now + rtt + rtt / 2 + ACK_DELAY * 2));
                return;
            }
        }
        self.reroute_cargo(shared, now, None);
    }

    /// Sends the data in flight on this link over the others, except what `ack` reports as
    /// received.
    fn reroute_cargo(&mut self, shared: &mut SharedState, now: Instant, ack: Option<&AckFrame>) {
        if let Some(membership) = &mut self.membership {
            (membership.reroute_at, membership.wants_report) = (None, false);
        }
        let [arrived, rest] = self.sender.sent.outstanding_contents(ack);
        for cargo in arrived {
            if let SentContent::Stream { stream, range, fin, .. } = cargo {
                shared.streams.on_acknowledged(now, stream, range, fin);
            }
        }
        rest.into_iter().for_each(|cargo| self.resend(shared, now, cargo));
    }

    /// Handles LINK ASKS: the peer wants an acknowledgement of another link's packets.
    pub(in crate::session) fn on_link_asks(&mut self, link: u64) {
        let bit = u32::try_from(link).ok().and_then(|link| 1u8.checked_shl(link));
        if let (Some(membership), Some(bit)) = (&mut self.membership, bit) {
            membership.report_requests |= bit;
        }
    }

    /// Handles LINK ACK: an acknowledgement of another link's packets.
    pub(in crate::session) fn on_link_ack(&mut self, link: u64, ack: &AckFrame) {
        if let Some(membership) = &mut self.membership {
            // Encoded again, because `ack` borrows from the packet that is being processed.
            let mut bytes = Vec::new();
            Frame::Ack(ack.clone()).write(&mut bytes, false);
            membership.peer_report = Some((link, bytes));
        }
    }

    /// Returns whether the peer's report about this doubted link can still be used.
    fn waits_for_report(&self) -> bool {
        // The link may work again, and then the report is not needed any more.
        self.membership.as_ref().is_some_and(|membership| membership.reroute_at.is_some())
    }

    /// Encodes a report about this link's packets, to be sent on another link.
    fn write_report(&mut self, now: Instant, link: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (ranges, _, _) = self.receiver.received.report(now, false);
        frame::write_link_ack(&mut bytes, link, ranges, MOST_REPORT);
        bytes
    }

    /// Sends the data in flight on this link, which is removed, over the others.
    pub(super) fn abandon_cargo(&mut self, shared: &mut SharedState, now: Instant) {
        let [_, rest] = self.sender.sent.outstanding_contents(None);
        rest.into_iter().for_each(|cargo| self.resend(shared, now, cargo));
    }

    /// Ends the doubt of this link, after an acknowledgement of new packets.
    pub(in crate::session) fn clear_link_doubt(&mut self) {
        if let Some(membership) = &mut self.membership {
            (membership.doubted, membership.has_acknowledged) = (false, true);
            (membership.reroute_at, membership.wants_report) = (None, false);
        }
    }
}

impl Session {
    /// Sends and answers questions about other links, and applies the peer's reports.
    pub(super) fn exchange_reports(&mut self, now: Instant) {
        let working = self.paths.iter().enumerate().filter(|(_, path)| path.is_working());
        let quickest = working.min_by_key(|(_, path)| path.rtt.smoothed());
        let quickest = quickest.map(|(number, _)| number);
        for number in 0..self.paths.len() {
            let Some(membership) = &mut self.paths[number].membership else { continue };
            let requests = membership.take_requests();
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
        if let Some(membership) = &mut self.paths[asker].membership {
            membership.reports = reports;
        }
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

impl LinkMembership {
    fn take_requests(&mut self) -> LinkRequests {
        LinkRequests {
            link: self.link,
            asks: core::mem::take(&mut self.wants_report),
            asked: core::mem::take(&mut self.report_requests),
            report: self.peer_report.take(),
        }
    }

    /// Writes the reports about other links. Those that do not fit are dropped: without a report
    /// the peer resends everything.
    pub(in crate::session) fn write_reports(&mut self, out: &mut Vec<u8>, end: usize) {
        for report in self.reports.drain(..) {
            if out.len() + report.len() <= end {
                out.extend_from_slice(&report);
            }
        }
    }
}
