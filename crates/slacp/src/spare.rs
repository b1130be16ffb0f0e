//! Memory of collections: the cost of an entry, and freeing of unused capacity.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use units::RangeSet;

/// Assumed overhead of a map entry, in bytes. A node of a `BTreeMap` has room for 11 entries and is
/// half full after insertions in order: 24 bytes of number and box take 48, and the allocator adds
/// 16 for the contents of the box.
pub(crate) const ENTRY: usize = 64;

/// Frees memory beyond the present contents, all of it if the collection is empty.
pub(crate) trait FreeSpare {
    fn free_spare(&mut self);
}

impl<T> FreeSpare for Vec<T> {
    fn free_spare(&mut self) {
        self.shrink_to_fit();
    }
}

impl<T> FreeSpare for VecDeque<T> {
    fn free_spare(&mut self) {
        self.shrink_to_fit();
    }
}

impl<K, V> FreeSpare for BTreeMap<K, V> {
    fn free_spare(&mut self) {
        // An empty map keeps a node for eleven entries.
        if self.is_empty() {
            *self = Self::new();
        }
    }
}

impl<T> FreeSpare for BTreeSet<T> {
    fn free_spare(&mut self) {
        // An empty set keeps a node for eleven entries.
        if self.is_empty() {
            *self = Self::new();
        }
    }
}

impl FreeSpare for RangeSet {
    fn free_spare(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}
