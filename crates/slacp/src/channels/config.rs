//! Packet channels as the owner of an endpoint configures them.

use core::time::Duration;

use units::ByteCount;

use crate::ClassId;
use crate::wire::frame::MAX_DEADLINE;

/// The handling of losses on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorControl {
    /// Lost packets are not repaired.
    None,
    /// FEC repairs follow the packets. A packet that they cannot restore is lost.
    Fec,
    /// A lost packet is retransmitted once.
    Arq,
    /// FEC repairs follow the packets, and a packet that they cannot restore is retransmitted once.
    FecArq,
}

impl ErrorControl {
    pub(crate) fn has_fec(self) -> bool {
        matches!(self, Self::Fec | Self::FecArq)
    }

    pub(crate) fn has_arq(self) -> bool {
        matches!(self, Self::Arq | Self::FecArq)
    }
}

/// The rule by which a channel's queue drops packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueDiscipline {
    /// Each flow's queue is kept short by CoDel (RFC 8289). When the channel's queue is full, the
    /// flow with the longest queue loses its oldest packet.
    #[default]
    CoDel,
    /// A packet that finds the channel's queue full is dropped. Flows still take turns.
    DropTail,
}

/// The settings of a channel for packets that this side sends. The peer configures its own
/// direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelConfig {
    /// Retransmission and FEC of lost packets.
    pub error_control: ErrorControl,
    /// The class whose share of the rate the channel uses.
    pub class: ClassId,
    /// Time that the receiver waits for a missing packet before it delivers the ones after it, at
    /// most 10 s. At zero, packets are delivered as they arrive.
    pub deadline: Duration,
    /// Maximum number of bytes waiting to be sent, over all flows.
    pub queue: ByteCount,
    /// The rule by which waiting packets are dropped.
    pub discipline: QueueDiscipline,
    /// Maximum time that a packet waits to be sent.
    pub queue_time: Duration,
    /// Compress headers if the peer understands that. Costs some processing; now and then a packet
    /// becomes longer by a few bytes.
    pub compress: bool,
    /// Maximum time that a packet waits for others, to share a packet of the hop with them. At zero
    /// packets do not wait for that; those that wait anyway share a packet in any case.
    pub gather: Duration,
}

impl ChannelConfig {
    /// The defaults for an error control: deadlines of 0 (none), 100 ms (FEC) and 1 s (ARQ: a
    /// geostationary round trip plus time to detect the loss); queues of 1 MB and 500 ms; no header
    /// compression and no gathering.
    pub fn new(error_control: ErrorControl) -> Self {
        let deadline = match error_control {
            ErrorControl::None => Duration::ZERO,
            ErrorControl::Fec => Duration::from_millis(100),
            ErrorControl::Arq | ErrorControl::FecArq => Duration::from_secs(1),
        };
        Self {
            error_control,
            class: ClassId::DEFAULT,
            deadline,
            queue: ByteCount::new(1_000_000),
            discipline: QueueDiscipline::CoDel,
            queue_time: Duration::from_millis(500),
            compress: false,
            gather: Duration::ZERO,
        }
    }

    /// A channel of a session that runs as a link layer ([`Config::link_layer`]), as in the SLACP
    /// paper (§2, §4): losses are repaired by one retransmission, which FEC protects, and packets
    /// wait in a drop-tail queue of `queue` bytes until the link below takes them. The receiver
    /// waits for a missing packet until the sender reports that it has given it up; the deadline of
    /// 10 s only ends a wait for a sender that has vanished.
    ///
    /// [`Config::link_layer`]: crate::Config::link_layer
    pub fn link_layer(queue: ByteCount) -> Self {
        Self {
            deadline: MAX_DEADLINE,
            queue,
            discipline: QueueDiscipline::DropTail,
            queue_time: Duration::MAX,
            ..Self::new(ErrorControl::Arq)
        }
    }
}
