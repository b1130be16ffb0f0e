//! The receiving side of a session: what has come, what FEC restores, and packets in order.

use units::Instant;

use crate::Config;
use crate::channels::{Decompressor, Inbound};
use crate::event_log::EventLog;
use crate::rate::ecn::Tally;
use crate::recovery::Recovery;
use crate::recovery::fec::Decoder;
use crate::recovery::received::Received;
use crate::wire::frame::{CompressedPacket, ContextPacket, Packet, Repair, TruncatedOffset};

/// The receiving side of a session. The streams' data is in [`Streams`](crate::streams::Streams).
pub(super) struct Receiver {
    pub(super) received: Received,
    pub(super) ecn: Tally,
    pub(super) decoder: Decoder,
    pub(super) inbound: Inbound,
    /// The contexts that the peer has sent over this link.
    headers: Decompressor,
}

impl Receiver {
    /// Packets of channels may take a quarter of the memory, and FEC half.
    pub(super) fn new(config: &Config, memory: u64, recovery: Recovery) -> Self {
        let part = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            received: Received::new(recovery),
            ecn: Tally::default(),
            decoder: Decoder::new(part(memory / 2)),
            inbound: Inbound::new(&config.channels, part(memory / 4)),
            headers: Decompressor::default(),
        }
    }

    /// Memory in bytes.
    pub(super) fn held(&self) -> usize {
        let packets = self.inbound.held() + self.headers.held();
        self.received.held() + self.decoder.held() + packets
    }

    /// Frees what is not in use.
    pub(super) fn free_spare(&mut self) {
        self.received.free_spare();
        self.decoder.free_spare();
        self.inbound.free_spare();
    }

    /// Handles the contents of a packet as FEC sees them: the `source`, empty if repairs do not
    /// protect the packet, and the repair it carries. Returns the packets that can be restored now,
    /// by number.
    pub(super) fn decode(
        &mut self,
        number: u64,
        source: &[u8],
        repair: Option<&Repair>,
    ) -> Vec<(u64, Vec<u8>)> {
        let mut restored = self.decoder.keep(number, source);
        if let Some(repair) = repair {
            restored.extend(self.decoder.repair(number, repair));
        }
        restored
    }

    /// Handles a packet whose headers are to be kept, which came in SLACP packet `number`.
    pub(super) fn context(
        &mut self,
        (now, number): (Instant, u64),
        found: &ContextPacket,
        restored: bool,
        log: &mut EventLog,
    ) {
        let ContextPacket { slot, profile, channel, lane, sequence, data } = *found;
        self.headers.keep(number, slot, profile, (channel, lane, sequence), data);
        let sequence = TruncatedOffset::full(sequence);
        let packet = Packet { channel, lane, sequence, part: None, data };
        self.inbound.packet(now, &packet, restored, log);
    }

    /// Handles a packet without its headers, which came in SLACP packet `number`.
    pub(super) fn compressed(
        &mut self,
        (now, number): (Instant, u64),
        found: &CompressedPacket,
        restored: bool,
        log: &mut EventLog,
    ) {
        let rebuilt = self.headers.rebuild(number, found);
        self.inbound.rebuilt(now, rebuilt, restored, log);
    }

    /// Forgets everything below a number that the peer has settled.
    pub(super) fn settle(&mut self, floor: u64) {
        self.received.settle(floor);
        self.decoder.settle(floor);
    }
}
