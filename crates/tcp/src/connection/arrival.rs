//! Processing of received segments (RFC 9293 §3.10.7).

#[cfg(test)]
mod tests;

use core::ops::Range;
use core::time::Duration;

use arrayvec::ArrayVec;
use units::Instant;

use super::{AbortReason, Connection, ConnectionEvent, TcpState};
use crate::receiver::DataArrival;
use crate::segment::{Ecn, HeaderFlags, SackBlock, Segment, Snack};
use crate::sender::AckInfo;
use crate::{SegmentPayload, SeqNr};

/// RFC 7323 §5.5: age at which TS.Recent is outdated.
const OUTDATED: Duration = Duration::from_secs(24 * 24 * 3600);

impl<P: SegmentPayload> Connection<P> {
    /// Processes a segment of this connection.
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment<P>) {
        match self.state {
            TcpState::Closed => self.refuse(segment),
            TcpState::Listen => self.arrive_in_listen(now, segment),
            TcpState::SynSent => self.arrive_in_syn_sent(now, segment),
            TcpState::Established if self.is_predicted(segment) => {
                self.arrive_predicted(now, segment);
            }
            _ => self.arrive(now, segment),
        }
    }

    /// Handles an ICMP error about our segment `seq`: the peer is unreachable. Once the handshake is
    /// over that is only a hint, which anybody could forge (RFC 5927 §5).
    pub fn handle_unreachable(&mut self, seq: SeqNr) {
        if self.state == TcpState::SynSent && seq == self.iss {
            self.end(AbortReason::Unreachable);
        }
    }

    /// Returns true if the segment is the SYN of a new connection that may replace this one in
    /// TIME-WAIT (RFC 9293 §3.6.1, after RFC 1122 §4.2.2.13): its number is beyond all of this
    /// one's.
    pub fn is_succeeded_by(&self, segment: &Segment<P>) -> bool {
        let HeaderFlags { syn, rst, .. } = segment.flags;
        let is_open = syn && !rst && segment.ack.is_none();
        self.state == TcpState::TimeWait && is_open && segment.seq.is_after(self.rcv_nxt())
    }

    /// Header prediction (Jacobson, "4BSD TCP Header Prediction", 1990): the next data or an
    /// acknowledgement, and nothing unusual. Nearly every segment is of this kind, and such a
    /// segment passes all checks of [`Self::arrive`].
    #[inline]
    fn is_predicted(&self, segment: &Segment<P>) -> bool {
        let una = self.seq(self.sender.una());
        let nxt = self.seq(self.sender.nxt());
        let HeaderFlags { psh, slow_start, .. } = segment.flags;
        segment.flags == HeaderFlags { psh, slow_start, ..HeaderFlags::default() }
            && segment.ecn != Ecn::Ce
            && segment.seq == self.rcv_nxt()
            && segment.ack.is_some_and(|ack| !una.is_after(ack) && !ack.is_after(nxt))
            && segment.payload.len() as u64 <= self.receiver.window()
            && match &segment.options.timestamps {
                Some(stamps) => {
                    let age = stamps.value.wrapping_sub(self.clock.recent) as i32;
                    self.agreed.timestamps && age >= 0
                }
                None => !self.agreed.timestamps,
            }
            && self.transaction.accepts(&segment.options.counts)
    }

    /// [`Self::arrive`] for segments that are [`Self::is_predicted`].
    fn arrive_predicted(&mut self, now: Instant, segment: &Segment<P>) {
        let Some(ack) = segment.ack else { return };
        self.restart_keepalive(now);
        self.take_ack(now, segment, ack);
        // RFC 7323 §4.3 (2): `is_predicted` has checked that the timestamp is not older.
        if let Some(timestamps) = &segment.options.timestamps
            && !segment.seq.is_after(self.clock.last_ack_sent)
        {
            (self.clock.recent, self.clock.recent_at) = (timestamps.value, now);
        }
        if !segment.payload.is_empty() {
            let start = self.receiver.next();
            self.acks.note_slow_start(segment.flags.slow_start);
            self.take_data(now, start, &segment.payload, false);
            if self.receiver.is_complete() {
                self.after_peer_fin(now);
            }
        }
    }

    /// Takes data within the window; its first byte has the position `start`.
    fn take_data(&mut self, now: Instant, start: u64, data: &P, marked: bool) {
        let arrival = self.receiver.insert(start, data);
        self.acks.on_data(now, arrival, marked);
        if matches!(arrival, DataArrival::InOrder | DataArrival::FilledHole) {
            self.notify(ConnectionEvent::Readable);
        }
    }

    /// RFC 9293 §3.10.7.4, in the order given there.
    fn arrive(&mut self, now: Instant, segment: &Segment<P>) {
        if self.answers_our_syn(segment) {
            // Simultaneous open: its SYN is known, but its ACK is new.
            let mut rest = segment.clone();
            rest.flags.syn = false;
            rest.seq = rest.seq.advance(1);
            return self.arrive(now, &rest);
        }
        if self.is_old_by_timestamp(now, segment) {
            // RFC 7323 §5.3 R1: an old segment is answered and dropped, before all other checks.
            self.acks.bare += 1;
            return;
        }
        if self.agreed.timestamps && segment.options.timestamps.is_none() && !segment.flags.rst {
            // RFC 7323 §3.2: once negotiated, segments without a timestamp are dropped silently.
            return;
        }
        if !self.transaction.accepts(&segment.options.counts) && !segment.flags.rst {
            // RFC 1644 §3.4: the segment belongs to another connection.
            self.acks.bare += 1;
            return;
        }
        if !self.is_acceptable(segment) {
            self.arrive_unacceptable(now, segment);
            return;
        }
        if segment.flags.rst {
            self.arrive_reset(now, segment);
            return;
        }
        if segment.flags.syn {
            // RFC 5961 §4.2: a SYN may be forged, so even one in the window only gets a challenge
            // ACK.
            self.challenge(now);
            return;
        }
        let Some(ack) = segment.ack else { return };
        self.restart_keepalive(now);
        if !self.arrive_ack(now, segment, ack) {
            return;
        }
        self.remember_timestamp(now, segment);
        self.arrive_data(now, segment);
    }

    fn answers_our_syn(&self, segment: &Segment<P>) -> bool {
        self.state == TcpState::SynReceived
            && segment.flags.syn
            && !segment.flags.rst
            && segment.ack.is_some()
            && segment.seq == self.irs
    }

    /// Distance from RCV.NXT to the first byte of the segment; negative if it begins before.
    fn distance(&self, segment: &Segment<P>) -> i64 {
        i64::from(segment.seq.since(self.rcv_nxt()))
    }

    /// RFC 9293 §3.10.7.4, first check. A closed window still admits segments that start at its
    /// edge, for their acknowledgements.
    fn is_acceptable(&self, segment: &Segment<P>) -> bool {
        let window = self.receiver.window() as i64;
        let start = self.distance(segment);
        let len = segment.sequence_len() as i64;
        // Also with a closed window, and with more data than fits.
        if start == 0 {
            return true;
        }
        (0..window).contains(&start) || len > 0 && (0..window).contains(&(start + len - 1))
    }

    #[cold]
    fn arrive_unacceptable(&mut self, now: Instant, segment: &Segment<P>) {
        if segment.flags.rst {
            return;
        }
        if self.state == TcpState::SynReceived && segment.flags.syn && segment.seq == self.irs {
            // The peer repeats its SYN, so our answer was lost.
            self.sender.repeat_syn();
            return;
        }
        let start = self.distance(segment);
        let len = segment.payload.len() as i64;
        if len > 0 && start < 0 && -start as u64 <= self.receiver.next() {
            let start = self.receiver.next() - -start as u64;
            self.receiver.note_duplicate(start..start + len as u64);
        }
        if self.state == TcpState::TimeWait && segment.flags.fin {
            // RFC 9293 §3.10.7.4: a repeated FIN shows that our acknowledgement was lost, and
            // restarts 2·MSL.
            self.timers.time_wait = Some(now + self.time_wait(now));
        }
        self.acks.bare += 1;
    }

    /// PAWS (RFC 7323 §5.3 R1).
    fn is_old_by_timestamp(&self, now: Instant, segment: &Segment<P>) -> bool {
        let Some(timestamps) = segment.options.timestamps.filter(|_| self.agreed.timestamps) else {
            return false;
        };
        let is_before = (timestamps.value.wrapping_sub(self.clock.recent) as i32) < 0;
        // RFC 7323 §5.5: after 24 days without traffic the comparison is invalid.
        let is_outdated = now.saturating_since(self.clock.recent_at) > OUTDATED;
        is_before && !is_outdated && !segment.flags.rst
    }

    /// RFC 7323 §4.3 (2).
    fn remember_timestamp(&mut self, now: Instant, segment: &Segment<P>) {
        let Some(timestamps) = segment.options.timestamps.filter(|_| self.agreed.timestamps) else {
            return;
        };
        let is_before = (timestamps.value.wrapping_sub(self.clock.recent) as i32) < 0;
        if !segment.seq.is_after(self.clock.last_ack_sent)
            && (!is_before || now.saturating_since(self.clock.recent_at) > OUTDATED)
        {
            self.clock.recent = timestamps.value;
            self.clock.recent_at = now;
        }
    }

    /// RFC 5961 §3.2: only a reset with exactly the next sequence number counts.
    #[cold]
    fn arrive_reset(&mut self, now: Instant, segment: &Segment<P>) {
        if self.distance(segment) != 0 {
            self.challenge(now);
            return;
        }
        match self.state {
            TcpState::SynReceived => self.fail_handshake(AbortReason::Refused),
            // RFC 9293 §3.10.7.4: both streams have ended, so the reset loses nothing.
            TcpState::Closing | TcpState::LastAck | TcpState::TimeWait => self.finish_closing(),
            _ => self.end(AbortReason::Reset),
        }
    }

    #[cold]
    fn challenge(&mut self, now: Instant) {
        if self.challenges.allow(now) {
            self.acks.bare += 1;
        }
    }

    /// RFC 9293 §3.10.7.4, fifth check. Returns whether to process the rest of the segment.
    fn arrive_ack(&mut self, now: Instant, segment: &Segment<P>, ack: SeqNr) -> bool {
        let una = self.seq(self.sender.una());
        let nxt = self.seq(self.sender.nxt());
        if self.state == TcpState::SynReceived {
            if !ack.is_after(una) || ack.is_after(nxt) {
                // RFC 9293 §3.10.7.4: in SYN-RECEIVED an unacceptable acknowledgement is answered
                // with a reset.
                self.refuse(segment);
                return false;
            }
            self.take_ack(now, segment, ack);
            if self.is_passive {
                // The handshake is complete, so data no longer depends on Fast Open or T/TCP.
                self.sender.may_send_early = false;
                self.transaction.note_accepted();
            } else {
                self.sender.forget_syn_data();
            }
            self.become_established(now);
            self.after_own_fin(now);
            return true;
        }
        // RFC 5961 §5.2: acknowledgements of data never sent, or sent long ago, may be forged.
        let oldest = i64::try_from(self.sender.max_window()).unwrap_or(i64::MAX);
        if ack.is_after(nxt) || i64::from(una.since(ack)) > oldest {
            self.challenge(now);
            return false;
        }
        if !una.is_after(ack) {
            self.take_ack(now, segment, ack);
            self.after_own_fin(now);
        }
        true
    }

    /// Passes an acknowledgement between SND.UNA and SND.NXT to the sender.
    pub(super) fn take_ack(&mut self, now: Instant, segment: &Segment<P>, ack: SeqNr) {
        let una = self.sender.una();
        let position = una + ack.since(self.seq(una)) as u64;
        let updates_window = self.note_window(segment.seq, ack);
        // RFC 7323 §2.2: the window of a SYN is never scaled.
        let shift = if segment.flags.syn { 0 } else { self.peer_shift };
        let window = u64::from(segment.window) << shift;
        let is_plain = segment.options.sack.is_empty()
            && segment.options.snack.is_none()
            && !segment.flags.ece;
        if is_plain && self.sender.is_at_rest(position) {
            return self.sender.handle_ack_at_rest(window, updates_window);
        }
        let (duplicate, sack) = self.read_sack(&segment.options.sack, position);
        let before = self.sender.una();
        let info = AckInfo {
            position,
            sack: &sack,
            hole: segment.options.snack.and_then(|snack| self.read_snack(snack, position)),
            duplicate,
            window,
            updates_window,
            is_bare: segment.sequence_len() == 0,
            echo: self.read_echo(now, segment),
            ece: segment.flags.ece && !segment.flags.syn,
        };
        self.sender.handle_ack(now, &info);
        if self.sender.una() > before && self.write_blocked && self.sender.space() > 0 {
            self.write_blocked = false;
            self.notify(ConnectionEvent::Writable);
        }
    }

    /// Records the numbers of a segment; returns true if its window is newer than the known one
    /// (RFC 9293 §3.10.7.4).
    fn note_window(&mut self, seq: SeqNr, ack: SeqNr) -> bool {
        let is_news = seq.is_after(self.window_seq)
            || seq == self.window_seq && !self.window_ack.is_after(ack);
        if is_news {
            (self.window_seq, self.window_ack) = (seq, ack);
        }
        is_news
    }

    /// Returns the hole that the segment reports, clipped to valid positions.
    #[cold]
    fn read_snack(&self, snack: Snack, ack: u64) -> Option<Range<u64>> {
        if !self.agreed.snack {
            return None;
        }
        let mss = self.sender.mss();
        let start = ack + u64::from(snack.offset) * mss;
        let hole = start..(start + u64::from(snack.size) * mss).min(self.sender.nxt());
        (!hole.is_empty()).then_some(hole)
    }

    fn read_echo(&self, now: Instant, segment: &Segment<P>) -> Option<(u64, u32)> {
        let timestamps = segment.options.timestamps.filter(|_| self.agreed.timestamps)?;
        let age = self.clock.value(now).wrapping_sub(timestamps.echo) as i32;
        // An echo from the future was never sent by this end.
        let age = u64::try_from(age).ok()?;
        Some((age * 1_000_000, timestamps.echo))
    }

    /// Returns the report of a duplicate, if the first block is one (RFC 2883 §4), and the other
    /// blocks, clipped to valid positions.
    #[allow(clippy::type_complexity, reason = "two lists, used once")]
    #[inline(never)]
    fn read_sack(
        &self,
        blocks: &[SackBlock],
        ack: u64,
    ) -> (Option<Range<u64>>, ArrayVec<Range<u64>, 4>) {
        if !self.agreed.sack || blocks.is_empty() {
            return (None, ArrayVec::new());
        }
        let nxt = self.sender.nxt();
        let position = |seq: SeqNr| {
            let position = nxt as i64 + i64::from(seq.since(self.seq(nxt)));
            u64::try_from(position).ok()
        };
        let range = |block: &SackBlock| {
            let range = position(block.start)?..position(block.end)?;
            (!range.is_empty() && range.end <= nxt).then_some(range)
        };
        let mut ranges = blocks.iter().map(range);
        let first = ranges.next().flatten();
        let mut rest: ArrayVec<Range<u64>, 4> = ranges.flatten().collect();
        let is_duplicate = first.as_ref().is_some_and(|first| {
            first.end <= ack
                || rest
                    .first()
                    .is_some_and(|next| next.start <= first.start && first.end <= next.end)
        });
        let duplicate = first.clone().filter(|_| is_duplicate);
        if let Some(first) = first.filter(|_| !is_duplicate) {
            rest.insert(0, first);
        }
        rest.retain(|range| range.start >= ack);
        // The latest arrival comes first (RFC 2018 §4). If earlier acknowledgements were lost, that
        // would look like reordering to RACK.
        rest.sort_unstable_by_key(|range| range.start);
        (duplicate, rest)
    }

    /// Advances the state if our FIN is acknowledged now.
    fn after_own_fin(&mut self, now: Instant) {
        if !self.sender.is_done() {
            return;
        }
        match self.state {
            TcpState::FinWait1 => {
                self.state = TcpState::FinWait2;
                // In FIN-WAIT-2 only keepalive probes can find out whether the peer is still there.
                self.restart_keepalive(now);
            }
            TcpState::Closing => self.enter_time_wait(now),
            TcpState::LastAck => self.finish_closing(),
            _ => {}
        }
    }

    /// RFC 9293 §3.10.7.4, seventh and eighth checks.
    pub(super) fn arrive_data(&mut self, now: Instant, segment: &Segment<P>) {
        if !matches!(self.state, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2) {
            return;
        }
        let marked = self.agreed.ecn && segment.ecn == Ecn::Ce;
        if segment.flags.cwr {
            // RFC 3168 §6.1.3: the peer has reduced its window; only new marks are echoed from here
            // on.
            self.echoes_mark = false;
        }
        self.echoes_mark |= marked && !segment.payload.is_empty();
        let (start, len, fin) = self.within_window(segment);
        if len > 0 {
            self.acks.note_slow_start(segment.flags.slow_start);
            self.take_data(now, start, &segment.payload.slice(0..len), marked);
        } else if !segment.payload.is_empty() {
            // RFC 9293 §3.10.7.4: data beyond the window is answered with an acknowledgement.
            self.acks.bare += 1;
        }
        if fin {
            self.receiver.finish(start + len as u64);
            self.acks.on_control();
        }
        if self.receiver.is_complete() {
            self.after_peer_fin(now);
        }
    }

    /// Returns the position of a segment's data, the number of bytes that fit in the window, and
    /// true if its FIN is within the window too.
    fn within_window(&self, segment: &Segment<P>) -> (u64, usize, bool) {
        let next = self.receiver.next();
        // No stream data precedes the SYN.
        let Ok(start) = u64::try_from(next as i64 + self.distance(segment)) else {
            return (next, 0, false);
        };
        let edge = next + self.receiver.window();
        let room = usize::try_from(edge.saturating_sub(start)).unwrap_or(usize::MAX);
        let len = segment.payload.len().min(room);
        (start, len, segment.flags.fin && len == segment.payload.len())
    }

    #[cold]
    fn after_peer_fin(&mut self, now: Instant) {
        match self.state {
            TcpState::Established => self.state = TcpState::CloseWait,
            TcpState::FinWait1 => self.state = TcpState::Closing,
            TcpState::FinWait2 => {
                self.notify(ConnectionEvent::Finished);
                self.enter_time_wait(now);
                return;
            }
            _ => return,
        }
        self.notify(ConnectionEvent::Finished);
    }

    #[cold]
    fn enter_time_wait(&mut self, now: Instant) {
        self.state = TcpState::TimeWait;
        self.timers.keepalive = None;
        self.timers.time_wait = Some(now + self.time_wait(now));
        self.notify(ConnectionEvent::Closed);
    }

    #[cold]
    fn finish_closing(&mut self) {
        if self.state != TcpState::TimeWait {
            self.notify(ConnectionEvent::Closed);
        }
        self.state = TcpState::Closed;
        self.timers = super::ConnectionTimers::default();
    }
}
