//! Runs of datagrams that are received or sent at one time.

use std::net::SocketAddr;

use units::Instant;

use super::Endpoint;
use crate::{Ecn, SessionId};

/// Several datagrams that are received or sent at the same time ([`Endpoint::run`]). It ends when
/// dropped.
///
/// The datagrams are the same as without it, and in the same order.
pub struct DatagramRun<'a> {
    endpoint: &'a mut Endpoint,
    now: Instant,
    /// The last operation transmitted a datagram.
    has_sent: bool,
}

impl<'a> DatagramRun<'a> {
    pub(super) fn new(endpoint: &'a mut Endpoint, now: Instant) -> Self {
        endpoint.core.now = now;
        Self { endpoint, now, has_sent: false }
    }

    /// As [`Endpoint::handle_datagram_with_ecn`].
    pub fn handle_datagram(
        &mut self,
        from: SocketAddr,
        ecn: Ecn,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        self.has_sent = false;
        self.endpoint.core.ecn_received = ecn;
        let session = self.endpoint.take_datagram(self.now, from, datagram);
        let session = session.filter(|id| self.endpoint.core.session(*id).is_some());
        // The datagram may have ended its session, and the next one must not find it.
        if session.is_none() {
            self.endpoint.core.settle();
        }
        session
    }

    /// As [`Endpoint::poll_transmit`], but appends to `buf`, so that several datagrams can be built
    /// in the buffer that they are sent from. Leaves `buf` unchanged if there is none.
    pub fn transmit(&mut self, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        let sent = self.transmit_next(buf);
        self.has_sent = sent.is_some();
        sent
    }

    fn transmit_next(&mut self, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        let (core, now) = (&mut self.endpoint.core, self.now);
        // Handshakes and answers are paced, too.
        if core.link.ready_at() > now {
            return None;
        }
        if let Some(sent) = core.transmit_outbox(now, buf) {
            return Some(sent);
        }
        // A flood that provokes answers must not keep the sessions from sending, nor the other way
        // round.
        core.answers_turn = !core.answers_turn;
        if core.answers_turn {
            let answer = core.transmit_answer(now, buf);
            return answer.or_else(|| core.transmit_session(now, buf));
        }
        let packet = core.transmit_session(now, buf);
        packet.or_else(|| core.transmit_answer(now, buf))
    }

    /// Appends at most `most` more datagrams that are like the one transmitted last: of the same
    /// length, destination and kind ([`Endpoint::transmit_ecn`] and the like). Returns their
    /// number.
    ///
    /// They are the next ones that [`Self::transmit`] would append. There may be more of them.
    pub fn transmit_more(&mut self, buf: &mut Vec<u8>, most: usize) -> usize {
        if !self.has_sent {
            return 0;
        }
        let core = &mut self.endpoint.core;
        let count = core.transmit_more(self.now, buf, most);
        // Sessions and answers take turns.
        core.answers_turn ^= count % 2 == 1;
        count
    }

    /// The endpoint, to ask about the datagram transmitted last ([`Endpoint::transmit_ecn`]).
    pub fn endpoint(&self) -> &Endpoint {
        self.endpoint
    }
}

impl Drop for DatagramRun<'_> {
    fn drop(&mut self) {
        self.endpoint.core.settle();
    }
}
