//! Builds the segments of a connection, with their flags, windows and options.

use core::ops::Range;

use units::Instant;

use super::{Connection, TcpState};
use crate::config::{AfterSlowStart, SynData};
use crate::segment::{
    Cookie, Ecn, HeaderFlags, HeaderOptions, SCPS_SNACK, SackBlock, Segment, Snack, Timestamps,
};
use crate::{SegmentPayload, SeqNr};

impl<P: SegmentPayload> Connection<P> {
    /// Returns the next segment to send now; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment<P>> {
        let mut segment = Segment::default();
        self.poll_transmit_into(now, &mut segment).then_some(segment)
    }

    /// Like [`Self::poll_transmit`], but overwrites an existing segment, for callers that reuse
    /// them, because a segment is large. Returns false, with nothing changed, if there is none to
    /// send.
    pub fn poll_transmit_into(&mut self, now: Instant, segment: &mut Segment<P>) -> bool {
        if let Some(waiting) = self.outbox.pop_front() {
            *segment = waiting;
            return true;
        }
        if matches!(self.state, TcpState::Closed | TcpState::Listen) {
            return false;
        }
        if self.acks.bare > 0 {
            // Before data: the peer counts duplicate acknowledgements only without data.
            self.acks.bare -= 1;
            self.write_bare(now, segment);
            return true;
        }
        let clock = &self.clock;
        if self.state != TcpState::TimeWait
            && let Some(sent) = self.sender.poll(now, || clock.value(now))
        {
            self.write_data(now, &sent.range, sent.is_new, segment);
            return true;
        }
        // Nothing could be sent, perhaps because the peer's window is too small: then it must be
        // probed.
        self.sender.schedule_persist(now);
        if self.acks.due {
            self.write_bare(now, segment);
            return true;
        }
        false
    }

    /// Returns a pure acknowledgement of everything received in order.
    pub(super) fn bare_segment(&mut self, now: Instant) -> Segment<P> {
        let mut segment = Segment::default();
        self.write_bare(now, &mut segment);
        segment
    }

    fn write_bare(&mut self, now: Instant, segment: &mut Segment<P>) {
        *segment = Segment { seq: self.seq(self.sender.nxt()), ..Segment::default() };
        self.acknowledge(now, segment);
        if self.agreed.snack {
            self.add_snack(segment);
        }
        self.add_sack(segment, usize::MAX);
    }

    fn write_data(
        &mut self,
        now: Instant,
        range: &Range<u64>,
        is_new: bool,
        segment: &mut Segment<P>,
    ) {
        let payload = self.sender.data(range);
        let syn = range.start == 0;
        let has_data = !payload.is_empty();
        *segment = Segment {
            seq: self.seq(range.start),
            flags: HeaderFlags {
                syn,
                fin: self.sender.has_fin(range),
                // RFC 9293 §3.9.1.2: the last buffered segment has PSH.
                psh: has_data && self.sender.ends_push(range),
                ..HeaderFlags::default()
            },
            payload,
            ..Segment::default()
        };
        if self.agreed.ecn && is_new && has_data {
            // RFC 3168 §6.1.5: retransmissions are not ECN-capable.
            segment.ecn = Ecn::Ect0;
            segment.flags.cwr = core::mem::take(&mut self.sender.owes_cwr);
        }
        if self.config.acks.after_slow_start == AfterSlowStart::Signalled && has_data {
            segment.flags.slow_start = self.sender.is_in_slow_start();
        }
        if self.is_synchronised() {
            self.acknowledge(now, segment);
        }
        if syn {
            self.transaction.begin(now);
            self.offer(now, segment, is_new);
        } else {
            let room = self.sender.mss() as usize - segment.payload.len();
            self.add_sack(segment, room);
        }
    }

    /// Adds the fields that every segment of a synchronised connection has.
    fn acknowledge(&mut self, now: Instant, segment: &mut Segment<P>) {
        let ack = self.rcv_nxt();
        segment.ack = Some(ack);
        // RFC 7323 §2.2: the window of a SYN is never scaled.
        let shift = if segment.flags.syn { 0 } else { self.own_shift };
        segment.window = self.receiver.advertise(shift, self.sender.mss());
        segment.flags.ece = self.echoes_mark;
        if self.agreed.timestamps {
            let value = self.clock.value(now);
            segment.options.timestamps = Some(Timestamps { value, echo: self.clock.recent });
            self.clock.last_ack_sent = ack;
        }
        segment.options.counts = self.transaction.counts();
        self.acks.sent();
    }

    /// Adds a SNACK for one hole, in turn, counted in whole segments.
    #[cold]
    fn add_snack(&mut self, segment: &mut Segment<P>) {
        let Some(hole) = self.receiver.next_hole() else { return };
        let mss = self.sender.mss();
        let next = self.receiver.next();
        let first = (hole.start - next) / mss;
        let end = (hole.end - next).div_ceil(mss);
        // A hole too far away for the fields' 16 bits is reported once it is nearer.
        if let (Ok(offset), Ok(size)) = (u16::try_from(first), u16::try_from(end - first)) {
            segment.options.snack = Some(Snack { offset, size });
        }
    }

    /// Adds as many SACK blocks as fit in `room` bytes.
    fn add_sack(&mut self, segment: &mut Segment<P>, room: usize) {
        let blocks = room.saturating_sub(4) / 8;
        if self.agreed.sack && blocks > 0 && self.receiver.has_sack() {
            self.put_sack(segment, blocks);
        }
    }

    #[inline(never)]
    fn put_sack(&mut self, segment: &mut Segment<P>, blocks: usize) {
        let ranges = self.receiver.sack_blocks(self.config.dsack);
        let block = |range: &Range<u64>| SackBlock {
            start: self.irs.advance(range.start),
            end: self.irs.advance(range.end),
        };
        let used = segment.options.len_without_sack();
        segment.options.sack = ranges.iter().take(blocks).map(block).collect();
        let fit = segment.options.sack_room(used);
        segment.options.sack.truncate(fit);
    }

    /// Adds the options of a SYN, and its ECN flags: our offers, or what was agreed if it answers
    /// one.
    #[cold]
    fn offer(&mut self, now: Instant, segment: &mut Segment<P>, is_new: bool) {
        let config = &self.config;
        let answers = segment.ack.is_some();
        let offers = |wanted: bool, agreed: bool| if answers { agreed } else { wanted };
        let timestamps = offers(config.timestamps, self.agreed.timestamps);
        let echo = if answers { self.clock.recent } else { 0 };
        let scales = offers(config.window_scaling, self.scales);
        segment.options = HeaderOptions {
            mss: Some(config.mss),
            window_scale: scales.then(|| super::handshake::shift_for(config)),
            sack_permitted: offers(config.sack, self.agreed.sack),
            timestamps: timestamps.then(|| Timestamps { value: self.clock.value(now), echo }),
            fast_open: self.cookie_to_send(answers, is_new),
            scps: offers(config.snack, self.agreed.snack).then_some(SCPS_SNACK),
            counts: self.transaction.counts_of_syn(answers),
            ..HeaderOptions::default()
        };
        let ecn = offers(config.ecn, self.agreed.ecn);
        // RFC 3168 §6.1.1: a SYN sets both flags, its answer only ECE.
        segment.flags.ece = ecn;
        segment.flags.cwr = ecn && !answers;
        if !answers {
            segment.window = self.receiver.advertise(0, u64::from(config.mss));
        }
    }
}

impl<P> Connection<P> {
    /// Returns the cookie to send with a SYN. RFC 7413 §4.1.3: a SYN carries or requests the
    /// cookie; its retransmissions do not.
    fn cookie_to_send(&self, answers: bool, is_new: bool) -> Option<Cookie> {
        let SynData::FastOpen { cookie } = &self.config.syn_data else { return None };
        let sends = if answers { self.gives_cookie } else { is_new };
        sends.then(|| cookie.clone())
    }
}

/// Returns the reset that answers a segment without a connection (RFC 9293 §3.10.7.1); `None` for a
/// reset, which is not answered.
pub fn refusal<P: SegmentPayload>(segment: &Segment<P>) -> Option<Segment<P>> {
    if segment.flags.rst {
        return None;
    }
    let flags = HeaderFlags { rst: true, ..HeaderFlags::default() };
    Some(match segment.ack {
        Some(ack) => Segment { seq: ack, flags, ..Segment::default() },
        // It acknowledges the segment, so that the peer believes it (RFC 9293 §3.5.3).
        None => Segment {
            seq: SeqNr::new(0),
            ack: Some(segment.seq.advance(segment.sequence_len())),
            flags,
            ..Segment::default()
        },
    })
}
