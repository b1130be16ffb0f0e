//! Variable-length integers (RFC 9000 §16): 1, 2, 4 or 8 bytes, with the length in the two highest
//! bits of the first.

/// The largest value that can be encoded.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Encoded size of `value` in bytes.
pub(crate) const fn len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Appends `value`, which must be at most [`MAX`].
pub(crate) fn write(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= MAX);
    match len(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes a value from the front of `input`; `None` if it is truncated.
pub(crate) fn read(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let size = 1usize << (first >> 6);
    let (bytes, rest) = input.split_at_checked(size)?;
    let value = bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    *input = rest;
    // Without the two bits of the length.
    Some(value & (u64::MAX >> (66 - 8 * size as u32)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples_of_rfc_9000_a_1() {
        for (bytes, value) in [
            (&[0x25][..], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        ] {
            assert_eq!(read(&mut &*bytes), Some(value));
            assert_eq!(read(&mut &bytes[..bytes.len() - 1]), None);
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(value in 0..=MAX) {
            let mut out = Vec::new();
            write(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            let mut rest = &out[..];
            prop_assert_eq!(read(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }
    }
}
