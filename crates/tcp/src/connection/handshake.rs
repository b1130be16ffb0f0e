//! LISTEN, SYN-SENT and SYN-RECEIVED, and the negotiation of options.

use units::Instant;

use super::{AbortReason, Connection, ConnectionEvent, TcpState};
use crate::SegmentPayload;
use crate::config::{Config, SynData};
use crate::segment::{SCPS_SNACK, Segment};
use crate::sender::NegotiatedOptions;

/// RFC 9293 §3.7.1: the MSS without the option.
const DEFAULT_MSS: u16 = 536;
/// RFC 7323 §2.3: the largest shift of window fields.
const MAX_SHIFT: u8 = 14;
/// Timestamps with their alignment, in bytes.
const TIMESTAMPS_LEN: u64 = 12;

/// Returns the smallest shift with which the receive buffer can be advertised.
pub(super) fn shift_for(config: &Config) -> u8 {
    let fits = |shift: &u8| config.receive_buffer.get() >> shift <= 65_535;
    (0..MAX_SHIFT).find(fits).unwrap_or(MAX_SHIFT)
}

impl<P: SegmentPayload> Connection<P> {
    /// Handles a segment in LISTEN (RFC 9293 §3.10.7.2).
    pub(super) fn arrive_in_listen(&mut self, now: Instant, segment: &Segment<P>) {
        if segment.flags.rst {
            return;
        }
        // Belongs to a connection that does not exist.
        if segment.ack.is_some() {
            self.refuse(segment);
        } else if segment.flags.syn {
            self.state = TcpState::SynReceived;
            self.take_syn(now, segment);
            self.take_syn_data(segment);
        }
    }

    /// Accepts data on a SYN at once if it comes with the right cookie, which is given to every
    /// client that lacks it (RFC 7413 §4.2.2), or if its connection count is new (RFC 1644 §2.1).
    fn take_syn_data(&mut self, segment: &Segment<P>) {
        let takes = match &self.config.syn_data {
            SynData::Off => false,
            SynData::FastOpen { cookie } if cookie.is_empty() => false,
            SynData::FastOpen { cookie } => {
                let shown = segment.options.fast_open.as_ref();
                self.gives_cookie = shown.is_some_and(|shown| shown != cookie);
                shown == Some(cookie)
            }
            SynData::Transactions(_) => self.transaction.test(&segment.options.counts),
            SynData::Always => true,
        };
        if !takes || segment.payload.is_empty() {
            return;
        }
        // No window has been advertised yet, so the buffer is the limit.
        let room = usize::try_from(self.config.receive_buffer.get()).unwrap_or(usize::MAX);
        let len = segment.payload.len().min(room);
        self.receiver.insert(1, &segment.payload.slice(0..len));
        self.sender.may_send_early = true;
        // RFC 7413 §4.2.2: an early answer is bounded by this window, too.
        self.sender.set_window(segment.window);
        self.notify(ConnectionEvent::Readable);
    }

    /// Handles a segment in SYN-SENT (RFC 9293 §3.10.7.3). Data on the answer to a SYN is not
    /// accepted: the peer resends it.
    pub(super) fn arrive_in_syn_sent(&mut self, now: Instant, segment: &Segment<P>) {
        let acks_syn = segment.ack.map(|ack| self.acknowledges_syn(ack));
        if acks_syn == Some(false) {
            self.refuse(segment);
            return;
        }
        if segment.flags.rst {
            if acks_syn.is_some() {
                // Without the acknowledgement of our SYN, anybody could have forged the reset.
                self.end(AbortReason::Refused);
            }
            return;
        }
        if !segment.flags.syn {
            return;
        }
        if segment.ack.is_some() && !self.transaction.handle_answer(&segment.options.counts) {
            self.refuse(segment);
            return;
        }
        self.take_syn(now, segment);
        match segment.ack {
            Some(ack) => {
                self.take_ack(now, segment, ack);
                self.sender.forget_syn_data();
                self.become_established(now);
                self.acks.on_control();
            }
            // Simultaneous open (RFC 9293 §3.5, figure 7): our SYN is repeated with an
            // acknowledgement.
            None => {
                self.state = TcpState::SynReceived;
                self.sender.repeat_syn();
            }
        }
    }

    fn acknowledges_syn(&self, ack: crate::SeqNr) -> bool {
        let nxt = self.seq(self.sender.nxt());
        ack.is_after(self.iss) && !ack.is_after(nxt)
    }

    pub(super) fn refuse(&mut self, segment: &Segment<P>) {
        self.outbox.extend(super::emit::refusal(segment));
    }

    /// Adopts the options of the peer's SYN.
    fn take_syn(&mut self, now: Instant, segment: &Segment<P>) {
        let options = &segment.options;
        let config = &self.config;
        self.irs = segment.seq;
        // RFC 3168 §6.1.1: a SYN sets both flags, its answer only one of them.
        let flags = (segment.flags.ece, segment.flags.cwr);
        let ecn_setup = if segment.ack.is_some() { (true, false) } else { (true, true) };
        self.agreed = NegotiatedOptions {
            sack: config.sack && options.sack_permitted,
            snack: config.snack && options.scps.is_some_and(|bits| bits & SCPS_SNACK != 0),
            timestamps: config.timestamps && options.timestamps.is_some(),
            ecn: config.ecn && flags == ecn_setup,
        };
        if let Some(shift) = options.window_scale.filter(|_| config.window_scaling) {
            self.peer_shift = shift.min(MAX_SHIFT);
            self.own_shift = shift_for(config);
            self.scales = true;
        }
        if let Some(timestamps) = options.timestamps.filter(|_| self.agreed.timestamps) {
            self.clock.recent = timestamps.value;
            self.clock.recent_at = now;
        }
        if let Some(cookie) = &options.fast_open {
            self.cookie = cookie.clone();
        }
        let mss = options.mss.unwrap_or(DEFAULT_MSS).min(self.config.mss);
        self.transaction.take_syn(now, &segment.options.counts);
        let used = if self.agreed.timestamps { TIMESTAMPS_LEN } else { 0 };
        // RFC 9293 §3.7.1: the MSS option does not count options, so every segment's own are
        // subtracted.
        let used = used + self.transaction.overhead();
        self.sender.establish(now, u64::from(mss).saturating_sub(used), self.agreed);
        (self.window_seq, self.window_ack) = (segment.seq, self.iss);
    }

    pub(super) fn become_established(&mut self, now: Instant) {
        self.state =
            if self.sender.is_finished() { TcpState::FinWait1 } else { TcpState::Established };
        self.restart_keepalive(now);
        self.notify(ConnectionEvent::Connected);
    }

    /// Handles a reset or a time-out in SYN-RECEIVED: a passive open returns to LISTEN.
    pub(super) fn fail_handshake(&mut self, why: AbortReason) {
        if self.is_passive {
            // The refusal that is still to be sent must survive the return to LISTEN.
            let outbox = core::mem::take(&mut self.outbox);
            *self = Self::new(self.config.clone(), TcpState::Listen, self.iss);
            self.outbox = outbox;
        } else {
            self.end(why);
        }
    }
}
