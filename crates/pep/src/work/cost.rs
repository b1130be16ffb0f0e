//! Counts the work caused by foreign bytes, for tests and fuzz targets: bytes that a parser reads, moves or
//! keeps. Unlike time it does not depend on the machine, so a test can assert a bound of work per byte
//! received. Other builds count nothing.

#[cfg(any(test, feature = "fuzzing", feature = "testkit"))]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts work on this many bytes.
    pub fn count(bytes: usize) {
        COUNT.set(COUNT.get() + bytes as u64);
    }

    /// Returns the result of `work`, and the amount that the calling thread counted meanwhile.
    pub fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
        let before = COUNT.get();
        let result = work();
        (result, COUNT.get() - before)
    }
}

#[cfg(any(test, feature = "fuzzing", feature = "testkit"))]
pub use counted::{count, of};

/// Does nothing in this build.
#[cfg(not(any(test, feature = "fuzzing", feature = "testkit")))]
#[inline]
pub fn count(_bytes: usize) {}
