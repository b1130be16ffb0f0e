//! The wire format: datagrams, frames, integers (`docs/slacp.md`, Packets and Frames).

pub(crate) mod ecn;
pub(crate) mod frame;
pub(crate) mod open;
pub(crate) mod packet;
pub(crate) mod profile;
pub(crate) mod varint;
#[cfg(test)]
pub(crate) mod vectors;
