//! An optional log of a session's events, packet by packet (`docs/event-log.md`).

mod json;

use std::collections::VecDeque;

use units::{BitRate, Instant};

use crate::{ChannelId, SessionId, StreamId};

/// An event with its time and session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry {
    /// The time of the event.
    pub time: Instant,
    /// The session it happened in.
    pub session: SessionId,
    /// The event, with its own fields.
    pub event: LogEvent,
}

/// A piece of payload: of a stream or of a packet channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadUnit {
    /// Bytes `start..end` of a stream.
    Stream {
        /// The stream of these bytes.
        stream: StreamId,
        /// The offset of the first byte.
        start: u64,
        /// The offset after the last byte.
        end: u64,
    },
    /// A packet of a channel, or a part of one.
    Packet {
        /// The channel of the packet.
        channel: ChannelId,
        /// The lane of the packet's flow, 0 to 63.
        lane: u8,
        /// The packet's number in the lane.
        sequence: u64,
    },
}

/// Reasons for dropping a packet from its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The channel's queue was full.
    Full,
    /// It waited longer than the channel allows.
    Stale,
    /// Active queue management signalled the sender to slow down.
    Aqm,
}

/// An event. `packet` is the number of a SLACP packet; each direction is numbered separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEvent {
    /// A SLACP packet was sent.
    Sent {
        /// Number of the packet that was sent.
        packet: u64,
        /// Size of the IP packet in bytes.
        bytes: usize,
        /// Repairs may protect the packet.
        source: bool,
    },
    /// The next packet sent carries this unit.
    Placed {
        /// Number of the packet that is being built.
        packet: u64,
        /// The unit that it carries.
        unit: PayloadUnit,
        /// The unit is a retransmission.
        again: bool,
    },
    /// An authentic SLACP packet was received.
    Received {
        /// Number of the packet, given by the peer.
        packet: u64,
        /// Size of the IP packet in bytes.
        bytes: usize,
    },
    /// A missing packet was restored by FEC.
    Restored {
        /// Number of the packet that was missing.
        packet: u64,
        /// The packet contained an acknowledgement.
        acknowledgement: bool,
    },
    /// A packet of a channel, or a part of one, was received or restored.
    Arrived {
        /// The unit that the packet carried.
        unit: PayloadUnit,
        /// It had been delivered or given up before.
        late: bool,
    },
    /// A packet was delivered to the owner.
    Delivered {
        /// The packet that was delivered.
        unit: PayloadUnit,
    },
    /// Packets of a channel were missing for too long and are given up.
    Missing {
        /// Channel of the missing packets.
        channel: ChannelId,
        /// Their lane in the channel.
        lane: u8,
        /// Number of the first missing packet in the lane.
        first: u64,
        /// Number of missing packets in a row.
        count: u64,
    },
    /// An acknowledgement was sent to the peer.
    AckSent {
        /// The packet that carries it.
        packet: u64,
        /// The highest number it acknowledges.
        largest: u64,
    },
    /// An acknowledgement was received from the peer.
    AckReceived {
        /// The highest number it acknowledges.
        largest: u64,
    },
    /// A packet was acknowledged for the first time.
    Acknowledged {
        /// Number of the acknowledged packet.
        packet: u64,
    },
    /// A packet was declared lost.
    Lost {
        /// Number of the lost packet.
        packet: u64,
    },
    /// A packet of a channel was lost, and it is too late to retransmit it.
    GivenUp {
        /// The packet that is given up.
        unit: PayloadUnit,
    },
    /// A packet of a channel was dropped before it was sent.
    Dropped {
        /// Channel of the dropped packet.
        channel: ChannelId,
        /// Its lane in the channel.
        lane: u8,
        /// The cause of the drop.
        why: DropReason,
    },
    /// A repair (FEC) was sent.
    RepairSent {
        /// The packet that carries it.
        packet: u64,
        /// The first packet it may restore.
        base: u64,
        /// Number of packets it protects.
        count: usize,
    },
    /// A repair (FEC) was received.
    RepairReceived {
        /// The packet that carried it.
        packet: u64,
    },
    /// No acknowledgement came for too long, so the peer is probed.
    Probe,
    /// The sending rate has changed.
    Rate {
        /// The rate from now on.
        rate: BitRate,
    },
    /// Too much was lost for too long: the circuit breaker has lowered the rate, or keeps it low.
    BreakerTripped {
        /// The rate from now on.
        rate: BitRate,
    },
    /// The circuit breaker tries the higher rate, or has tried it and waits for the result.
    BreakerTries {
        /// The rate from now on.
        rate: BitRate,
    },
    /// The configured or reported rate applies again.
    BreakerClosed {
        /// The configured or reported rate.
        rate: BitRate,
    },
    /// The configured or reported rate exceeds the link.
    RateExceedsLink {
        /// The part of the rate that the link carries.
        carries: BitRate,
    },
    /// The configured or reported rate no longer exceeds the link.
    RateFitsLink {
        /// The configured or reported rate.
        rate: BitRate,
    },
    /// The measured capacity has fallen, and stays low.
    CapacityFell {
        /// The capacity from now on.
        rate: BitRate,
    },
    /// The peer stopped answering (`docs/slacp.md`, Fades).
    OutageBegins,
    /// The peer answers again after an outage.
    OutageEnds,
}

/// The events of one session in a ring buffer; the oldest are overwritten. A null pointer while the
/// log is off.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Option<Box<LogRing>>);

/// The ring buffer of a log that is on.
#[derive(Debug)]
struct LogRing {
    capacity: usize,
    entries: VecDeque<(Instant, LogEvent)>,
    overwritten: u64,
}

impl EventLog {
    /// Creates a log of at most `capacity` entries; 0 turns it off.
    pub(crate) fn new(capacity: usize) -> Self {
        let ring = || LogRing { capacity, entries: VecDeque::new(), overwritten: 0 };
        Self((capacity > 0).then(|| Box::new(ring())))
    }

    /// Sets the capacity. Existing entries stay unless the log is turned off.
    pub(crate) fn resize(&mut self, capacity: usize) {
        match &mut self.0 {
            Some(ring) if capacity > 0 => ring.capacity = capacity,
            _ => *self = Self::new(capacity),
        }
    }

    /// Records an event. `event` is only called if the log is on.
    pub(crate) fn record(&mut self, now: Instant, event: impl FnOnce() -> LogEvent) {
        let Some(ring) = &mut self.0 else { return };
        // More than one if the capacity has been lowered.
        while ring.entries.len() >= ring.capacity {
            ring.entries.pop_front();
            ring.overwritten += 1;
        }
        ring.entries.push_back((now, event()));
    }

    /// Time of the oldest event not taken yet.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.0.as_ref()?.entries.front().map(|(time, _)| *time)
    }

    /// Removes and returns the oldest event.
    pub(crate) fn poll(&mut self) -> Option<(Instant, LogEvent)> {
        self.0.as_mut()?.entries.pop_front()
    }

    /// Number of events overwritten before they were taken.
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
