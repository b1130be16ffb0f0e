//! Compression of packet headers (`docs/slacp.md`, Header compression).
//!
//! A packet that is carried whole may become a *context*: its headers are the template of later
//! packets of its flow, which then carry only the fields that the template does not predict. The
//! sender uses a context once the peer has acknowledged it, and each packet carries its difference
//! from the context, not from the packet before it: whatever is lost, repeated or overtaken, every
//! packet that arrives can be rebuilt, byte for byte, and no context is ever damaged.
//!
//! Not compressed: packets with IPv4 options or IPv6 extension headers, fragments, and encrypted
//! headers.

mod checksum;
mod compressor;
mod context;
mod decompressor;
mod layout;
#[cfg(test)]
mod tests;

pub(crate) use compressor::{Compressor, PacketForm};
pub(crate) use decompressor::{Decompressor, RebuiltPacket};

/// Number of contexts that this side keeps for its peer, announced by parameter 17.
pub(crate) const CONTEXTS: u16 = 256;
