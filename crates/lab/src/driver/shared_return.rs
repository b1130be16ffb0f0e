//! The return link that the terminals of a lab share, and the record of its grants.

pub(crate) mod allocation;

use link::dama::{Dama, DamaEvent};
use units::Instant;

/// The return link that terminals share.
pub(crate) struct SharedReturn {
    dama: Dama<Vec<u8>>,
    /// The latest time passed to the link; never decreases.
    advanced_to: Instant,
    record: Option<ReturnRecord>,
}

/// The events recorded on a shared return link.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReturnRecord {
    /// Packets as they arrived at the terminals.
    pub offered: Vec<OfferedPacket>,
    /// Requests and allocations, in the order of time.
    pub events: Vec<DamaEvent>,
    /// Set if the record is full, and ends before the lab did.
    pub is_full: bool,
}

/// A packet passed to a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfferedPacket {
    /// Time of its arrival at the terminal.
    pub at: Instant,
    /// The terminal's number, from 0.
    pub terminal: usize,
    /// Size of the packet in bytes.
    pub bytes: usize,
}

/// Maximum number of packets, and of events, in a record.
const MOST: usize = 200_000;

impl SharedReturn {
    pub(crate) fn new(dama: Dama<Vec<u8>>) -> Self {
        Self { dama, advanced_to: Instant::ZERO, record: None }
    }

    /// Starts recording the events of the link.
    pub(crate) fn record(&mut self) {
        self.dama.record_events();
        self.record.get_or_insert_default();
    }

    /// Returns the record so far; `None` unless recording was started.
    pub(crate) fn recorded(&self) -> Option<&ReturnRecord> {
        self.record.as_ref()
    }

    /// Returns the link, to be read or changed at the time returned by [`Self::advance`].
    pub(crate) fn dama(&mut self) -> &mut Dama<Vec<u8>> {
        &mut self.dama
    }

    pub(crate) fn read(&self) -> &Dama<Vec<u8>> {
        &self.dama
    }

    /// Passes a packet that came to a terminal at `arrived`.
    pub(crate) fn pass(&mut self, arrived: Instant, terminal: usize, packet: Vec<u8>) {
        self.advanced_to = self.advanced_to.max(arrived);
        if let Some(record) = &mut self.record
            && record.has_room()
        {
            record.offered.push(OfferedPacket {
                at: self.advanced_to,
                terminal,
                bytes: packet.len(),
            });
        }
        self.dama.handle_packet(self.advanced_to, terminal, packet);
    }

    /// Moves the link's time on to `now`, unless it is there already; returns that time.
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        self.advanced_to = self.advanced_to.max(now);
        self.advanced_to
    }

    /// Takes the packets that have arrived by the link's time, with the time of each.
    pub(crate) fn take_arrivals(&mut self, mut take: impl FnMut(Instant, Vec<u8>)) {
        while let Some((at, _, packet)) = self.dama.poll_arrival(self.advanced_to) {
            take(at, packet);
        }
        // Taken even if they are not recorded, or they would pile up.
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
    /// Returns true if more can be recorded; otherwise marks the record as full.
    fn has_room(&mut self) -> bool {
        self.is_full |= self.offered.len() >= MOST || self.events.len() >= MOST;
        !self.is_full
    }
}
