//! Timers of a connection: delayed acknowledgements, keepalive and TIME-WAIT.

use units::{Instant, earliest, earliest_timer};

use super::{AbortReason, Connection, TcpState};
use crate::SegmentPayload;
use crate::segment::Segment;
use crate::wake::TimerKind;

impl<P: SegmentPayload> Connection<P> {
    pub(super) fn next_timeout(&self) -> Option<(Instant, TimerKind)> {
        if matches!(self.state, TcpState::Closed | TcpState::Listen) {
            return None;
        }
        let own = earliest_timer([
            (self.acks.delayed, TimerKind::DelayedAck),
            (self.timers.keepalive, TimerKind::Keepalive),
            (self.timers.time_wait, TimerKind::TimeWait),
        ]);
        earliest(self.sender.poll_timeout(), own)
    }

    pub(super) fn handle_timers(&mut self, now: Instant) {
        if matches!(self.state, TcpState::Closed | TcpState::Listen) {
            return;
        }
        let due = |timer: Option<Instant>| timer.is_some_and(|at| at <= now);
        // Nothing else can happen once the connection is over.
        if due(self.timers.time_wait) {
            self.state = TcpState::Closed;
            self.timers = super::ConnectionTimers::default();
            return;
        }
        if due(self.acks.delayed) {
            self.acks.delayed = None;
            self.acks.due = true;
        }
        if due(self.timers.keepalive) {
            self.probe_idle(now);
        }
        if self.sender.handle_timeout(now).is_err() {
            match self.state {
                TcpState::SynReceived => self.fail_handshake(AbortReason::TimedOut),
                TcpState::Closed => {}
                _ => self.end(AbortReason::TimedOut),
            }
        }
    }

    /// Records that the peer was heard, which restarts the keepalive timer.
    pub(super) fn restart_keepalive(&mut self, now: Instant) {
        self.timers.probes = 0;
        self.timers.keepalive = None;
        // Also in FIN-WAIT-2, where the peer may never send its FIN.
        if let Some(keepalive) = &self.config.keepalive
            && matches!(
                self.state,
                TcpState::Established | TcpState::CloseWait | TcpState::FinWait2
            )
        {
            self.timers.keepalive = Some(now + keepalive.idle);
        }
    }

    /// Sends a keepalive probe if nothing is outstanding. RFC 9293 §3.8.4: its old sequence number
    /// makes the peer answer.
    fn probe_idle(&mut self, now: Instant) {
        self.timers.keepalive = None;
        let Some(keepalive) = self.config.keepalive else { return };
        self.timers.keepalive = Some(now + keepalive.interval);
        if !self.sender.is_idle() {
            // Outstanding data has timers of its own, which find out whether the peer answers.
            return;
        }
        if self.timers.probes >= keepalive.probes {
            self.end(AbortReason::TimedOut);
            return;
        }
        self.timers.probes += 1;
        let seq = self.seq(self.sender.nxt() - 1);
        let probe = Segment { seq, ..self.bare_segment(now) };
        self.outbox.push_back(probe);
    }
}
