//! Packet channels: IP packets that are not split, carried with the error
//! control, class and deadline of their channel (`docs/slacp.md`, Channels).

mod codel;
mod config;
mod flow;
mod inbound;
mod outbound;
mod piece;

pub(crate) use codel::Law;
pub(crate) use config::{CHANNELS, MAX_DEADLINE};
pub use config::{ChannelConfig, ChannelError, ChannelId, ConfigError, ErrorControl};
pub(crate) use inbound::Inbound;
pub(crate) use outbound::Outbound;
pub(crate) use piece::{Piece, Room};

/// The flows of a channel are spread over so many lanes, each in order by
/// itself, so that a loss holds up hardly any other flow.
pub(crate) const LANES: u8 = 64;

/// The longest IP packet.
pub(crate) const MAX_PACKET: usize = 65_535;
