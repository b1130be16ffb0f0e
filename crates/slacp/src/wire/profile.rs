//! The profile of header compression: the assumptions about a flow that CONTEXT announces.

use super::varint;

/// The protocol after the transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum InnerProtocol {
    /// A protocol that is not compressed.
    #[default]
    None,
    /// RTP in UDP (RFC 3550).
    Rtp,
    /// ESP, or ESP in UDP.
    Esp,
}

/// The rules by which the headers of a flow change from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeaderProfile {
    pub(crate) inner: InnerProtocol,
    /// Set if the IPv4 identification rises by one with each packet.
    pub(crate) id_counts: bool,
    /// Increment of the RTP timestamp with each packet.
    pub(crate) stride: u32,
}

const ID_COUNTS: u8 = 0x80;

impl HeaderProfile {
    /// Maximum encoded size, in bytes.
    pub(crate) const MAX_LEN: usize = 1 + 8;

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let inner = match self.inner {
            InnerProtocol::None => 0,
            InnerProtocol::Rtp => 1,
            InnerProtocol::Esp => 2,
        };
        out.push(inner | if self.id_counts { ID_COUNTS } else { 0 });
        if self.inner == InnerProtocol::Rtp {
            varint::write(out, self.stride.into());
        }
    }

    pub(crate) fn read(input: &mut &[u8]) -> Option<Self> {
        let (first, rest) = input.split_first()?;
        *input = rest;
        let inner = match first & !ID_COUNTS {
            0 => InnerProtocol::None,
            1 => InnerProtocol::Rtp,
            2 => InnerProtocol::Esp,
            _ => return None,
        };
        let stride = if inner == InnerProtocol::Rtp { varint::read(input)? } else { 0 };
        let stride = u32::try_from(stride).ok()?;
        Some(Self { inner, id_counts: first & ID_COUNTS != 0, stride })
    }
}
