//! Constants that several parts of the rate share.

/// A full packet in bits, for limits that count packets.
pub(super) const PACKET: f64 = 12_000.0;

/// Minimum rate at which a session paces itself, in bit/s, whatever it measures.
pub(super) const SLOWEST: f64 = 10_000.0;
