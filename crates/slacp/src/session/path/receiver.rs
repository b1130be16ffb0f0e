//! The receiving side of a path: received packet numbers, FEC decoding, and header contexts.

use units::Instant;

use crate::channels::{Decompressor, InboundChannels};
use crate::event::log::EventLog;
use crate::rate::ecn::Tally;
use crate::recovery::LossDetection;
use crate::recovery::fec::FecDecoder;
use crate::recovery::received::ReceivedPackets;
use crate::wire::frame::{
    ChannelPacket, CompressedPacket, ContextPacket, RepairFrame, TruncatedOffset,
};

/// The receiving side of a path. What the packets carry is in [`SharedState`](super::SharedState).
pub(in crate::session) struct ReceiveSide {
    pub(in crate::session) received: ReceivedPackets,
    pub(super) ecn: Tally,
    pub(in crate::session) decoder: FecDecoder,
    /// Header contexts that the peer has sent over this link.
    headers: Decompressor,
}

impl ReceiveSide {
    /// Creates the receiving side. FEC may hold half of `memory`.
    pub(super) fn new(memory: u64, recovery: LossDetection) -> Self {
        Self {
            received: ReceivedPackets::new(recovery),
            ecn: Tally::default(),
            decoder: FecDecoder::new(usize::try_from(memory / 2).unwrap_or(usize::MAX)),
            headers: Decompressor::default(),
        }
    }

    /// Bytes held by all parts of the receiving side.
    pub(super) fn held(&self) -> usize {
        self.received.held() + self.decoder.held() + self.headers.held()
    }

    /// Frees allocated memory that is not in use.
    pub(super) fn free_spare(&mut self) {
        self.received.free_spare();
        self.decoder.free_spare();
    }

    /// Passes a packet to the FEC decoder: its frames as `source`, empty if repairs do not protect
    /// it, and the repair that it carries. Returns the packets that can be restored now, by number.
    pub(super) fn decode(
        &mut self,
        number: u64,
        source: &[u8],
        repair: Option<&RepairFrame>,
    ) -> Vec<(u64, Vec<u8>)> {
        let mut restored = self.decoder.store(number, source);
        if let Some(repair) = repair {
            restored.extend(self.decoder.repair(number, repair));
        }
        restored
    }

    /// Handles CONTEXT, which came in SLACP packet `number`: keeps the headers, and the packet
    /// itself.
    pub(super) fn context(
        &mut self,
        inbound: &mut InboundChannels,
        (now, number): (Instant, u64),
        found: &ContextPacket,
        restored: bool,
        log: &mut EventLog,
    ) {
        let ContextPacket { slot, profile, channel, lane, sequence, data } = *found;
        self.headers.store(number, slot, profile, (channel, lane, sequence), data);
        let sequence = TruncatedOffset::full(sequence);
        let packet = ChannelPacket { channel, lane, sequence, part: None, data };
        inbound.packet(now, &packet, restored, log);
    }

    /// Handles COMPRESSED, which came in SLACP packet `number`.
    pub(super) fn compressed(
        &mut self,
        inbound: &mut InboundChannels,
        (now, number): (Instant, u64),
        found: &CompressedPacket,
        restored: bool,
        log: &mut EventLog,
    ) {
        let rebuilt = self.headers.rebuild(number, found);
        inbound.rebuilt(now, rebuilt, restored, log);
    }

    /// Forgets all packets below `floor`, which the peer has settled.
    pub(super) fn settle(&mut self, floor: u64) {
        self.received.settle(floor);
        self.decoder.settle(floor);
    }
}
