//! Test objects: as many bytes as the name says, always the same, and incompressible.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use units::ByteCount;

/// Maximum size, so that a mistyped name does not keep a machine busy.
const LARGEST: ByteCount = ByteCount::new(100_000_000_000);
/// Maximum part of an object that is in memory at a time, in bytes.
const CHUNK: usize = 65_536;

/// A test object of a certain size on `server`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestObject {
    size: ByteCount,
}

impl TestObject {
    /// Parses an object's name (`10MB`, `1500B`).
    pub fn named(name: &str) -> Option<Self> {
        let size: ByteCount = name.parse().ok()?;
        (size <= LARGEST).then_some(Self { size })
    }

    /// Returns the size of the object.
    pub fn size(self) -> ByteCount {
        self.size
    }

    /// Returns the object's bytes in pieces of up to 64 KiB.
    pub fn chunks(self) -> impl Iterator<Item = Vec<u8>> + Send {
        // Seeded by the size: an object has the same bytes in every run.
        let mut random = ChaCha8Rng::seed_from_u64(self.size.get());
        let mut left = self.size.get();
        core::iter::from_fn(move || {
            let length = left.min(CHUNK as u64) as usize;
            left -= length as u64;
            let mut chunk = vec![0; length];
            random.fill_bytes(&mut chunk);
            (length > 0).then_some(chunk)
        })
    }

    /// Returns the SHA-256 of the object's bytes in hexadecimal.
    pub(super) fn sha256(self) -> String {
        let mut digest = Sha256::new();
        self.chunks().for_each(|chunk| digest.update(&chunk));
        hex(digest)
    }
}

/// Returns the finished digest in hexadecimal.
pub(super) fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_size_of_its_name() {
        for (name, size) in [("64kB", 64_000), ("1500B", 1500), ("200 kB", 200_000), ("0B", 0)] {
            let object = TestObject::named(name).unwrap();
            assert_eq!(object.chunks().map(|chunk| chunk.len()).sum::<usize>(), size, "{name}");
        }
    }

    #[test]
    fn other_names_are_no_objects() {
        for name in ["", "index.html", "-1B", "101GB", "10Mb"] {
            assert_eq!(TestObject::named(name), None, "{name}");
        }
    }

    #[test]
    fn its_bytes_are_the_same_every_time() {
        let object = TestObject::named("1MB").unwrap();
        assert!(object.chunks().eq(object.chunks()));
        assert_ne!(object.sha256(), TestObject::named("64kB").unwrap().sha256());
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(TestObject::named("0B").unwrap().sha256(), empty);
    }
}
