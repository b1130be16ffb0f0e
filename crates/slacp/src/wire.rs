//! The wire format: datagrams, frames, integers (`docs/slacp.md`, Packets and Frames); reasons
//! for an end; indices by which hubs and parts of a hub divide packets.

pub(crate) mod closing;
pub(crate) mod ecn;
pub(crate) mod frame;
pub(crate) mod index_share;
pub(crate) mod open;
pub(crate) mod packet;
pub(crate) mod parts;
pub(crate) mod profile;
pub(crate) mod varint;
#[cfg(test)]
pub(crate) mod vectors;
