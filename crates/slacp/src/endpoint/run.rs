//! Several datagrams at one time.

use std::net::SocketAddr;

use units::Instant;

use super::Endpoint;
use crate::{Ecn, SessionId};

/// Several datagrams that come or leave at the same time ([`Endpoint::run`]). It ends when dropped.
///
/// The datagrams are the same as without it, and in the same order.
pub struct Run<'a> {
    endpoint: &'a mut Endpoint,
    now: Instant,
}

impl<'a> Run<'a> {
    pub(super) fn new(endpoint: &'a mut Endpoint, now: Instant) -> Self {
        endpoint.core.now = now;
        Self { endpoint, now }
    }

    /// As [`Endpoint::handle_datagram_with_ecn`].
    pub fn handle_datagram(
        &mut self,
        from: SocketAddr,
        ecn: Ecn,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        self.endpoint.core.ecn_received = ecn;
        let session = self.endpoint.take_datagram(self.now, from, datagram);
        let session = session.filter(|id| self.endpoint.core.session(*id).is_some());
        // What follows must not find a session that is over.
        if session.is_none() {
            self.endpoint.core.settle();
        }
        session
    }

    /// As [`Endpoint::poll_transmit`], but appends to `buf`, so that several datagrams can be built in
    /// the buffer that they leave from. Without one, `buf` stays as it was.
    pub fn transmit(&mut self, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        let (core, now) = (&mut self.endpoint.core, self.now);
        if core.link.ready_at() > now {
            return None;
        }
        if let Some(sent) = core.transmit_outbox(now, buf) {
            return Some(sent);
        }
        core.answers_turn = !core.answers_turn;
        if core.answers_turn {
            let answer = core.transmit_answer(now, buf);
            return answer.or_else(|| core.transmit_session(now, buf));
        }
        let packet = core.transmit_session(now, buf);
        packet.or_else(|| core.transmit_answer(now, buf))
    }

    /// The endpoint, to ask about the datagram transmitted last ([`Endpoint::transmit_ecn`]).
    pub fn endpoint(&self) -> &Endpoint {
        self.endpoint
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.endpoint.core.settle();
    }
}
