//! Loss of a link: its data in flight is sent over the others, except what the peer reports as
//! received.

use units::{ByteCount, Instant};

use super::membership::LinkMembership;
use super::{SessionPath, SharedState};
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::SentContent;
use crate::session::links::division::LinkTurn;
use crate::wire::frame::{self, AckFrame, Frame};

/// Maximum size of an acknowledgement of another link, in bytes.
const MOST_REPORT: usize = 800;

/// Requests and reports that a path passes to the others.
pub(in crate::session) struct LinkRequests {
    /// The path's own link.
    pub(in crate::session) link: u8,
    /// The peer is to be asked about it.
    pub(in crate::session) asks: bool,
    /// The links that the peer asks about, as a bit mask.
    pub(in crate::session) asked: u8,
    /// The peer's report about a link, as an ACK frame.
    pub(in crate::session) report: Option<(u64, Vec<u8>)>,
}

impl SessionPath {
    /// The time at which the link is doubted unless something is acknowledged, or for a doubted
    /// link the deadline of the peer's report. Its data in flight is then sent on the others, long
    /// before the link counts as in an outage.
    pub(super) fn link_doubt_timeout(&self) -> Option<Instant> {
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
    pub(super) fn on_link_doubt(&mut self, shared: &mut SharedState, now: Instant) {
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
    pub(in crate::session) fn reroute_cargo(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        ack: Option<&AckFrame>,
    ) {
        let Some(membership) = &mut self.membership else { return };
        (membership.reroute_at, membership.wants_report) = (None, false);
        let from = core::mem::replace(&mut membership.rerouted, self.sender.sent.next_number());
        let [arrived, rest] = self.sender.sent.outstanding_contents(from, ack);
        for cargo in arrived {
            if let SentContent::Stream { stream, range, fin, .. } = cargo {
                shared.streams.on_acknowledged(now, stream, range, fin);
            }
        }
        rest.into_iter().for_each(|cargo| self.resend(shared, now, cargo));
    }

    /// Sends what is in flight on this link over the others if this one does not work and they do. A doubt in
    /// time has done so already, unless no other link worked then, or the outage began before the doubt.
    pub(in crate::session) fn release_stranded(&mut self, shared: &mut SharedState, now: Instant) {
        let Some(membership) = &self.membership else { return };
        let is_new = membership.rerouted < self.sender.sent.next_number();
        let waits = membership.reroute_at.is_some();
        if is_new && !waits && membership.other_links.is_some() && !self.is_working() {
            self.reroute_cargo(shared, now, None);
        }
    }

    /// Handles LINK ASKS: the peer wants an acknowledgement of another link's packets.
    pub(super) fn on_link_asks(&mut self, link: u64) {
        let bit = u32::try_from(link).ok().and_then(|link| 1u8.checked_shl(link));
        if let (Some(membership), Some(bit)) = (&mut self.membership, bit) {
            membership.report_requests |= bit;
        }
    }

    /// Handles LINK ACK: an acknowledgement of another link's packets.
    pub(super) fn on_link_ack(&mut self, link: u64, ack: &AckFrame) {
        if let Some(membership) = &mut self.membership {
            // Encoded again, because `ack` borrows from the packet that is being processed.
            let mut bytes = Vec::new();
            Frame::Ack(ack.clone()).write(&mut bytes, false);
            membership.peer_report = Some((link, bytes));
        }
    }

    /// Takes the requests and reports that are to be passed to the other paths.
    pub(in crate::session) fn take_requests(&mut self) -> Option<LinkRequests> {
        let membership = self.membership.as_mut()?;
        Some(LinkRequests {
            link: membership.link,
            asks: core::mem::take(&mut membership.wants_report),
            asked: core::mem::take(&mut membership.report_requests),
            report: membership.peer_report.take(),
        })
    }

    /// Sets the encoded reports about other links to be sent over this one.
    pub(in crate::session) fn set_reports(&mut self, reports: Vec<Vec<u8>>) {
        if let Some(membership) = &mut self.membership {
            membership.reports = reports;
        }
    }

    /// Returns whether the peer's report about this doubted link can still be used.
    pub(in crate::session) fn waits_for_report(&self) -> bool {
        // The link may work again, and then the report is not needed any more.
        self.membership.as_ref().is_some_and(|membership| membership.reroute_at.is_some())
    }

    /// Encodes a report about this link's packets, to be sent on another link.
    pub(in crate::session) fn write_report(&mut self, now: Instant, link: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (ranges, _, _) = self.receiver.received.report(now, false);
        frame::write_link_ack(&mut bytes, link, ranges, MOST_REPORT);
        bytes
    }

    /// Sends the data in flight on this link, which is removed, over the others.
    pub(in crate::session) fn abandon_cargo(&mut self, shared: &mut SharedState, now: Instant) {
        let from = self.membership.as_ref().map_or(0, |membership| membership.rerouted);
        let [_, rest] = self.sender.sent.outstanding_contents(from, None);
        rest.into_iter().for_each(|cargo| self.resend(shared, now, cargo));
    }

    /// Ends the doubt of this link, after an acknowledgement of new packets.
    pub(super) fn clear_link_doubt(&mut self) {
        if let Some(membership) = &mut self.membership {
            (membership.doubted, membership.has_acknowledged) = (false, true);
            (membership.reroute_at, membership.wants_report) = (None, false);
        }
    }
}

impl LinkMembership {
    /// Writes the reports about other links. Those that do not fit are dropped: without a report
    /// the peer resends everything.
    pub(super) fn write_reports(&mut self, out: &mut Vec<u8>, end: usize) {
        for report in self.reports.drain(..) {
            if out.len() + report.len() <= end {
                out.extend_from_slice(&report);
            }
        }
    }
}
