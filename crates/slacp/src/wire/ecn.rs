//! The ECN codepoint of an IP packet (RFC 3168 §5), and counts of received ones.

use crate::wire::varint;

/// How many packets arrived with a codepoint, since the session was set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EcnCounts {
    /// With ECT(0).
    pub(crate) ect0: u64,
    /// With CE.
    pub(crate) ce: u64,
}

impl EcnCounts {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        varint::write(out, self.ect0);
        varint::write(out, self.ce);
    }

    pub(crate) fn read(input: &mut &[u8]) -> Option<Self> {
        Some(Self { ect0: varint::read(input)?, ce: varint::read(input)? })
    }
}
