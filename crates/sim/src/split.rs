//! The state of a split connection at one of its gateways.

use std::sync::Arc;

use compression::Coded;
use pep::relay::{Failure, Relay, Side};
use tcp::{ByteRange, Connection, Event};
use units::Instant;

use crate::agenda::Alarm;
use crate::path::Path;
use crate::slab::Key;
use crate::socket::Hosts;

/// The gateway's end of a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegEnd {
    Tcp(Key),
    Stream(slacp::SessionId, slacp::StreamId),
}

/// One of the two legs, and the data read from it.
#[derive(Default)]
pub(crate) struct Leg {
    /// `None` until it is opened, and after it was closed.
    pub(crate) end: Option<LegEnd>,
    /// Data read but not yet written to the other leg.
    pub(crate) held: ByteRange,
    /// Number of bytes read so far.
    pub(crate) position: u64,
    /// True once the TCP peer's FIN has arrived.
    pub(crate) is_ended: bool,
    /// The failure of the leg's connection or stream.
    pub(crate) failure: Option<Failure>,
    /// A failure that has not been reported to the relay yet.
    pub(crate) unhandled: Option<Failure>,
    /// Compresses and decompresses the data of a stream.
    pub(crate) coded: Option<Box<Coded>>,
}

impl Leg {
    /// Processes the events of the leg's connection.
    pub(crate) fn take_events(&mut self, tcp: &mut Connection<ByteRange>) {
        while let Some(event) = tcp.poll_event() {
            match event {
                Event::Finished => self.is_ended = true,
                Event::Aborted(abort) => {
                    self.failure = Some(Failure::of_connection(abort, self.is_ended));
                    self.unhandled = self.failure;
                }
                _ => {}
            }
        }
    }
}

/// The progress of a split connection.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The client's handshake is not complete.
    Accepting,
    /// The client is connected, but there is no session yet in which to open a stream.
    Waiting,
    /// The peer has opened a stream, and the next segment is being connected, until this time at most.
    Dialling(Instant),
    /// The relay runs.
    Relaying,
}

pub(crate) struct Split {
    pub(crate) path: Arc<Path>,
    /// The gateway's index on the path.
    pub(crate) at: usize,
    pub(crate) hosts: Hosts,
    pub(crate) stage: Stage,
    pub(crate) relay: Relay,
    /// Indexed by [`Side`].
    pub(crate) legs: [Leg; 2],
    pub(crate) alarm: Alarm,
}

impl Split {
    pub(crate) fn new(path: &Arc<Path>, at: usize, hosts: Hosts) -> Self {
        Self {
            path: Arc::clone(path),
            at,
            hosts,
            stage: Stage::Accepting,
            relay: Relay::early(),
            legs: [Leg::default(), Leg::default()],
            alarm: Alarm::default(),
        }
    }

    /// Returns the side whose leg has this end; `None` if it was closed.
    pub(crate) fn side_of(&self, end: LegEnd) -> Option<Side> {
        Side::BOTH.into_iter().find(|side| self.legs[*side as usize].end == Some(end))
    }

    pub(crate) fn ends(&self) -> [Option<LegEnd>; 2] {
        self.legs.each_ref().map(|leg| leg.end)
    }

    pub(crate) fn leg(&self, side: Side) -> &Leg {
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
        let mut leg = Leg::default();
        tcp[0].close();
        exchange(at_ms(2), &mut tcp);
        leg.take_events(&mut tcp[1]);
        assert!(leg.is_ended && leg.failure.is_none());
        tcp[0].abort(at_ms(3));
        exchange(at_ms(3), &mut tcp);
        leg.take_events(&mut tcp[1]);
        assert_eq!(
            (leg.failure, leg.unhandled.take()),
            (Some(Failure::Closed), Some(Failure::Closed))
        );
        leg.take_events(&mut tcp[1]);
        assert_eq!((leg.failure, leg.unhandled), (Some(Failure::Closed), None));
    }
}
