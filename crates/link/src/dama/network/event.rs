//! What a return link reports.

use units::Instant;

use super::channel::ChannelKind;
use crate::dama::layout::Run;
use crate::dama::ncc::Grant;
use crate::dama::request::Request;

/// Something that happened, for statistics and pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A terminal sent a request in a slot without contention.
    Requested {
        /// When.
        at: Instant,
        /// Who.
        terminal: u32,
        /// For what.
        request: Request,
        /// Whether it gets lost on the way.
        lost: bool,
    },
    /// A terminal sends in a contention block.
    Contended {
        /// When the block begins.
        at: Instant,
        /// Who.
        terminal: u32,
        /// A request or cells of packets.
        channel: ChannelKind,
        /// What it asks for, if it is a request.
        request: Option<Request>,
        /// 1 for the first attempt, more for repetitions.
        attempt: u32,
        /// The frame's number.
        frame: u64,
        /// The carrier's number.
        carrier: u32,
        /// The slots of each burst's replicas, as numbers in the frame.
        slots: Vec<Vec<u32>>,
    },
    /// The hub has received the contention blocks of a frame in which something was sent.
    Received {
        /// When.
        at: Instant,
        /// Requests or packets.
        channel: ChannelKind,
        /// The frame's number.
        frame: u64,
        /// All that sent in it.
        senders: Vec<Received>,
    },
    /// A terminal's last attempt by contention has failed.
    GaveUp {
        /// When it learns of it.
        at: Instant,
        /// Who.
        terminal: u32,
        /// A request or packets.
        channel: ChannelKind,
    },
    /// A superframe was allocated.
    Allocated {
        /// When it begins.
        begins: Instant,
        /// Its number.
        superframe: u64,
        /// Who gets what, in the order of the slots.
        grants: Vec<Grant>,
        /// The slots of each grant, in the same order.
        plan: Vec<Vec<Run>>,
        /// Terminals whose MAC buffers held cells when it was decided, with their number.
        waiting: Vec<(u32, u32)>,
    },
}

/// What the hub received from a terminal in a contention block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Who.
    pub terminal: u32,
    /// On which carrier.
    pub carrier: u32,
    /// Bursts that were decoded.
    pub decoded: u32,
    /// Bursts that were not: collisions, and what errors or outages hit.
    pub collided: u32,
}
