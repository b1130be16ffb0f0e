//! Errors of the owner's commands.

use core::time::Duration;

use thiserror::Error;

use crate::wire::frame::MAX_DEADLINE;
use crate::{ChannelId, ClassId};

/// Errors of operations on streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The session does not exist or is over.
    #[error("no such session")]
    NoSession,
    /// The stream does not exist, or was reset or closed.
    #[error("no such stream")]
    NoStream,
    /// This side has already finished the stream.
    #[error("the stream is already finished")]
    Finished,
    /// The peer's stream limit is reached.
    #[error("the peer allows at most {limit} streams")]
    TooMany {
        /// Maximum number of streams that the peer allows.
        limit: u32,
    },
    /// Existing streams leave too little memory for another one, here or at the peer. With default
    /// settings a new stream needs 64 kB.
    #[error("the session has no memory left for another stream")]
    NoRoom,
    /// The peer does not resolve names, answers no DNS questions, has no HTTP exchanges, or takes no
    /// bundles.
    #[error("the peer does not accept this kind of destination")]
    NoNames,
    /// The configuration does not have this class.
    #[error("no such class")]
    NoClass,
}

/// Reasons to reject a class or channel of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The configuration lacks the channel's class.
    #[error("channel {channel}: there is no class {class}, only {classes} classes", channel = .channel.0, class = .class.0)]
    NoClass {
        /// The channel that was not added.
        channel: ChannelId,
        /// The class that the channel names.
        class: ClassId,
        /// Number of classes in the configuration.
        classes: usize,
    },
    /// The channel's deadline is too long.
    #[error("channel {channel}: the deadline {deadline:?} exceeds {MAX_DEADLINE:?}", channel = .channel.0)]
    Deadline {
        /// The channel that was not added.
        channel: ChannelId,
        /// The deadline, above 10 s.
        deadline: Duration,
    },
    /// The maximum number of classes is reached.
    #[error("there are already {most} classes")]
    TooManyClasses {
        /// Maximum number of classes of a session.
        most: usize,
    },
    /// A guarantee or maximum is 0 bit/s.
    #[error("a class has a rate of 0 bit/s: expected a rate above 0, or none")]
    NoRate,
    /// The code point is above 63.
    #[error("the code point of a class is {dscp}: expected 0 to 63")]
    Dscp {
        /// The code point that is configured.
        dscp: u8,
    },
    /// The weight is outside 1 to 1000.
    #[error("the weight of a class is {weight}: expected 1 to 1000")]
    Weight {
        /// The weight that is configured.
        weight: u16,
    },
}

/// Errors of sending a packet on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The session does not exist or is over.
    #[error("no such session")]
    NoSession,
    /// The configuration lacks the channel.
    #[error("no such channel")]
    NoChannel,
    /// The peer does not receive this channel.
    #[error("the peer has no such channel")]
    PeerHasNone,
    /// The packet is empty or exceeds the maximum size of an IP packet.
    #[error("a packet of {size} bytes: expected 1 to 65,535")]
    Size {
        /// Size of the packet in bytes.
        size: usize,
    },
}

/// Reasons to reject a reported rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateError {
    /// The session does not exist or is over.
    #[error("no such session")]
    NoSession,
    /// The configuration sets the rate in another way.
    #[error("the rate is not set by a modem")]
    NotFromModem,
}
