//! The points of a picture, out of the logs of the side that sends a flow and the
//! side that receives it.

use std::collections::{BTreeMap, BTreeSet};

use slacp::{ChannelId, LogEvent, PayloadUnit};
use units::Instant;

/// What happened, and when.
pub(crate) type Event = (Instant, LogEvent);

/// Something happened to a packet of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) time: Instant,
    /// The number of the packet in its flow.
    pub(crate) sequence: u64,
}

/// What is drawn of the one flow of a channel, each ordered by time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// Packets sent for the first time.
    pub(crate) sent: Vec<Point>,
    /// Packets received of those.
    pub(crate) received: Vec<Point>,
    /// Packets handed over by the receiving side.
    pub(crate) delivered: Vec<Point>,
    /// Acknowledgements at the sender: the highest packet sent by then of those
    /// that the acknowledgement may be about.
    pub(crate) acknowledged: Vec<Point>,
    /// Rs: retransmissions sent.
    pub(crate) resent: Vec<Point>,
    /// Rr: retransmissions received.
    pub(crate) resent_received: Vec<Point>,
    /// Fd: packets restored by FEC.
    pub(crate) restored: Vec<Point>,
    /// Fa: acknowledgements restored by FEC, as in `acknowledged`.
    pub(crate) restored_acknowledgements: Vec<Point>,
}

impl Recovery {
    /// The points of the flow on `channel`, from the log of the side that sends it and
    /// of the side that receives it. A channel with several flows has several
    /// packets of each number, which this does not tell apart.
    pub(crate) fn of(sender: &[Event], receiver: &[Event], channel: ChannelId) -> Self {
        let mut recovery = Self::default();
        let again = recovery.add_sender(sender, channel);
        recovery.add_receiver(receiver, channel, &again);
        recovery
    }

    /// Gives the SLACP packets with retransmissions, and what these are.
    fn add_sender(&mut self, log: &[Event], channel: ChannelId) -> BTreeSet<(u64, u64)> {
        let (mut carried, mut again) = (BTreeMap::new(), BTreeSet::new());
        // Whether the packet being read was restored, with an acknowledgement.
        let mut restored = false;
        for &(time, event) in log {
            match event {
                LogEvent::Placed { packet, unit, again: resent } => {
                    let Some(sequence) = sequence(unit, channel) else { continue };
                    carried.insert(packet, sequence);
                    if resent {
                        again.insert((packet, sequence));
                    }
                    let points = if resent { &mut self.resent } else { &mut self.sent };
                    points.push(Point { time, sequence });
                }
                LogEvent::Received { .. } => restored = false,
                LogEvent::Restored { acknowledgement, .. } => restored = acknowledgement,
                LogEvent::AckReceived { largest } => {
                    let highest = carried.range(..=largest).map(|(_, sequence)| *sequence).max();
                    let point = highest.map(|sequence| Point { time, sequence });
                    self.acknowledged.extend(point);
                    self.restored_acknowledgements.extend(point.filter(|_| restored));
                }
                _ => {}
            }
        }
        again
    }

    fn add_receiver(&mut self, log: &[Event], channel: ChannelId, again: &BTreeSet<(u64, u64)>) {
        // The packet being read, and whether it came by FEC.
        let mut from = None;
        for &(time, event) in log {
            match event {
                LogEvent::Received { packet, .. } => from = Some((packet, false)),
                LogEvent::Restored { packet, .. } => from = Some((packet, true)),
                LogEvent::Arrived { unit, late: false } => {
                    let Some(sequence) = sequence(unit, channel) else { continue };
                    let points = match from {
                        Some((_, true)) => &mut self.restored,
                        Some((packet, _)) if again.contains(&(packet, sequence)) => {
                            &mut self.resent_received
                        }
                        _ => &mut self.received,
                    };
                    points.push(Point { time, sequence });
                }
                LogEvent::Delivered { unit } => {
                    let delivered = sequence(unit, channel);
                    self.delivered.extend(delivered.map(|sequence| Point { time, sequence }));
                }
                _ => {}
            }
        }
    }
}

