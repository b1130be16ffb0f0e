//! Memory that collections keep after they have been larger.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use units::RangeSet;

/// Gives back what is allocated beyond the present contents, down to nothing for an empty collection:
/// an empty `BTreeMap` or `BTreeSet` keeps a node for eleven entries.
pub(crate) trait Spare {
    fn free_spare(&mut self);
}

impl<T> Spare for Vec<T> {
    fn free_spare(&mut self) {
        self.shrink_to_fit();
    }
}

impl<T> Spare for VecDeque<T> {
    fn free_spare(&mut self) {
        self.shrink_to_fit();
    }
}

impl<K, V> Spare for BTreeMap<K, V> {
    fn free_spare(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
    }
}

impl<T> Spare for BTreeSet<T> {
    fn free_spare(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
    }
}

impl Spare for RangeSet {
    fn free_spare(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}
