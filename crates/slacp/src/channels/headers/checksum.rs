//! The Internet checksum (RFC 1071).

/// The checksum of the concatenated parts. All but the last must have an even number of bytes.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let sum: u64 = parts.iter().map(|part| sum(part)).sum();
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The sum of the bytes, four at a time: the carries between the halves are folded in at the end
/// (RFC 1071 §2).
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_that_of_tcp(
            head in prop::collection::vec(any::<u16>(), 0..9),
            rest in prop::collection::vec(any::<u8>(), 0..1600)
        ) {
            let head: Vec<u8> = head.into_iter().flat_map(u16::to_be_bytes).collect();
            let whole = [&head[..], &rest].concat();
            prop_assert_eq!(checksum(&[&head, &rest]), tcp::wire::checksum(0, &whole));
        }
    }
}
