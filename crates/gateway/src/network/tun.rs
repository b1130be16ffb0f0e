//! A network device of our own ([`port`]), and the table, rule and routes that lead packets into it: for the tunnel
//! and for the TCP stack of a solo gateway.

pub(crate) mod device;
pub(crate) mod port;
mod slot;
pub(crate) mod table;

/// Maximum size of an IP packet, in bytes.
pub(crate) const LONGEST_PACKET: usize = 65_535;
