//! Samples the data of a direction to decide whether compression pays.

/// Result of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleResult {
    /// Text, or bytes distributed so unevenly that they become shorter.
    Compressible,
    /// Encrypted, or as dense as encrypted data.
    Dense,
    /// Too few bytes to decide.
    Unclear,
}

/// Size of a sample, in bytes.
const SAMPLE: usize = 4096;
/// Fewest bytes whose distribution is significant.
const SMALLEST_SAMPLE: usize = 256;
/// Highest entropy that promises a gain, in bits per byte. Dense data has more than 7.1 in [`SMALLEST_SAMPLE`] bytes
/// and 7.9 in [`SAMPLE`]; media and archives have at least 7.
const MOST_ENTROPY: f64 = 6.5;
/// Of sixteen bytes of text at least this many are printable.
const PRINTABLE: usize = 15;

/// Samples data that may be the first of a direction.
pub(super) fn classify(data: &[u8]) -> SampleResult {
    let sample = &data[..data.len().min(SAMPLE)];
    if is_encrypted(sample) {
        SampleResult::Dense
    } else if is_text(sample) {
        SampleResult::Compressible
    } else if sample.len() < SMALLEST_SAMPLE {
        SampleResult::Unclear
    } else if bits_per_byte(sample) <= MOST_ENTROPY {
        SampleResult::Compressible
    } else {
        SampleResult::Dense
    }
}

/// Returns `true` if the data begins a TLS record (RFC 8446 §5.1; types 20 to 24, versions 3.x) or with the
/// banner of SSH (RFC 4253 §4.2).
pub(super) fn is_encrypted(data: &[u8]) -> bool {
    matches!(data, [20..=24, 3, 0..=4, ..]) || data.starts_with(b"SSH-")
}

/// Returns `true` if nearly all bytes are printable, as ASCII or as UTF-8, which the sample may cut off.
fn is_text(sample: &[u8]) -> bool {
    let is_utf8 = std::str::from_utf8(sample).err().is_none_or(|e| e.error_len().is_none());
    let printable = |byte: &&u8| match byte {
        b' '..=b'~' | b'\t' | b'\n' | b'\r' => true,
        byte => is_utf8 && !byte.is_ascii(),
    };
    let count = sample.iter().filter(printable).count();
    count > 0 && count * 16 >= sample.len() * PRINTABLE
}

/// Entropy of the bytes taken independently (Shannon 1948): 8 if all are equally frequent.
fn bits_per_byte(sample: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    sample.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let share = |count: u32| f64::from(count) / sample.len() as f64;
    let present = counts.into_iter().filter(|count| *count > 0).map(share);
    present.map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    fn noise(size: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; size];
        ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
        bytes
    }

    #[test]
    fn noise_of_any_size_is_never_compressible() {
        for seed in 0..200 {
            for size in [64, 255, 256, 300, 1000, 4096, 65_536] {
                let seen = classify(&noise(size, seed));
                let expected = if size < SMALLEST_SAMPLE {
                    SampleResult::Unclear
                } else {
                    SampleResult::Dense
                };
                assert_eq!(seen, expected, "{size} bytes, seed {seed}");
            }
        }
    }

    #[test]
    fn what_is_encrypted_is_known_by_its_first_bytes() {
        let zeros = vec![0; 500];
        for first in [&[0x16, 3, 1][..], &[0x17, 3, 3], b"SSH-2.0-OpenSSH_9.6\r\n"] {
            assert_eq!(classify(&[first, &zeros].concat()), SampleResult::Dense, "{first:?}");
        }
        assert_eq!(classify(&zeros), SampleResult::Compressible);
    }

    #[test]
    fn text_is_compressible_however_short() {
        for text in ["{", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "EHLO ship\r\n", "Grüße aus Köln"]
        {
            assert_eq!(classify(text.as_bytes()), SampleResult::Compressible, "{text}");
        }
        assert_eq!(classify(&[0, 1, 2]), SampleResult::Unclear);
        assert_eq!(classify(&[]), SampleResult::Unclear);
    }

    #[test]
    fn a_reply_whose_head_is_text_and_whose_body_is_dense_is_dense() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n".to_vec();
        assert_eq!(classify(&[head, noise(10_000, 1)].concat()), SampleResult::Dense);
    }
}
