//! Closing a session (`docs/slacp.md`, Closing): the peer learns at once that it is closed, and
//! why.

use core::time::Duration;
use std::net::SocketAddr;

use units::{ByteCount, Instant};

use super::{Session, Wake};
use crate::frame::{self, Frame};
use crate::packet::Header;
use crate::received::ACK_DELAY;
use crate::{CloseReason, DownReason};

/// When to send copies of the closing message, counted from the first: the link may lose one.
const COPIES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];
/// Minimum interval between closing messages to a peer that keeps sending.
const AGAIN: Duration = Duration::from_millis(100);

/// A session that is over for its owner and is informing the peer.
#[derive(Debug)]
pub(super) struct Closing {
    reason: CloseReason,
    begun: Instant,
    sent: usize,
    /// When the next closing message is due.
    next: Option<Instant>,
    /// When the session can be forgotten.
    until: Instant,
}

impl Session {
    /// Closes the session here and informs the peer.
    pub(crate) fn close(&mut self, now: Instant, reason: CloseReason) {
        let down = match reason {
            CloseReason::Violation => DownReason::Violation,
            reason => DownReason::Closed(reason),
        };
        self.end(down);
        let until = now + self.rtt.probe_delay(ACK_DELAY) * 3;
        self.closing = Some(Closing { reason, begun: now, sent: 0, next: Some(now), until });
    }

    /// Ends the session for its owner.
    pub(super) fn end(&mut self, why: DownReason) {
        self.ended.get_or_insert(why);
    }

    pub(super) fn closing_send_time(closing: &Closing) -> Option<(Instant, Wake)> {
        closing.next.map(|time| (time, Wake::Closing))
    }

    pub(super) fn closing_timeout(closing: &Closing) -> (Instant, Wake) {
        (closing.until, Wake::Closing)
    }

    pub(super) fn on_closing_timeout(&mut self, now: Instant) {
        if self.closing.as_ref().is_some_and(|closing| closing.until <= now) {
            self.over = true;
        }
    }

    /// Builds the closing message if it is due.
    pub(super) fn transmit_close(
        &mut self,
        now: Instant,
        header: &Header,
        out: &mut Vec<u8>,
    ) -> Option<(SocketAddr, ByteCount)> {
        let closing = self.closing.as_mut().filter(|one| one.next.is_some_and(|at| at <= now))?;
        closing.next = COPIES.get(closing.sent).map(|after| closing.begun + *after);
        closing.sent += 1;
        Frame::Close(closing.reason).write(out, false);
        self.seal(now, header, out, self.peer.address, None)
    }

    /// Handles a packet that comes while closing: the peer has not heard yet, or is closing too.
    pub(super) fn heard_while_closing(&mut self, now: Instant, frames: &[u8]) {
        let mut rest = frames;
        while let Ok(Some(frame)) = frame::read(&mut rest) {
            self.over |= matches!(frame, Frame::Close(_));
        }
        if let Some(closing) = self.closing.as_mut().filter(|closing| closing.next.is_none()) {
            closing.next = Some(now + AGAIN);
        }
    }
}
