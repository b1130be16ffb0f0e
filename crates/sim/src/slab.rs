//! Things with names that are never used twice.

/// Names a thing in a slab: its place, and which of the things it is that
/// were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The place; used again when the thing is gone.
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// A vector whose free places are used again, under new names.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Puts in what `make` makes of its name.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, place) = &mut self.places[index as usize];
        let key = Key { index, generation: *generation };
        *place = Some(make(key));
        key
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.places.get(key.index as usize) {
            Some((generation, Some(thing))) if *generation == key.generation => Some(thing),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.places.get_mut(key.index as usize) {
            Some((generation, Some(thing))) if *generation == key.generation => Some(thing),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, place) = self.places.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let taken = place.take()?;
        *generation += 1;
        self.free.push(key.index);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_a_name_is_not() {
        let mut slab = Slab::new();
        let first = slab.insert(|_| 'a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert(|_| 'b');
        assert_eq!(second.index(), first.index());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
    }
}
