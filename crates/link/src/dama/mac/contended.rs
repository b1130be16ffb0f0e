//! Packets that a terminal sends by contention.
//!
//! ```text
//!  MAC buffers ── gather ─▶ waiting ── launch ─▶ in the air ── handle_answer ─▶ gone, or waiting
//!                              └── or in granted slots, like any packet
//! ```
//!
//! They occupy the MAC buffers until the terminal knows that the hub has them. Those that are not
//! in the air are the next to leave in granted slots. The hub keeps the order of a terminal's
//! packets: those after a gap wait there until the gap is filled or given up.

use std::collections::VecDeque;

use units::Instant;

use super::{SegmentedPacket, TerminalBuffers};
use crate::dama::config::MacLimit;
use crate::{CarriedPacket, TrafficClass};

/// The packets taken for contention.
#[derive(Debug)]
pub(super) struct ContendedPackets<P> {
    /// The packets in order. `left` are the cells that the hub does not have.
    packets: VecDeque<SegmentedPacket<P>>,
    in_air: bool,
    /// Cells of each class's buffer in the air, and the part of them that the hub has.
    sent: [ContendedCells; TrafficClass::COUNT],
}

#[derive(Debug, Clone, Copy, Default)]
struct ContendedCells {
    cells: u32,
    /// Cells that the hub has.
    received: u32,
    /// Room in the buffer that these free, in the unit of its limit.
    freed: u64,
}

impl<P> Default for ContendedPackets<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), in_air: false, sent: Default::default() }
    }
}

impl<P> ContendedPackets<P> {
    pub(super) fn is_empty(&self) -> bool {
        // All packets may have been received although the terminal has no answer yet.
        self.packets.is_empty() && !self.in_air
    }

    /// Takes the next packet for granted slots.
    pub(super) fn pop(&mut self) -> Option<SegmentedPacket<P>> {
        if self.in_air { None } else { self.packets.pop_front() }
    }
}

impl<P: CarriedPacket> TerminalBuffers<P> {
    /// Returns true if packets that were taken for contention wait or are in the air.
    pub(in crate::dama) fn has_contended(&self) -> bool {
        let current = self.current.as_ref().is_some_and(|current| current.contended);
        current || !self.contended.is_empty()
    }

    /// Returns true if the hub lacks a packet that was taken for contention.
    pub(in crate::dama) fn has_gap(&self) -> bool {
        let current = self.current.as_ref().is_some_and(|current| current.contended);
        current || !self.contended.packets.is_empty()
    }

    /// Takes packets for contention, in the order in which they would leave: while they have at
    /// most `most` cells together and `choose` accepts the bytes taken before. Returns true if it
    /// took any.
    pub(in crate::dama) fn gather(&mut self, most: u32, choose: impl Fn(u64) -> bool) -> bool {
        let mut cells = 0u32;
        let mut bytes = 0;
        let mut taken = VecDeque::new();
        self.select();
        while let Some(mut packet) = self.current.take() {
            let all = cells.saturating_add(packet.left);
            if all > most || !choose(bytes) {
                // Not taken, so it stays the next one to leave.
                self.current = Some(packet);
                break;
            }
            packet.contended = true;
            (cells, bytes) = (all, bytes + packet.frame.len as u64);
            taken.push_back(packet);
            self.select();
        }
        self.contended.packets = taken;
        cells > 0
    }

    /// Returns the cells of each packet that was taken for contention, in order.
    pub(in crate::dama) fn contended_cells(&mut self) -> Vec<u32> {
        if let Some(begun) = self.current.take_if(|current| current.contended) {
            self.contended.packets.push_front(begun);
        }
        self.contended.packets.iter().map(|packet| packet.left).collect()
    }

    /// Records that all of them are sent.
    pub(in crate::dama) fn launch(&mut self) {
        debug_assert!(!self.contended.in_air, "sent again before the answer");
        self.contended.in_air = true;
        for packet in &self.contended.packets {
            let class = packet.class as usize;
            self.contended.sent[class].cells += packet.left;
            // No capacity is requested for cells in the air; the answer adds those that are
            // missing.
            let entered = &mut self.lanes[class].entered;
            *entered = entered.saturating_sub(packet.left);
        }
    }

    /// Records that the hub has decoded a cell of the packet at this index of
    /// [`TerminalBuffers::contended_cells`].
    pub(in crate::dama) fn handle_cell(&mut self, place: usize) {
        let packet = &mut self.contended.packets[place];
        packet.left -= 1;
        let sent = &mut self.contended.sent[packet.class as usize];
        sent.received += 1;
        // Room counted in bytes is only freed by whole packets.
        if let MacLimit::Cells(_) = self.limit {
            sent.freed += 1;
        }
    }

    /// Returns the next packet that the hub has with all before it, after the cells of an attempt.
    pub(in crate::dama) fn release(&mut self) -> Option<SegmentedPacket<P>> {
        debug_assert!(self.contended.in_air, "received, but not sent");
        let packet = self.contended.packets.pop_front_if(|packet| packet.left == 0)?;
        if let MacLimit::Bytes(_) = self.limit {
            self.contended.sent[packet.class as usize].freed += packet.frame.len as u64;
        }
        Some(packet)
    }

    /// Handles the answer to an attempt: frees the room of the decoded cells. The others wait
    /// again, and need capacity.
    pub(in crate::dama) fn handle_answer(&mut self, now: Instant) {
        self.contended.in_air = false;
        for class in TrafficClass::ALL {
            let ContendedCells { cells, received, freed } =
                core::mem::take(&mut self.contended.sent[class as usize]);
            let lane = &mut self.lanes[class as usize];
            lane.cells -= received;
            lane.held -= freed;
            // Cells that the hub lacks need capacity again, like new ones.
            lane.entered = lane.entered.saturating_add(cells - received);
            self.refill(now, class);
        }
    }

    /// Returns the next packet of which the hub has all cells, after one that has left in granted
    /// slots.
    pub(in crate::dama) fn follow(&mut self, now: Instant) -> Option<SegmentedPacket<P>> {
        if self.contended.in_air {
            return None;
        }
        let packet = self.contended.packets.pop_front_if(|packet| packet.left == 0)?;
        self.free(now, &packet);
        Some(packet)
    }

    /// Takes the next packet after the last attempt by contention has failed.
    pub(in crate::dama) fn give_up(&mut self, now: Instant) -> Option<SegmentedPacket<P>> {
        let current = self.current.take_if(|current| current.contended);
        let packet = current.or_else(|| self.contended.packets.pop_front())?;
        self.free(now, &packet);
        Some(packet)
    }

    /// Frees the room that a packet still takes in its MAC buffer.
    fn free(&mut self, now: Instant, packet: &SegmentedPacket<P>) {
        let lane = &mut self.lanes[packet.class as usize];
        lane.cells -= packet.left;
        lane.held -= match self.limit {
            MacLimit::Cells(_) => packet.left.into(),
            MacLimit::Bytes(_) => packet.frame.len as u64,
        };
        self.refill(now, packet.class);
    }

    /// Returns the cells of a class for which capacity is to be requested: those in its MAC buffer
    /// that are not in the air.
    pub(in crate::dama) fn waiting_cells(&self, class: TrafficClass) -> u32 {
        self.lanes[class as usize].cells - self.contended.sent[class as usize].cells
    }

    /// Returns the bytes that wait; packets in the MAC buffers count as whole cells.
    pub(in crate::dama) fn backlog(&self) -> u64 {
        let cells: u64 = self.lanes.iter().map(|lane| u64::from(lane.cells)).sum();
        cells * u64::from(self.cell.payload) + self.queued().bytes.get()
    }
}
