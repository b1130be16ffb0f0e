//! Packet channels, as the owner defines them.

use core::time::Duration;

use thiserror::Error;
use units::ByteCount;

use crate::scheduler::ClassId;

/// Names a packet channel of a session: 0 to 31, the same on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(crate) u8);

/// One more than the highest channel.
pub(crate) const CHANNELS: u8 = 32;

/// The longest deadline that a channel may have.
pub(crate) const MAX_DEADLINE: Duration = Duration::from_secs(10);

impl ChannelId {
    /// The channel with this number; `None` beyond 31.
    pub const fn new(number: u8) -> Option<Self> {
        if number < CHANNELS { Some(Self(number)) } else { None }
    }

    /// The channel's number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The channel in a mask of channels.
    pub(crate) const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// What a channel does about losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorControl {
    /// Nothing.
    None,
    /// Repairs follow the packets; what they cannot restore is lost.
    Fec,
    /// A lost packet is sent once more.
    Arq,
    /// Both.
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

/// How a channel carries what this side sends on it. The peer's side of the
/// channel has its own settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelConfig {
    /// What is done about losses.
    pub error_control: ErrorControl,
    /// Whose share of the rate it uses.
    pub class: ClassId,
    /// How long the receiver waits for a packet that is missing before it
    /// delivers those behind it, at most 10 s. At zero it never waits, and packets
    /// are delivered as they come.
    pub deadline: Duration,
    /// The most bytes that wait to be sent, over all flows. The oldest packet of
    /// the flow with the longest queue makes room.
    pub queue: ByteCount,
    /// The longest that a packet waits to be sent.
    pub queue_time: Duration,
}

impl ChannelConfig {
    /// The defaults for an error control: deadlines of 0 (none), 100 ms (FEC)
    /// and 1 s (ARQ: a geostationary round trip and time to notice); queues of
    /// 1 MB and 500 ms.
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
            queue_time: Duration::from_millis(500),
        }
    }
}

/// Why a class or channel cannot be added to a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A channel's class is none of the configuration's.
    #[error("channel {channel}: there is no class {class}; there are {classes}", channel = .channel.0, class = .class.0)]
    NoClass {
        /// The channel.
        channel: ChannelId,
        /// Its class.
        class: ClassId,
        /// How many classes there are.
        classes: usize,
    },
    /// A channel's deadline is beyond the longest.
    #[error("channel {channel}: the deadline is {deadline:?}, and at most {MAX_DEADLINE:?} are allowed", channel = .channel.0)]
    Deadline {
        /// The channel.
        channel: ChannelId,
        /// Its deadline.
        deadline: Duration,
    },
    /// No more classes.
    #[error("there are {most} classes already")]
    TooManyClasses {
        /// The most.
        most: usize,
    },
    /// A guarantee or maximum of nothing.
    #[error("a class is guaranteed or allowed 0 bit/s; leave a rate out that does not matter")]
    NoRate,
    /// A weight is zero or beyond 1000.
    #[error("the weight of a class is {weight}, and 1 to 1000 are allowed")]
    Weight {
        /// The weight.
        weight: u16,
    },
}

/// Why a packet cannot be sent on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// There is no such session, or it is over.
    #[error("no such session")]
    NoSession,
    /// The configuration has no such channel.
    #[error("no such channel")]
    NoChannel,
    /// The peer does not receive this channel.
    #[error("the peer has no such channel")]
    PeerHasNone,
    /// The packet is empty or too long for an IP packet.
    #[error("a packet of {size} bytes; 1 to 65,535 are allowed")]
    Size {
        /// Its size in bytes.
        size: usize,
    },
}
