//! The profile of header compression: the assumptions about a flow that CONTEXT announces.

use super::varint;

/// The protocol after the transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Inner {
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
pub(crate) struct Profile {
    pub(crate) inner: Inner,
    /// Set if the IPv4 identification rises by one with each packet.
    pub(crate) id_counts: bool,
    /// Increment of the RTP timestamp with each packet.
    pub(crate) stride: u32,
}

const ID_COUNTS: u8 = 0x80;

impl Profile {
    /// Maximum encoded size, in bytes.
    pub(crate) const LONGEST: usize = 1 + 8;

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let inner = match self.inner {
            Inner::None => 0,
            Inner::Rtp => 1,
            Inner::Esp => 2,
        };
        out.push(inner | if self.id_counts { ID_COUNTS } else { 0 });
        if self.inner == Inner::Rtp {
            varint::write(out, self.stride.into());
        }
    }

    pub(crate) fn read(input: &mut &[u8]) -> Option<Self> {
        let (first, rest) = input.split_first()?;
        *input = rest;
        let inner = match first & !ID_COUNTS {
            0 => Inner::None,
            1 => Inner::Rtp,
            2 => Inner::Esp,
            _ => return None,
        };
        let stride = if inner == Inner::Rtp { varint::read(input)? } else { 0 };
        let stride = u32::try_from(stride).ok()?;
        Some(Self { inner, id_counts: first & ID_COUNTS != 0, stride })
    }
}
