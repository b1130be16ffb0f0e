//! Packet channels: IP packets are carried whole, each with the error control, class and deadline
//! of its channel (`docs/slacp.md`, Channels).

mod codel;
mod config;
mod flow;
mod headers;
mod inbound;
mod outbound;
mod piece;

pub(crate) use codel::CoDelParams;
pub(crate) use config::{CHANNELS, MAX_DEADLINE};
pub use config::{
    ChannelConfig, ChannelError, ChannelId, ConfigError, ErrorControl, QueueDiscipline,
};
pub(crate) use headers::{CONTEXTS, Compressor, Decompressor, Form, Rebuilt};
pub(crate) use inbound::Inbound;
pub(crate) use outbound::Outbound;
pub(crate) use piece::{Piece, Room};

/// The flows of a channel are hashed to this many lanes. Each lane is ordered on its own, so a loss
/// delays hardly any other flow.
pub(crate) const LANES: u8 = 64;

/// Maximum size of an IP packet, in bytes.
pub(crate) const MAX_PACKET: usize = 65_535;
