//! The bytes of connections on SLACP streams, which carry real data.

use std::sync::Arc;

use scenario::FlowContents as Spec;

/// Period of [`StreamContents::Numbers`]. Wrong, missing or duplicate bytes are detected.
const PERIOD: u64 = 251;

/// The bytes of both directions of a connection, by their positions.
#[derive(Debug, Clone, Default)]
pub(crate) enum StreamContents {
    /// Recurring numbers, for streams that are not compressed.
    #[default]
    Numbers,
    /// Pseudo-random bytes, which compress as badly as encrypted data.
    Noise,
    /// A text that is repeated without a gap.
    Sample(Arc<str>),
}

impl StreamContents {
    pub(crate) fn new(spec: &Spec) -> Self {
        match spec {
            Spec::Noise => Self::Noise,
            Spec::Sample(text) => Self::Sample(Arc::clone(text)),
        }
    }

    /// Returns the bytes from a position on.
    pub(crate) fn from(&self, position: u64) -> impl Iterator<Item = u8> {
        (position..).map(|at| self.byte(at))
    }

    fn byte(&self, at: u64) -> u8 {
        match self {
            Self::Numbers => (at % PERIOD) as u8,
            // Computed from the position alone, so that both ends know the bytes without keeping them.
            Self::Noise => splitmix64(at / 8).to_le_bytes()[(at % 8) as usize],
            Self::Sample(text) => text.as_bytes()[(at % text.len() as u64) as usize],
        }
    }
}

/// SplitMix64's output for a counter (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014): the n-th number without those before it.
fn splitmix64(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(contents: &StreamContents, from: u64, count: usize) -> Vec<u8> {
        contents.from(from).take(count).collect()
    }

    #[test]
    fn a_position_has_the_same_byte_however_it_is_come_by() {
        let sample = StreamContents::new(&Spec::Sample("abc".into()));
        for contents in [StreamContents::Numbers, StreamContents::new(&Spec::Noise), sample] {
            let all = bytes(&contents, 0, 1000);
            assert!((0..1000).all(|at| bytes(&contents, at as u64, 1) == all[at..=at]));
        }
    }

    #[test]
    fn a_sample_is_repeated_and_noise_is_even() {
        let sample = StreamContents::Sample("abc".into());
        assert_eq!(bytes(&sample, 4, 5), b"bcabc");
        let mut counts = [0_u32; 256];
        bytes(&StreamContents::Noise, 0, 256_000)
            .iter()
            .for_each(|byte| counts[usize::from(*byte)] += 1);
        // A thousand of each: a standard deviation of 32.
        assert!(counts.iter().all(|count| (840..1160).contains(count)), "{counts:?}");
    }
}
