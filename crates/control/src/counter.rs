//! Counts that a gateway's threads share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows, shared by threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        // Relaxed: a count is read alone, and orders no other memory.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds 1.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The present count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
