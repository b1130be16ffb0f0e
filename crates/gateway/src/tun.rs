//! A network device of our own, and the rule and routing table that lead packets into it: for the tunnel
//! and for the TCP stack of a solo gateway.

pub(crate) mod device;
pub(crate) mod route;

/// Maximum size of an IP packet, in bytes.
pub(crate) const LONGEST_PACKET: usize = 65_535;
