//! What happened in a session, packet by packet, when somebody asks
//! (`docs/event-log.md`).

mod json;

use std::collections::VecDeque;

use units::{BitRate, Instant};

use crate::channels::{ChannelId, Piece};
use crate::{SessionId, StreamId};

/// Something that happened, when, and in which session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry {
    /// When.
    pub time: Instant,
    /// Where.
    pub session: SessionId,
    /// What.
    pub event: LogEvent,
}

/// A piece of what a session carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a stream, from `start` to before `end`.
    Stream {
        /// The stream.
        stream: StreamId,
        /// The offset of the first byte.
        start: u64,
        /// The offset after the last.
        end: u64,
    },
    /// A packet of a channel, or a part of it.
    Packet {
        /// The channel.
        channel: ChannelId,
        /// The lane of the packet's flow.
        lane: u8,
        /// Its number in the lane.
        sequence: u64,
    },
}

impl From<&Piece> for Unit {
    fn from(piece: &Piece) -> Self {
        Self::Packet { channel: piece.channel, lane: piece.lane, sequence: piece.sequence }
    }
}

/// Why a packet never left its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The queue of the channel was full.
    Full,
    /// It had waited longer than the channel allows.
    Stale,
    /// The queue management wanted the sender to slow down.
    Aqm,
}

/// What happened. `packet` is the number of a SLACP packet; those sent and those
/// received are numbered apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEvent {
    /// A packet was sent.
    Sent {
        /// Its number.
        packet: u64,
        /// The size of its IP packet in bytes.
        bytes: usize,
        /// Whether repairs may protect it.
        source: bool,
    },
    /// The packet sent next carries this.
    Placed {
        /// The packet.
        packet: u64,
        /// What.
        unit: Unit,
        /// Whether it was sent before.
        again: bool,
    },
    /// A packet came.
    Received {
        /// Its number.
        packet: u64,
        /// The size of its IP packet in bytes.
        bytes: usize,
    },
    /// A packet that had not come was restored by FEC.
    Restored {
        /// Its number.
        packet: u64,
        /// Whether an acknowledgement was in it.
        acknowledgement: bool,
    },
    /// A packet, or a part, of a channel came, or was restored.
    Arrived {
        /// What.
        unit: Unit,
        /// Whether it had been delivered or given up before.
        late: bool,
    },
    /// A packet was handed to the owner.
    Delivered {
        /// What.
        unit: Unit,
    },
    /// Packets of a channel have been missing for too long.
    Missing {
        /// The channel.
        channel: ChannelId,
        /// The lane.
        lane: u8,
        /// The first number.
        first: u64,
        /// How many.
        count: u64,
    },
    /// An acknowledgement was sent.
    AckSent {
        /// The packet that carries it.
        packet: u64,
        /// The highest number it acknowledges.
        largest: u64,
    },
    /// An acknowledgement came.
    AckReceived {
        /// The highest number it acknowledges.
        largest: u64,
    },
    /// A packet was acknowledged.
    Acknowledged {
        /// Its number.
        packet: u64,
    },
    /// A packet was declared lost.
    Lost {
        /// Its number.
        packet: u64,
    },
    /// A packet of a channel was lost, and it is too late to send it again.
    GivenUp {
        /// What.
        unit: Unit,
    },
    /// A packet of a channel was dropped before it was sent.
    Dropped {
        /// The channel.
        channel: ChannelId,
        /// The lane.
        lane: u8,
        /// Why.
        why: DropReason,
    },
    /// A repair was sent.
    RepairSent {
        /// The packet that carries it.
        packet: u64,
        /// The first packet it may restore.
        base: u64,
        /// How many it protects.
        count: usize,
    },
    /// A repair came.
    RepairReceived {
        /// The packet that carried it.
        packet: u64,
    },
    /// Nothing was acknowledged for too long: the peer is asked.
    Probe,
    /// The rate at which packets are sent has changed.
    Rate {
        /// The new rate.
        rate: BitRate,
    },
    /// The peer does not answer any more.
    OutageBegins,
    /// It answers again.
    OutageEnds,
}

/// The events of one session, the oldest of which give way when there is no
/// room. Off, it is a null pointer.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Option<Box<Ring>>);

#[derive(Debug)]
struct Ring {
    capacity: usize,
    entries: VecDeque<(Instant, LogEvent)>,
    overwritten: u64,
}

impl EventLog {
    /// A log of at most `capacity` entries; off if that is zero.
    pub(crate) fn new(capacity: usize) -> Self {
        let ring = || Ring { capacity, entries: VecDeque::new(), overwritten: 0 };
        Self((capacity > 0).then(|| Box::new(ring())))
    }

    /// Notes at most so many from now on. Those noted stay, unless it is switched off.
    pub(crate) fn resize(&mut self, capacity: usize) {
        match &mut self.0 {
            Some(ring) if capacity > 0 => ring.capacity = capacity,
            _ => *self = Self::new(capacity),
        }
    }

    /// Notes an event, which is only made if anybody wants it.
    pub(crate) fn record(&mut self, now: Instant, event: impl FnOnce() -> LogEvent) {
        let Some(ring) = &mut self.0 else { return };
        while ring.entries.len() >= ring.capacity {
            ring.entries.pop_front();
            ring.overwritten += 1;
        }
        ring.entries.push_back((now, event()));
    }

    /// When the oldest event happened.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.0.as_ref()?.entries.front().map(|(time, _)| *time)
    }

    /// Takes the oldest event out.
    pub(crate) fn poll(&mut self) -> Option<(Instant, LogEvent)> {
        self.0.as_mut()?.entries.pop_front()
    }

    /// How many events nobody took in time.
    pub(crate) fn overwritten(&self) -> u64 {
        self.0.as_ref().map_or(0, |ring| ring.overwritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_the_others_counted() {
        let mut log = EventLog::new(3);
        for packet in 0..5 {
            log.record(Instant::from_nanos(packet), || LogEvent::Lost { packet });
        }
        assert_eq!((log.overwritten(), log.oldest()), (2, Some(Instant::from_nanos(2))));
        let kept: Vec<_> = core::iter::from_fn(|| log.poll()).map(|(_, event)| event).collect();
        assert_eq!(kept, [2, 3, 4].map(|packet| LogEvent::Lost { packet }));
    }

    #[test]
    fn it_is_switched_on_and_off() {
        let mut log = EventLog::new(0);
        let note = |log: &mut EventLog, packet| {
            log.record(Instant::from_nanos(packet), || LogEvent::Lost { packet });
        };
        note(&mut log, 1);
        log.resize(3);
        (2..5).for_each(|packet| note(&mut log, packet));
        log.resize(2);
        note(&mut log, 5);
        assert_eq!((log.overwritten(), log.oldest()), (2, Some(Instant::from_nanos(4))));
        log.resize(0);
        assert_eq!((log.poll(), log.overwritten()), (None, 0));
    }

    #[test]
    fn off_it_makes_no_event() {
        let mut log = EventLog::new(0);
        log.record(Instant::ZERO, || unreachable!());
        assert_eq!(log.poll(), None);
    }
}