/// The number of a packet of this channel.
fn sequence(unit: PayloadUnit, of: ChannelId) -> Option<u64> {
    match unit {
        PayloadUnit::Packet { channel, sequence, .. } if channel == of => Some(sequence),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelId = ChannelId::new(2).unwrap();

    fn unit(sequence: u64) -> PayloadUnit {
        PayloadUnit::Packet { channel: CHANNEL, lane: 7, sequence }
    }

    fn placed(packet: u64, sequence: u64, again: bool) -> LogEvent {
        LogEvent::Placed { packet, unit: unit(sequence), again }
    }

    fn arrived(sequence: u64, late: bool) -> LogEvent {
        LogEvent::Arrived { unit: unit(sequence), late }
    }

    /// The events, a nanosecond apart.
    fn log(events: &[LogEvent]) -> Vec<Event> {
        (0..).map(Instant::from_nanos).zip(events.iter().copied()).collect()
    }

    fn points<const N: usize>(points: [(u64, u64); N]) -> Vec<Point> {
        let point = |(time, sequence)| Point { time: Instant::from_nanos(time), sequence };
        points.map(point).to_vec()
    }

    #[test]
    fn sent_and_resent_are_distinguished_and_other_channels_left_out() {
        let other =
            PayloadUnit::Packet { channel: ChannelId::new(3).unwrap(), lane: 7, sequence: 9 };
        let other = LogEvent::Placed { packet: 3, unit: other, again: false };
        let sender = log(&[placed(1, 50, false), placed(2, 51, false), other, placed(4, 50, true)]);
        let recovery = Recovery::of(&sender, &[], CHANNEL);
        let expected = Recovery {
            sent: points([(0, 50), (1, 51)]),
            resent: points([(3, 50)]),
            ..Recovery::default()
        };
        assert_eq!(recovery, expected);
    }

    #[test]
    fn an_acknowledgement_is_as_high_as_what_was_sent_up_to_it() {
        let ack = |largest| LogEvent::AckReceived { largest };
        let restored = |acknowledgement| LogEvent::Restored { packet: 1, acknowledgement };
        let received = LogEvent::Received { packet: 2, bytes: 60 };
        let sender = log(&[
            ack(3),
            placed(4, 50, false),
            placed(6, 51, false),
            placed(7, 49, true),
            ack(5),
            restored(true),
            ack(7),
            received,
            ack(8),
            restored(false),
            ack(9),
        ]);
        let recovery = Recovery::of(&sender, &[], CHANNEL);
        assert_eq!(recovery.acknowledged, points([(4, 50), (6, 51), (8, 51), (10, 51)]));
        assert_eq!(recovery.restored_acknowledgements, points([(6, 51)]));
    }

    #[test]
    fn an_arrival_is_what_its_packet_was() {
        let received = |packet| LogEvent::Received { packet, bytes: 1053 };
        let restored = LogEvent::Restored { packet: 5, acknowledgement: false };
        let sender = log(&[placed(3, 50, false), placed(4, 51, true), placed(5, 52, true)]);
        let receiver = log(&[
            received(3),
            arrived(50, false),
            LogEvent::Delivered { unit: unit(50) },
            received(4),
            arrived(51, false),
            received(6),
            LogEvent::RepairReceived { packet: 6 },
            restored,
            arrived(52, false),
            received(7),
            arrived(52, true),
        ]);
        let recovery = Recovery::of(&sender, &receiver, CHANNEL);
        assert_eq!(recovery.received, points([(1, 50)]));
        assert_eq!(recovery.delivered, points([(2, 50)]));
        assert_eq!(recovery.resent_received, points([(4, 51)]));
        assert_eq!(recovery.restored, points([(8, 52)]));
    }
}
