//! Identifiers of sessions, streams, channels, classes and gateways; addresses that count as one
//! network or client.

pub(crate) mod networks;

/// Identifies a session of an endpoint. The endpoint never reuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) u64);

/// Identifies a stream of a session. The session never reuses it. The terminal opens even
/// identifiers, the hub odd ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// Identifies a packet channel of a session: 0 to 31, the same on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(crate) u8);

/// One more than the highest channel number.
pub(crate) const CHANNELS: u8 = 32;

impl ChannelId {
    /// The channel with this number; `None` beyond 31.
    pub const fn new(number: u8) -> Option<Self> {
        if number < CHANNELS { Some(Self(number)) } else { None }
    }

    /// The channel's number, 0 to 31.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The channel's bit in a mask of channels (parameter 8).
    pub(crate) const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// Identifies a class of a [`Config`](crate::Config).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClassId(pub(crate) u8);

impl ClassId {
    /// The class of all traffic not assigned to another one.
    pub const DEFAULT: Self = Self(0);
}

/// A Curve25519 public key, which identifies a gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl core::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Four bytes identify a gateway in logs.
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…")
    }
}
