//! Loss of a link: its data in flight is sent over the others, except what the peer reports as
//! received.

use units::{ByteCount, Instant};

use super::{LinkMembership, Session};
use crate::links::LinkTurn;
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::SentContent;
use crate::wire::frame::{self, AckFrame, Frame};

/// Maximum size of an acknowledgement of another link, in bytes.
const MOST_REPORT: usize = 800;

/// Requests and reports that a member passes to the others: its link number, whether the peer is to
/// be asked about it, the links that the peer asks about (bit mask), and the peer's report about
/// one.
type MemberRequests = (u8, bool, u8, Option<(u64, Vec<u8>)>);

impl Session {
    /// The time at which the link is doubted unless something is acknowledged, or for a doubted
    /// link the deadline of the peer's report. Its data in flight is then sent on the others, long
    /// before the link counts as in an outage.
    pub(in crate::session) fn link_doubt_timeout(&self) -> Option<Instant> {
        let seat = self.membership.as_ref()?;
        if seat.doubted || seat.other_links.is_none() {
            return seat.reroute_at;
        }
        // Beyond its budget the peer sends one ACK per quarter RTT.
        let held = ACK_DELAY.max(self.rtt.smoothed() / 4);
        let oldest = self.sender.sent.oldest_after_acked()?;
        self.is_reachable().then(|| oldest + self.rtt.probe_delay(held))
    }

    /// Doubts the link, or stops waiting for the peer's report about it.
    pub(in crate::session) fn on_link_doubt(&mut self, now: Instant) {
        let in_flight = self.sender.sent.outstanding() as u64 * self.path.pmtu.size() as u64;
        let Some(seat) = &mut self.membership else { return };
        if !core::mem::replace(&mut seat.doubted, true) {
            seat.turn = LinkTurn::Nothing;
            self.probes.request();
            // Much of it may have arrived. Asking first pays if resending all of it takes longer
            // than the answer, a round trip on the quickest other link.
            let (rate, rtt) = seat.other_links.unwrap_or_default();
            if rate.time_to_send(ByteCount::new(in_flight)) > rtt {
                (seat.wants_report, seat.reroute_at) =
                    (true, Some(now + rtt + rtt / 2 + ACK_DELAY * 2));
                return;
            }
        }
        self.reroute_cargo(now, None);
    }

    /// Sends the data in flight on this link over the others, except what `ack` reports as
    /// received.
    fn reroute_cargo(&mut self, now: Instant, ack: Option<&AckFrame>) {
        if let Some(seat) = &mut self.membership {
            (seat.reroute_at, seat.wants_report) = (None, false);
        }
        let [arrived, rest] = self.sender.sent.outstanding_contents(ack);
        for cargo in arrived {
            if let SentContent::Stream { stream, range, fin, .. } = cargo {
                self.streams.on_acknowledged(now, stream, range, fin);
            }
        }
        rest.into_iter().for_each(|cargo| self.resend(now, cargo));
    }

    /// Handles LINK ASKS: the peer wants an acknowledgement of another link's packets.
    pub(in crate::session) fn on_link_asks(&mut self, link: u64) {
        let bit = u32::try_from(link).ok().and_then(|link| 1u8.checked_shl(link));
        if let (Some(seat), Some(bit)) = (&mut self.membership, bit) {
            seat.report_requests |= bit;
        }
    }

    /// Handles LINK ACK: an acknowledgement of another link's packets.
    pub(in crate::session) fn on_link_ack(&mut self, link: u64, ack: &AckFrame) {
        if let Some(seat) = &mut self.membership {
            // Encoded again, because `ack` borrows from the packet that is being processed.
            let mut bytes = Vec::new();
            Frame::Ack(ack.clone()).write(&mut bytes, false);
            seat.peer_report = Some((link, bytes));
        }
    }

    /// Sends and answers questions about other links, and applies the peer's reports.
    pub(super) fn exchange_reports(&mut self, now: Instant) {
        let count = self.link_count();
        let quickest = (0..count).filter(|number| self.member(*number).is_link_working());
        let quickest = quickest.min_by_key(|number| self.member(*number).rtt.smoothed());
        for number in 0..count {
            let taken = self.on_member(number, |member| {
                member.membership.as_mut().map(|it| it.take_requests())
            });
            let Some((link, asks, asked, told)) = taken.flatten() else { continue };
            if let Some(other) = quickest.filter(|other| asks && *other != number) {
                self.on_member(other, |other| other.send_own(Frame::LinkAsks(link.into())));
            }
            if asked != 0 {
                self.answer_report_requests(now, number, asked);
            }
            if let Some((link, bytes)) = told {
                self.apply_peer_report(now, link, &bytes);
            }
        }
    }

    /// Queues reports about the links in the bit mask `asked`, to be sent on the link of member
    /// `asker`.
    fn answer_report_requests(&mut self, now: Instant, asker: usize, asked: u8) {
        let mut reports = Vec::new();
        for number in 0..self.link_count() {
            self.on_member(number, |member| {
                let Some(link) = member.link().filter(|link| asked & 1 << link != 0) else {
                    return;
                };
                let mut bytes = Vec::new();
                let (ranges, _, _) = member.receiver.received.report(now, false);
                frame::write_link_ack(&mut bytes, link, ranges, MOST_REPORT);
                reports.push(bytes);
            });
        }
        // Replaces reports that were not sent yet: only the newest counts.
        self.on_member(asker, |it| it.membership.as_mut().map(|seat| seat.reports = reports));
    }

    /// Applies the peer's report about a link.
    fn apply_peer_report(&mut self, now: Instant, link: u64, mut bytes: &[u8]) {
        let found = (0..self.link_count())
            .find(|number| self.member(*number).link().map(u64::from) == Some(link));
        let (Some(number), Ok(Some(Frame::Ack(ack)))) = (found, frame::read(&mut bytes)) else {
            return;
        };
        // The link may work again, and then the report is not needed any more.
        let waits = |member: &Self| {
            member.membership.as_ref().is_some_and(|seat| seat.reroute_at.is_some())
        };
        if !waits(self.member(number)) {
            return;
        }
        match number.checked_sub(1) {
            None => self.reroute_cargo(now, Some(&ack)),
            Some(other) => {
                self.with_member(now, other, |member| member.reroute_cargo(now, Some(&ack)));
            }
        }
    }

    /// Ends the doubt of this link, after an acknowledgement of new packets.
    pub(in crate::session) fn clear_link_doubt(&mut self) {
        if let Some(seat) = &mut self.membership {
            (seat.doubted, seat.has_acknowledged) = (false, true);
            (seat.reroute_at, seat.wants_report) = (None, false);
        }
    }
}

impl LinkMembership {
    fn take_requests(&mut self) -> MemberRequests {
        let (asks, asked) =
            (core::mem::take(&mut self.wants_report), core::mem::take(&mut self.report_requests));
        (self.link, asks, asked, self.peer_report.take())
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
