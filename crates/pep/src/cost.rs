//! Counts the work that foreign bytes cause, for tests and fuzz targets: bytes that a parser looks at,
//! moves or keeps. Time depends on the machine; this does not, so that a test can state a bound of work
//! per byte received. Other builds count nothing.

#[cfg(any(test, feature = "fuzzing", feature = "testkit"))]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts work on so many bytes.
    pub fn count(bytes: usize) {
        COUNT.set(COUNT.get() + bytes as u64);
    }

    /// Returns the result of `work`, and how much the calling thread has counted meanwhile.
    pub fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
        let before = COUNT.get();
        let result = work();
        (result, COUNT.get() - before)
    }
}

#[cfg(any(test, feature = "fuzzing", feature = "testkit"))]
pub use counted::{count, of};

/// Counts nothing.
#[cfg(not(any(test, feature = "fuzzing", feature = "testkit")))]
#[inline]
pub fn count(_bytes: usize) {}
