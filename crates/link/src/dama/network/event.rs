//! The events that a return link records.

use units::Instant;

use super::channel::ChannelKind;
use crate::dama::layout::SlotRun;
use crate::dama::ncc::SlotGrant;
use crate::dama::request::TerminalRequest;

/// An event of a return link, for statistics and pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamaEvent {
    /// A terminal sent a request in a slot without contention.
    Requested {
        /// Time at which its slot begins.
        at: Instant,
        /// Index of the terminal in the configuration, from 0.
        terminal: u32,
        /// Rate, volume and forecast that it asks for.
        request: TerminalRequest,
        /// True if it gets lost on the way.
        lost: bool,
    },
    /// A terminal sends in a contention block.
    Contended {
        /// Time at which the block begins.
        at: Instant,
        /// Index of the terminal in the configuration, from 0.
        terminal: u32,
        /// The channel, for a request or for cells of packets.
        channel: ChannelKind,
        /// The requested capacity, if it is a request.
        request: Option<TerminalRequest>,
        /// 1 for the first attempt, more for repetitions.
        attempt: u32,
        /// Number of the frame since the start of the network.
        frame: u64,
        /// Number of the carrier in the frame, from 0.
        carrier: u32,
        /// The slots of each burst's replicas, as numbers in the frame.
        slots: Vec<Vec<u32>>,
    },
    /// The hub has received the contention blocks of a frame, with at least one burst.
    Received {
        /// Time at which the blocks have reached the hub.
        at: Instant,
        /// The channel, for requests or for packets.
        channel: ChannelKind,
        /// Number of the frame since the start of the network.
        frame: u64,
        /// All terminals that sent in it.
        senders: Vec<ReceivedBursts>,
    },
    /// A terminal's last attempt by contention has failed.
    GaveUp {
        /// Time at which it learns of the failure.
        at: Instant,
        /// Index of the terminal in the configuration, from 0.
        terminal: u32,
        /// The channel, for a request or for packets.
        channel: ChannelKind,
    },
    /// The network control centre has allocated a superframe.
    Allocated {
        /// Time at which it begins.
        begins: Instant,
        /// Number of the superframe since the start of the network.
        superframe: u64,
        /// The grants, in the order of their slots.
        grants: Vec<SlotGrant>,
        /// The slots of each grant, in the same order.
        plan: Vec<Vec<SlotRun>>,
        /// Terminals whose MAC buffers held cells at the decision, with the number of cells.
        waiting: Vec<(u32, u32)>,
    },
}

/// The bursts of a terminal in a contention block, as the hub received them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedBursts {
    /// Index of the terminal in the configuration, from 0.
    pub terminal: u32,
    /// Number of the carrier in the frame, from 0.
    pub carrier: u32,
    /// Number of bursts that were decoded.
    pub decoded: u32,
    /// Number of bursts that were not, because of collisions, errors or outages.
    pub collided: u32,
}
