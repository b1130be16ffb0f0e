//! The state of a split connection at one of its gateways.

use std::sync::Arc;

use compression::CodedStream;
use pep::relay::{LegFailure, LegSide, Relay};
use tcp::{ByteRange, Connection, ConnectionEvent};
use units::Instant;

use super::path::ConnectionPath;
use super::socket::ConnectionHosts;
use crate::agenda::EventAlarm;
use crate::slab::SlabKey;

/// The gateway's end of a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegEnd {
    Tcp(SlabKey),
    Stream(slacp::SessionId, slacp::StreamId),
}

/// One of the two legs, and the data read from it.
#[derive(Default)]
pub(crate) struct SplitLeg {
    /// `None` until it is opened, and after it was closed.
    pub(crate) end: Option<LegEnd>,
    /// Data read but not yet written to the other leg.
    pub(crate) held: ByteRange,
    /// Number of bytes read so far.
    pub(crate) position: u64,
    /// True once the TCP peer's FIN has arrived.
    pub(crate) is_ended: bool,
    /// The failure of the leg's connection or stream.
    pub(crate) failure: Option<LegFailure>,
    /// A failure that has not been reported to the relay yet.
    pub(crate) unhandled: Option<LegFailure>,
    /// Compresses and decompresses the data of a stream.
    pub(crate) coded: Option<Box<CodedStream>>,
}

impl SplitLeg {
    /// Processes the events of the leg's connection.
    pub(crate) fn take_events(&mut self, tcp: &mut Connection<ByteRange>) {
        while let Some(event) = tcp.poll_event() {
            match event {
                ConnectionEvent::Finished => self.is_ended = true,
                ConnectionEvent::Aborted(abort) => {
                    self.failure = Some(LegFailure::of_connection(abort, self.is_ended));
                    self.unhandled = self.failure;
                }
                _ => {}
            }
        }
    }
}

/// The progress of a split connection.
#[derive(Debug)]
pub(crate) enum SplitStage {
    /// The client's handshake is not complete.
    Accepting,
    /// The client is connected, but there is no session yet in which to open a stream.
    Waiting,
    /// The peer has opened a stream, and the next segment is being connected, until this time at most.
    Dialling(Instant),
    /// Both legs are there, and the relay passes data between them.
    Relaying,
}

pub(crate) struct SplitConnection {
    pub(crate) path: Arc<ConnectionPath>,
    /// The gateway's index on the path.
    pub(crate) at: usize,
    pub(crate) hosts: ConnectionHosts,
    pub(crate) stage: SplitStage,
    pub(crate) relay: Relay,
    /// The legs towards the client and the server, indexed by [`LegSide`].
    pub(crate) legs: [SplitLeg; 2],
    pub(crate) alarm: EventAlarm,
}

impl SplitConnection {
    pub(crate) fn new(path: &Arc<ConnectionPath>, at: usize, hosts: ConnectionHosts) -> Self {
        Self {
            path: Arc::clone(path),
            at,
            hosts,
            stage: SplitStage::Accepting,
            relay: Relay::early(),
            legs: [SplitLeg::default(), SplitLeg::default()],
            alarm: EventAlarm::default(),
        }
    }

    /// Returns the side whose leg has this end; `None` if it was closed.
    pub(crate) fn side_of(&self, end: LegEnd) -> Option<LegSide> {
        LegSide::BOTH.into_iter().find(|side| self.legs[*side as usize].end == Some(end))
    }

    pub(crate) fn ends(&self) -> [Option<LegEnd>; 2] {
        self.legs.each_ref().map(|leg| leg.end)
    }

    pub(crate) fn leg(&self, side: LegSide) -> &SplitLeg {
        &self.legs[side as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at_ms, ends, exchange};

    #[test]
    fn a_leg_learns_of_the_end_and_of_a_failure_once() {
        let mut tcp = ends();
        exchange(at_ms(1), &mut tcp);
        let mut leg = SplitLeg::default();
        tcp[0].close();
        exchange(at_ms(2), &mut tcp);
        leg.take_events(&mut tcp[1]);
        assert!(leg.is_ended && leg.failure.is_none());
        tcp[0].abort(at_ms(3));
        exchange(at_ms(3), &mut tcp);
        leg.take_events(&mut tcp[1]);
        assert_eq!(
            (leg.failure, leg.unhandled.take()),
            (Some(LegFailure::Closed), Some(LegFailure::Closed))
        );
        leg.take_events(&mut tcp[1]);
        assert_eq!((leg.failure, leg.unhandled), (Some(LegFailure::Closed), None));
    }
}
