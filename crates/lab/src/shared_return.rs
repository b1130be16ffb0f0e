//! The return link that the terminals of a lab share, and the record of who got what.

use link::dama::{Dama, Event};
use units::Instant;

/// The return link that terminals share.
pub(crate) struct SharedReturn {
    dama: Dama<Vec<u8>>,
    /// The latest time passed to it; never decreases.
    told: Instant,
    record: Option<ReturnRecord>,
}

/// What happened on a shared return link.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReturnRecord {
    /// Packets as they came to the terminals.
    pub offered: Vec<Offered>,
    /// Requests and allocations.
    pub events: Vec<Event>,
    /// Whether it is full, and ends before the lab did.
    pub is_full: bool,
}

/// A packet passed to a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offered {
    /// When.
    pub at: Instant,
    /// The terminal's number, from 0.
    pub terminal: usize,
    /// Its size in bytes.
    pub bytes: usize,
}

/// The most packets, and the most events, of a record.
const MOST: usize = 200_000;

impl SharedReturn {
    pub(crate) fn new(dama: Dama<Vec<u8>>) -> Self {
        Self { dama, told: Instant::ZERO, record: None }
    }

    /// Records what happens from now on.
    pub(crate) fn record(&mut self) {
        self.dama.record();
        self.record.get_or_insert_default();
    }

    /// What was recorded so far.
    pub(crate) fn recorded(&self) -> Option<&ReturnRecord> {
        self.record.as_ref()
    }

    /// The link, to be read or changed at the time returned by [`SharedReturn::advance`].
    pub(crate) fn dama(&mut self) -> &mut Dama<Vec<u8>> {
        &mut self.dama
    }

    pub(crate) fn read(&self) -> &Dama<Vec<u8>> {
        &self.dama
    }

    /// Passes a packet that came to a terminal at `arrived`.
    pub(crate) fn pass(&mut self, arrived: Instant, terminal: usize, packet: Vec<u8>) {
        self.told = self.told.max(arrived);
        if let Some(record) = &mut self.record
            && record.has_room()
        {
            record.offered.push(Offered { at: self.told, terminal, bytes: packet.len() });
        }
        self.dama.handle_packet(self.told, terminal, packet);
    }

    /// Moves its time on to `now`, unless it is there already; returns its time.
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        self.told = self.told.max(now);
        self.told
    }

    /// Takes the packets that have arrived by its time, with the time of each.
    pub(crate) fn take_arrivals(&mut self, mut take: impl FnMut(Instant, Vec<u8>)) {
        while let Some((at, _, packet)) = self.dama.poll_arrival(self.told) {
            take(at, packet);
        }
        while let Some(event) = self.dama.poll_event() {
            if let Some(record) = &mut self.record
                && record.has_room()
            {
                record.events.push(event);
            }
        }
    }
}

impl ReturnRecord {
    /// Whether more can be recorded; if not, says so from now on.
    fn has_room(&mut self) -> bool {
        self.is_full |= self.offered.len() >= MOST || self.events.len() >= MOST;
        !self.is_full
    }
}
