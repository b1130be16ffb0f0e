//! Loss of a link: its data in flight is sent over the others, except what the peer reports as
//! received.

use units::{ByteCount, Instant};

use super::{Seat, Session};
use crate::links::Turn;
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::Cargo;
use crate::wire::frame::{self, Ack, Frame};

/// Maximum size of an acknowledgement of another link, in bytes.
const MOST_REPORT: usize = 800;

/// Requests and reports that a member passes to the others: its link number, whether the peer is to
/// be asked about it, the links that the peer asks about (bit mask), and the peer's report about
/// one.
type Mail = (u8, bool, u8, Option<(u64, Vec<u8>)>);

impl Session {
    /// The time at which the link is doubted unless something is acknowledged, or for a doubted
    /// link the deadline of the peer's report. Its data in flight is then sent on the others, long
    /// before the link counts as in an outage.
    pub(in crate::session) fn link_doubt_timeout(&self) -> Option<Instant> {
        let seat = self.seat.as_ref()?;
        if seat.doubted || seat.others.is_none() {
            return seat.moves_at;
        }
        // Beyond its budget the peer sends one ACK per quarter RTT.
        let held = ACK_DELAY.max(self.rtt.smoothed() / 4);
        let oldest = self.sender.sent.oldest_after_acked()?;
        self.is_reachable().then(|| oldest + self.rtt.probe_delay(held))
    }

    /// Doubts the link, or stops waiting for the peer's report about it.
    pub(in crate::session) fn on_link_doubt(&mut self, now: Instant) {
        let in_flight = self.sender.sent.outstanding() as u64 * self.path.pmtu.size() as u64;
        let Some(seat) = &mut self.seat else { return };
        if !core::mem::replace(&mut seat.doubted, true) {
            seat.turn = Turn::Nothing;
            self.probes.request();
            // Much of it may have arrived. Asking first pays if resending all of it takes longer
            // than the answer, a round trip on the quickest other link.
            let (rate, rtt) = seat.others.unwrap_or_default();
            if rate.time_to_send(ByteCount::new(in_flight)) > rtt {
                (seat.asks, seat.moves_at) = (true, Some(now + rtt + rtt / 2 + ACK_DELAY * 2));
                return;
            }
        }
        self.move_cargo(now, None);
    }

    /// Sends the data in flight on this link over the others, except what `ack` reports as
    /// received.
    fn move_cargo(&mut self, now: Instant, ack: Option<&Ack>) {
        if let Some(seat) = &mut self.seat {
            (seat.moves_at, seat.asks) = (None, false);
        }
        let [arrived, rest] = self.sender.sent.doubted_cargo(ack);
        for cargo in arrived {
            if let Cargo::Stream { stream, range, fin, .. } = cargo {
                self.streams.on_acknowledged(now, stream, range, fin);
            }
        }
        rest.into_iter().for_each(|cargo| self.resend(now, cargo));
    }

    /// Handles LINK ASKS: the peer wants an acknowledgement of another link's packets.
    pub(in crate::session) fn on_link_asks(&mut self, link: u64) {
        let bit = u32::try_from(link).ok().and_then(|link| 1u8.checked_shl(link));
        if let (Some(seat), Some(bit)) = (&mut self.seat, bit) {
            seat.asked |= bit;
        }
    }

    /// Handles LINK ACK: an acknowledgement of another link's packets.
    pub(in crate::session) fn on_link_ack(&mut self, link: u64, ack: &Ack) {
        if let Some(seat) = &mut self.seat {
            // Encoded again, because `ack` borrows from the packet that is being processed.
            let mut bytes = Vec::new();
            Frame::Ack(ack.clone()).write(&mut bytes, false);
            seat.told = Some((link, bytes));
        }
    }

    /// Sends and answers questions about other links, and applies the peer's reports.
    pub(super) fn exchange_reports(&mut self, now: Instant) {
        let count = self.link_count();
        let quickest = (0..count).filter(|number| self.member(*number).works());
        let quickest = quickest.min_by_key(|number| self.member(*number).rtt.smoothed());
        for number in 0..count {
            let taken =
                self.on_member(number, |member| member.seat.as_mut().map(|it| it.take_mail()));
            let Some((link, asks, asked, told)) = taken.flatten() else { continue };
            if let Some(other) = quickest.filter(|other| asks && *other != number) {
                self.on_member(other, |other| other.send_own(Frame::LinkAsks(link.into())));
            }
            if asked != 0 {
                self.answer_asked(now, number, asked);
            }
            if let Some((link, bytes)) = told {
                self.take_told(now, link, &bytes);
            }
        }
    }

    /// Queues reports about the links in the bit mask `asked`, to be sent on the link of member
    /// `asker`.
    fn answer_asked(&mut self, now: Instant, asker: usize, asked: u8) {
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
        self.on_member(asker, |it| it.seat.as_mut().map(|seat| seat.reports = reports));
    }

    /// Applies the peer's report about a link.
    fn take_told(&mut self, now: Instant, link: u64, mut bytes: &[u8]) {
        let found = (0..self.link_count())
            .find(|number| self.member(*number).link().map(u64::from) == Some(link));
        let (Some(number), Ok(Some(Frame::Ack(ack)))) = (found, frame::read(&mut bytes)) else {
            return;
        };
        // The link may work again, and then the report is not needed any more.
        let waits =
            |member: &Self| member.seat.as_ref().is_some_and(|seat| seat.moves_at.is_some());
        if !waits(self.member(number)) {
            return;
        }
        match number.checked_sub(1) {
            None => self.move_cargo(now, Some(&ack)),
            Some(other) => {
                self.with_member(now, other, |member| member.move_cargo(now, Some(&ack)));
            }
        }
    }

    /// Ends the doubt of this link, after an acknowledgement of new packets.
    pub(in crate::session) fn trust_link(&mut self) {
        if let Some(seat) = &mut self.seat {
            (seat.doubted, seat.proven) = (false, true);
            (seat.moves_at, seat.asks) = (None, false);
        }
    }
}

impl Seat {
    fn take_mail(&mut self) -> Mail {
        let (asks, asked) = (core::mem::take(&mut self.asks), core::mem::take(&mut self.asked));
        (self.link, asks, asked, self.told.take())
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
