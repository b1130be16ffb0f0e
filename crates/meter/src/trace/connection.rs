//! A connection: its two directions, its beginning and its end.

mod delivery;
mod half;
mod level;
mod ranges;
mod rtt;
mod sequence;
mod window;

use std::net::SocketAddr;
use std::time::Duration;

use units::Instant;

use super::capture::segment::CapturedSegment;
use super::copies::{CopyDetector, SenderEvidence};
use super::plot::Plot;
use super::report::{ConnectionEnding, ConnectionReport};
use half::DirectionAnalysis;

/// The analysis of one connection.
#[derive(Debug)]
pub(super) struct TracedConnection {
    number: u64,
    interface: u32,
    /// Addresses of A, which opened the connection, and of B.
    sides: [SocketAddr; 2],
    /// The two directions: sent by A, sent by B.
    halves: [DirectionAnalysis; 2],
    first: Instant,
    last: Instant,
    /// Time of the first SYN.
    opening: Option<Instant>,
    /// Time of the acknowledgement that completed the handshake.
    opened: Option<Instant>,
    /// The side that sent the first RST before both had sent FIN.
    reset_by: Option<usize>,
    /// Evidence by which copies of each side's packets are recognised.
    senders: [SenderEvidence; 2],
    /// Set if every packet has a time stamp.
    timed: bool,
    /// Number of times that the clock had been set back at the last packet.
    set_back: u64,
}

/// The two graphs of a connection: A to B, B to A.
pub type Plots = [Box<Plot>; 2];

impl TracedConnection {
    /// Starts with the connection's first segment.
    pub(super) fn new(number: u64, interface: u32, first: &CapturedSegment, plotted: bool) -> Self {
        // A SYN-ACK without a captured SYN shows which side opened.
        let answer = first.flags.syn && first.ack.is_some();
        let sides = if answer { [first.to, first.from] } else { [first.from, first.to] };
        Self {
            number,
            interface,
            sides,
            halves: [DirectionAnalysis::new(plotted), DirectionAnalysis::new(plotted)],
            first: first.time,
            last: first.time,
            opening: None,
            opened: None,
            reset_by: None,
            senders: Default::default(),
            timed: true,
            set_back: 0,
        }
    }

    /// Returns true if this segment starts another connection between the same ports: a SYN with a
    /// different number, or one after the end of this connection.
    pub(super) fn is_over_with(&self, segment: &CapturedSegment) -> bool {
        let side = self.side(segment);
        if !segment.flags.syn || segment.flags.rst {
            return false;
        }
        let ended = self.reset_by.is_some() || self.halves.iter().all(DirectionAnalysis::has_ended);
        match (self.halves[side].began_with(segment.sequence), segment.ack) {
            (Some(same), _) => ended || !same,
            // In a simultaneous open there is no SYN before the answer.
            (None, Some(_)) => ended,
            (None, None) => ended || self.halves[side].has_sent(),
        }
    }

    /// Adds a segment, unless it is a copy; returns true for a copy. `set_back` counts how often
    /// the clock was set back so far.
    pub(super) fn add_segment(
        &mut self,
        segment: &CapturedSegment,
        set_back: u64,
        copies: &mut CopyDetector,
    ) -> bool {
        let side = self.side(segment);
        self.timed &= segment.timed;
        self.last = self.last.max(segment.time);
        // A copy comes sooner than the sender could have retransmitted.
        let rtt = self.halves.iter().filter_map(DirectionAnalysis::rtt_min).min();
        if copies.is_copy(segment, self.interface, &mut self.senders[side], rtt) {
            self.halves[side].count_copy();
            return true;
        }
        if self.set_back != set_back {
            self.halves.iter_mut().for_each(DirectionAnalysis::clock_was_set);
            self.set_back = set_back;
        }
        // After both FINs a reset only refuses what came late.
        if segment.flags.rst && !self.halves.iter().all(DirectionAnalysis::has_ended) {
            self.reset_by.get_or_insert(side);
        }
        if segment.flags.syn && segment.ack.is_none() {
            self.opening.get_or_insert(segment.time);
        }
        let scale = self.scale(side);
        let said = self.halves[1 - side].add_peer_packet(segment, scale);
        // The client's acknowledgement of the server's SYN ends the handshake.
        if said.new && side == 0 && self.both_syns() && self.opening.is_some() {
            self.opened.get_or_insert(segment.time);
        }
        self.halves[side].add_own_packet(segment, &said);
        false
    }

    fn side(&self, segment: &CapturedSegment) -> usize {
        // A connection to itself has a single side.
        usize::from(segment.from != self.sides[0])
    }

    fn both_syns(&self) -> bool {
        self.halves.iter().all(|half| half.announced_scale().is_some())
    }

    /// Returns the window scale of `side`; `None` unless both SYNs were captured.
    fn scale(&self, side: usize) -> Option<u8> {
        let announced = [0, 1].map(|side| self.halves[side].announced_scale());
        let [Some(a), Some(b)] = announced else { return None };
        // Scaling needs the option in both SYNs (RFC 7323 §2.2).
        Some(a.and(b).and(if side == 0 { a } else { b }).unwrap_or(0))
    }

    fn ending(&self) -> ConnectionEnding {
        let [a, b] = &self.halves;
        match (self.reset_by, a.has_ended(), b.has_ended()) {
            // B answered the SYN with nothing but a reset.
            (Some(1), ..) if a.announced_scale().is_some() && b.only_reset() => {
                ConnectionEnding::Refused
            }
            (Some(0), ..) => ConnectionEnding::ResetByA,
            (Some(_), ..) => ConnectionEnding::ResetByB,
            (None, true, true) => ConnectionEnding::Closed,
            (None, true, false) => ConnectionEnding::HalfClosedByA,
            (None, false, true) => ConnectionEnding::HalfClosedByB,
            (None, false, false) if self.opening.is_some() && !b.has_sent() => {
                ConnectionEnding::Unanswered
            }
            (None, false, false) => ConnectionEnding::Open,
        }
    }

    /// Returns the report and the graphs; `begin` is the time of the capture's first packet.
    pub(super) fn finish(mut self, begin: Instant) -> (ConnectionReport, Option<Plots>) {
        self.halves.iter_mut().for_each(|half| half.finish(self.last));
        let [mut a, mut b] =
            [0, 1].map(|side| self.halves[side].report(self.first, self.scale(side)));
        if !self.timed {
            a.forget_times();
            b.forget_times();
        }
        let timed = |time: Option<Duration>| time.filter(|_| self.timed);
        let report = ConnectionReport {
            number: self.number,
            interface: self.interface,
            a: self.sides[0],
            b: self.sides[1],
            start: timed(Some(self.first.saturating_since(begin))),
            lasted: timed(Some(self.last.saturating_since(self.first))),
            handshake: timed(
                self.opening.zip(self.opened).map(|(from, to)| to.saturating_since(from)),
            ),
            begins_in_capture: self.both_syns(),
            ending: self.ending(),
            a_to_b: a,
            b_to_a: b,
        };
        let [a, b] = self.halves.map(|half| half.plot);
        // A graph over time needs times.
        (report, a.zip(b).filter(|_| self.timed).map(|(a, b)| [a, b]))
    }
}
