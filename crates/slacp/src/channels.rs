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
pub(crate) use headers::{CONTEXTS, Compressor, Decompressor, Form, Rebuilt};
pub(crate) use inbound::Inbound;
pub(crate) use outbound::Outbound;
pub(crate) use piece::{Piece, Room};
