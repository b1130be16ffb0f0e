//! How many contexts may be in use at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of places, shared by all of its clones.
#[derive(Debug, Clone)]
pub struct Slots {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// So many free places.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes a place, if one is free.
    pub fn take(&self) -> Option<Slot> {
        if self.taken() >= self.most {
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(Slot(Arc::clone(&self.taken)))
    }

    /// Number of places that are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_until_it_is_dropped() {
        let slots = Slots::new(2);
        let other = slots.clone();
        let (one, two) = (slots.take().unwrap(), other.take().unwrap());
        assert!(slots.take().is_none() && other.taken() == 2);
        drop(one);
        assert!(slots.take().is_some());
        assert_eq!(slots.taken(), 1);
        drop(two);
        assert_eq!(slots.taken(), 0);
    }
}
