//! Limits on the number of contexts in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limited number of slots, shared by all clones.
#[derive(Debug, Clone)]
pub struct ContextSlots {
    most: usize,
    taken: Arc<AtomicUsize>,
    /// The larger number of slots of which these are a part.
    whole: Option<Box<Self>>,
}

/// A slot in use; it is free again when this is dropped.
#[derive(Debug)]
pub struct ContextSlot {
    taken: Arc<AtomicUsize>,
    /// The slot of the larger number, in use as long as this.
    of_whole: Option<Box<Self>>,
}

impl ContextSlots {
    /// Creates `most` free slots.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default(), whole: None }
    }

    /// Creates `most` slots, each of which also takes one of these slots.
    pub fn within(&self, most: usize) -> Self {
        Self { whole: Some(Box::new(self.clone())), ..Self::new(most) }
    }

    /// Takes a slot if one is free.
    pub fn take(&self) -> Option<ContextSlot> {
        let next = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let mut slot = ContextSlot { taken: Arc::clone(&self.taken), of_whole: None };
        if let Some(whole) = &self.whole {
            slot.of_whole = Some(Box::new(whole.take()?));
        }
        Some(slot)
    }

    /// Number of slots in use.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for ContextSlot {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_until_it_is_dropped() {
        let slots = ContextSlots::new(2);
        let other = slots.clone();
        let (one, two) = (slots.take().unwrap(), other.take().unwrap());
        assert!(slots.take().is_none() && other.taken() == 2);
        drop(one);
        assert!(slots.take().is_some());
        assert_eq!(slots.taken(), 1);
        drop(two);
        assert_eq!(slots.taken(), 0);
    }

    #[test]
    fn a_part_takes_places_of_the_whole() {
        let whole = ContextSlots::new(3);
        let [one, two] = [whole.within(2), whole.within(2)];
        let places = [one.take(), one.take(), two.take()];
        assert!(places.iter().all(Option::is_some) && one.take().is_none() && two.take().is_none());
        drop(places);
        assert_eq!((whole.taken(), one.taken(), two.taken()), (0, 0, 0));
    }
}
