//! Closing a session (`docs/slacp.md`, Closing): the peer is informed at once, with the reason.

use core::ops::Range;

use units::Instant;

use super::{PacketEnvelope, Session};
use crate::recovery::received::ACK_DELAY;
use crate::wire::frame::{self, Frame};
use crate::{CloseReason, DownReason, Event, StopAnnouncement};

impl Session {
    /// Returns whether the owner can still use the session.
    pub(crate) fn is_usable(&self) -> bool {
        self.life.is_established()
    }

    /// Returns whether the endpoint can forget the session.
    pub(crate) fn is_over(&self) -> bool {
        self.life.is_closed()
    }

    /// Returns the reason for the session's end, only once.
    pub(crate) fn take_end(&mut self) -> Option<DownReason> {
        self.life.take_end()
    }

    /// Closes the session here and informs the peer.
    pub(crate) fn close(&mut self, now: Instant, reason: CloseReason) {
        // Three probe delays, as the closing period of RFC 9000 §10.2.
        self.life.close(now, reason, self.rtt.probe_delay(ACK_DELAY) * 3);
    }

    /// Announces to the peer that this side is about to stop, in the form that the peer
    /// understands: LEAVING in place of SUCCESSOR, or nothing.
    pub(crate) fn announce(&mut self, farewell: StopAnnouncement) {
        if farewell == StopAnnouncement::Successor && self.peer.successor {
            self.streams.send_control(Frame::Successor);
        } else if self.peer.leaving {
            self.streams.send_control(Frame::Leaving);
        }
    }

    /// Handles a peer's announcement that it is about to stop. SUCCESSOR may follow LEAVING; a
    /// repeated or weaker announcement is ignored.
    pub(super) fn on_leaving(&mut self, farewell: StopAnnouncement) {
        if self.peer_farewell.is_none_or(|before| before < farewell) {
            self.peer_farewell = Some(farewell);
            self.events.push_back(match farewell {
                StopAnnouncement::Leaving => Event::Leaving,
                StopAnnouncement::Successor => Event::Succeeded,
            });
        }
    }

    /// Returns whether another process at the peer's address takes new sessions.
    pub(crate) fn is_succeeded(&self) -> bool {
        self.peer_farewell == Some(StopAnnouncement::Successor)
    }

    /// Closes the session because the peer broke the protocol (`docs/slacp.md`, Violations).
    pub(super) fn fail(&mut self, now: Instant, error: &dyn core::error::Error) {
        self.stats.failure = Some(error.to_string().into());
        self.close(now, CloseReason::Violation);
    }

    /// Builds CLOSE if it is due.
    pub(super) fn transmit_close(
        &mut self,
        now: Instant,
        header: &Range<usize>,
        out: &mut Vec<u8>,
    ) -> Option<PacketEnvelope> {
        let reason = self.life.take_message(now)?;
        Frame::Close(reason).write(out, false);
        self.seal(now, header, out, self.peer.address, None)
    }

    /// Handles a packet received while closing: the peer has not received CLOSE yet, or is closing
    /// too. All frames but CLOSE are ignored.
    pub(super) fn heard_while_closing(&mut self, now: Instant, mut frames: &[u8]) {
        self.life.schedule_reply(now);
        while let Ok(Some(frame)) = frame::read(&mut frames) {
            if let Frame::Close(reason) = frame {
                self.life.closed_by_peer(reason);
            }
        }
    }
}
