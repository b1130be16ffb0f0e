//! Closing a session (`docs/slacp.md`, Closing): the peer is informed at once, with the reason.

use core::time::Duration;

use units::Instant;

use super::{PacketEnvelope, Session, SessionPath, SharedState};
use crate::recovery::received::ACK_DELAY;
use crate::wire::frame::Frame;
use crate::{CloseReason, DownReason, StopAnnouncement};

impl Session {
    /// Returns whether the owner can still use the session.
    pub(crate) fn is_usable(&self) -> bool {
        self.shared.is_usable()
    }

    /// Returns whether the endpoint can forget the session.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.life.is_closed()
    }

    /// Returns the reason for the session's end, only once.
    pub(crate) fn take_end(&mut self) -> Option<DownReason> {
        self.shared.life.take_end()
    }

    /// Closes the session here and informs the peer.
    pub(crate) fn close(&mut self, now: Instant, reason: CloseReason) {
        let lasting = self.first().closing_time();
        self.shared.life.close(now, reason, lasting);
    }

    /// Announces to the peer that this side is about to stop, in the form that the peer
    /// understands: LEAVING in place of SUCCESSOR, or nothing.
    pub(crate) fn announce(&mut self, farewell: StopAnnouncement) {
        if farewell == StopAnnouncement::Successor && self.peer.successor {
            self.shared.streams.send_control(Frame::Successor);
        } else if self.peer.leaving {
            self.shared.streams.send_control(Frame::Leaving);
        }
    }

    /// Returns whether another process at the peer's address takes new sessions.
    pub(crate) fn is_succeeded(&self) -> bool {
        self.shared.is_succeeded()
    }

    /// Builds CLOSE if it is due. Each one goes over all paths.
    pub(super) fn transmit_close(
        &mut self,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<PacketEnvelope> {
        let life = &mut self.shared.life;
        life.send_time().filter(|(time, _)| *time <= now)?;
        let number = self.links.as_ref().map_or(0, |links| links.next_close);
        let is_last = number + 1 >= self.paths.len();
        let reason = if is_last { life.take_message(now) } else { life.closing_for() }?;
        if let Some(links) = &mut self.links {
            links.next_close = if is_last { 0 } else { number + 1 };
        }
        self.paths.get_mut(number)?.transmit_close(&mut self.shared, now, reason, out)
    }
}

impl SessionPath {
    /// How long CLOSE is repeated for a peer that keeps sending.
    fn closing_time(&self) -> Duration {
        // Three probe delays, as the closing period of RFC 9000 §10.2.
        self.rtt.probe_delay(ACK_DELAY) * 3
    }

    /// Closes the session because the peer broke the protocol (`docs/slacp.md`, Violations).
    pub(super) fn fail(
        &self,
        shared: &mut SharedState,
        now: Instant,
        error: &dyn core::error::Error,
    ) {
        shared.failure = Some(error.to_string().into());
        shared.life.close(now, CloseReason::Violation, self.closing_time());
    }

    fn transmit_close(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        reason: CloseReason,
        out: &mut Vec<u8>,
    ) -> Option<PacketEnvelope> {
        let header = self.write_header(self.sender.sent.next_number(), out);
        Frame::Close(reason).write(out, false);
        self.seal(shared, now, &header, out, self.remote.address, None)
    }
}
