//! Packet channels as configured by the owner.

use core::time::Duration;

use units::ByteCount;

use crate::ClassId;
use crate::wire::frame::MAX_DEADLINE;

/// How a channel handles losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorControl {
    /// Losses are not repaired.
    None,
    /// Repairs follow the packets; what they cannot restore is lost.
    Fec,
    /// A lost packet is retransmitted once.
    Arq,
    /// Repairs and one retransmission.
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

/// How a channel's queue drops packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueDiscipline {
    /// Each flow's queue is kept short by CoDel (RFC 8289). When the channel's queue is full, the
    /// flow with the longest queue loses its oldest packet.
    #[default]
    CoDel,
    /// A packet that finds the channel's queue full is dropped. Flows still take turns.
    DropTail,
}

/// How a channel carries what this side sends on it. The peer configures its own direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelConfig {
    /// How losses are handled.
    pub error_control: ErrorControl,
    /// The class whose share of the rate the channel uses.
    pub class: ClassId,
    /// How long the receiver waits for a missing packet before it delivers the ones after it, at
    /// most 10 s. At zero, packets are delivered as they arrive.
    pub deadline: Duration,
    /// Maximum number of bytes waiting to be sent, over all flows.
    pub queue: ByteCount,
    /// What is dropped, and when.
    pub discipline: QueueDiscipline,
    /// Maximum time a packet waits to be sent.
    pub queue_time: Duration,
    /// Whether headers are compressed, if the peer understands that. Costs some processing, and no
    /// packet gets longer by more than a few bytes once in a while.
    pub compress: bool,
    /// How long a packet may wait for others, to share a packet of the hop with them. At zero nothing
    /// waits; packets that are waiting anyway share one in any case.
    pub gather: Duration,
}

impl ChannelConfig {
    /// The defaults for an error control: deadlines of 0 (none), 100 ms (FEC) and 1 s (ARQ: a
    /// geostationary round trip plus time to detect the loss); queues of 1 MB and 500 ms; headers as
    /// they are, and nothing gathered.
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
    /// wait in a drop-tail queue of this many bytes until the link below takes them. The receiver
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
