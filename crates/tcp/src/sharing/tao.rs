//! The memory of T/TCP (RFC 1644) in a host: its own connection count, and those of its peers.

/// The settings of one connection. The owner takes the count from a counter of the host, so that each
/// connection has a greater one than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionSettings {
    /// The count of this connection (TCB.CCsend); 0 does without T/TCP.
    pub count: u32,
    /// The cache as earlier connections with the same peer have left it.
    pub cache: TaoCache,
}

/// The cache of a host for one peer (RFC 1644 §3.1). 0 is undefined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaoCache {
    /// `cache.CC`: the count of the last connection that the peer has opened to this host.
    pub received: u32,
    /// `cache.CCsent`: the count of the last connection that this host has opened to the peer, if the
    /// peer is known to remember it.
    pub sent: u32,
}

impl TaoCache {
    /// Performs the TAO test (§2.1): returns true if a SYN with this count is newer than all before
    /// it.
    pub(crate) fn is_new(self, count: u32) -> bool {
        count != 0 && self.received != 0 && is_after(count, self.received)
    }

    /// Remembers the count of an accepted SYN, unless that of a later one is known.
    pub(crate) fn note_received(&mut self, count: u32) {
        if self.received == 0 || is_after(count, self.received) {
            self.received = count;
        }
    }
}

/// Returns true if `count` is later than `other`: counts wrap around, like sequence numbers.
pub(crate) fn is_after(count: u32, other: u32) -> bool {
    count.wrapping_sub(other) as i32 > 0
}
