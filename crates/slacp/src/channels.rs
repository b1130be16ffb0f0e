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
pub use config::{ChannelConfig, ErrorControl, QueueDiscipline};
pub(crate) use headers::{CONTEXTS, Compressor, Decompressor, PacketForm, RebuiltPacket};
pub(crate) use inbound::InboundChannels;
pub(crate) use outbound::OutboundChannels;
pub(crate) use piece::{PacketPiece, PieceRoom};
