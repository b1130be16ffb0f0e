//! The payload: a keyed stream that can be generated from any position.
//!
//! Byte `p` of a stream is byte `p mod 8` (little endian) of the word `mix(key + (p / 8 + 1)·γ)`:
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014)
//! in counter mode. Any position can be generated or checked without the bytes before it, and the
//! stream is incompressible. Streams of different keys or positions do not look alike, so loss,
//! duplication, reordering and cross-talk are all detected. This is not cryptography: it detects
//! faults, not forgeries.

/// The odd constant γ of SplitMix64: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
const WORD: usize = 8;
/// Number of bytes compared at a time.
const STRIDE: usize = 8 * WORD;

/// The direction of a stream. The two directions of a flow never carry the same bytes, so data
/// echoed back is not mistaken for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadSide {
    /// From the client to the server.
    Client,
    /// From the server to the client.
    Server,
}

/// Returns a key from the system's random numbers, so that no data of an earlier run can pass for
/// this one's.
///
/// # Errors
/// If the system provides no random numbers.
pub fn fresh_key() -> std::io::Result<u64> {
    getrandom::u64().map_err(std::io::Error::from)
}

/// A deterministic stream of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    key: u64,
}

impl Payload {
    /// The stream that `side` sends in a flow with this `key`.
    pub fn new(key: u64, side: PayloadSide) -> Self {
        // Data that is echoed back must not pass for the other side's.
        let lane = match side {
            PayloadSide::Client => 1,
            PayloadSide::Server => 2,
        };
        Self { key: mix(key.wrapping_add(mix(lane))) }
    }

    /// Writes the bytes at `offset..` of the stream into `buffer`.
    pub fn fill(self, offset: u64, buffer: &mut [u8]) {
        let (index, head) = self.head(offset, buffer.len());
        let (first, rest) = buffer.split_at_mut(head.len());
        first.copy_from_slice(head.as_slice());
        let mut words = rest.chunks_exact_mut(WORD);
        let mut at = index;
        for word in &mut words {
            word.copy_from_slice(&self.word(at).to_le_bytes());
            at = at.wrapping_add(1);
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&self.word(at).to_le_bytes()[..tail.len()]);
    }

    /// Compares `bytes` with the stream at `offset..`. Returns the offset of the first difference,
    /// if any.
    pub fn first_difference(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let (index, head) = self.head(offset, bytes.len());
        let (first, rest) = bytes.split_at(head.len());
        if first != head.as_slice() {
            return self.search(offset, first);
        }
        // Only the stride with the difference is searched byte by byte.
        let mut strides = rest.chunks_exact(STRIDE);
        let mut at = index;
        for stride in &mut strides {
            if self.differs(at, stride) {
                return self.search(at.wrapping_mul(WORD as u64), stride);
            }
            at = at.wrapping_add((STRIDE / WORD) as u64);
        }
        self.search(at.wrapping_mul(WORD as u64), strides.remainder())
    }

    /// Returns true if a stride differs from the stream at word `index`. Computed without a branch
    /// per word, so that the multiplications overlap.
    fn differs(self, index: u64, stride: &[u8]) -> bool {
        let mut difference = 0;
        let mut at = index;
        for word in stride.chunks_exact(WORD) {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            difference |= u64::from_le_bytes(bytes) ^ self.word(at);
            at = at.wrapping_add(1);
        }
        difference != 0
    }

    /// Compares byte by byte, for the few bytes that the fast path cannot handle.
    fn search(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        // A datagram with a foreign number may reach beyond the last offset.
        let offsets = (0..).map(|index| offset.wrapping_add(index));
        offsets.zip(bytes).find(|&(at, &byte)| self.byte(at) != byte).map(|(at, _)| at)
    }

    fn byte(self, offset: u64) -> u8 {
        self.word(offset / WORD as u64).to_le_bytes()[offset as usize % WORD]
    }

    fn word(self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_add(1).wrapping_mul(GAMMA)))
    }

    /// Returns the bytes before the first whole word, and the index of that word.
    fn head(self, offset: u64, length: usize) -> (u64, LeadingBytes) {
        let start = offset as usize % WORD;
        if start == 0 {
            return (offset / WORD as u64, LeadingBytes { bytes: [0; WORD], start: 0, end: 0 });
        }
        let end = WORD.min(start.saturating_add(length));
        let index = offset / WORD as u64;
        (index + 1, LeadingBytes { bytes: self.word(index).to_le_bytes(), start, end })
    }
}

/// The part of a word before a word boundary.
struct LeadingBytes {
    bytes: [u8; WORD],
    start: usize,
    end: usize,
}

impl LeadingBytes {
    fn len(&self) -> usize {
        self.end - self.start
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

/// The finaliser of SplitMix64 (Stafford's "Mix13").
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Derives the key of flow `index` from the key of its run.
pub fn flow_key(key: u64, index: u64) -> u64 {
    mix(key ^ mix(index.wrapping_mul(GAMMA)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(payload: Payload, offset: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0; length];
        payload.fill(offset, &mut buffer);
        buffer
    }

    #[test]
    fn the_counter_is_splitmix64() {
        // Outputs of SplitMix64 seeded with 1234567, the same as those of Java and C
        // implementations.
        let payload = Payload { key: 1_234_567 };
        assert_eq!(payload.word(0), 6_457_827_717_110_365_317);
        assert_eq!(payload.word(1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn sides_and_flows_differ() {
        let of = |key, side| bytes(Payload::new(key, side), 0, 64);
        assert_ne!(of(1, PayloadSide::Client), of(1, PayloadSide::Server));
        assert_ne!(
            of(flow_key(1, 0), PayloadSide::Client),
            of(flow_key(1, 1), PayloadSide::Client)
        );
    }

    #[test]
    fn a_byte_does_not_depend_on_the_way_to_it() {
        let payload = Payload::new(7, PayloadSide::Client);
        let whole = bytes(payload, 0, 200);
        for start in 0..100 {
            assert_eq!(bytes(payload, start, 100), whole[start as usize..start as usize + 100]);
        }
    }

    proptest! {
        #[test]
        fn what_was_filled_verifies(key: u64, offset in 0..u64::MAX / 2, length in 0usize..500) {
            let payload = Payload::new(key, PayloadSide::Server);
            prop_assert_eq!(payload.first_difference(offset, &bytes(payload, offset, length)), None);
        }

        #[test]
        fn the_first_wrong_byte_is_found(
            key: u64, offset in 0..u64::MAX / 2, length in 1usize..500,
            at: prop::sample::Index, later: prop::sample::Index, flip in 1u8..,
        ) {
            let payload = Payload::new(key, PayloadSide::Client);
            let mut data = bytes(payload, offset, length);
            let first = at.index(length);
            data[first] ^= flip;
            let second = first + later.index(length - first);
            if second != first {
                data[second] ^= flip;
            }
            prop_assert_eq!(payload.first_difference(offset, &data), Some(offset + first as u64));
        }
    }
}
