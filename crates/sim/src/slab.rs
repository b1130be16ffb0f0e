//! A slab whose keys are never reused.

/// Identifies an item of a slab: its index, and a generation that distinguishes it from earlier
/// items there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SlabKey {
    index: u32,
    generation: u32,
}

impl SlabKey {
    /// The index, which is reused when the item is gone.
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// A vector that reuses free indices with new keys.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Inserts the item that `make` creates from its key.
    pub(crate) fn insert(&mut self, make: impl FnOnce(SlabKey) -> T) -> SlabKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, place) = &mut self.slots[index as usize];
        let key = SlabKey { index, generation: *generation };
        *place = Some(make(key));
        key
    }

    #[inline]
    pub(crate) fn get(&self, key: SlabKey) -> Option<&T> {
        match self.slots.get(key.index as usize) {
            Some((generation, Some(thing))) if *generation == key.generation => Some(thing),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        match self.slots.get_mut(key.index as usize) {
            Some((generation, Some(thing))) if *generation == key.generation => Some(thing),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: SlabKey) -> Option<T> {
        let (generation, place) = self.slots.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let taken = place.take()?;
        // From now on keys of the removed item find nothing.
        *generation += 1;
        self.free.push(key.index);
        Some(taken)
    }

    /// Returns all items with their keys, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        self.slots.iter().zip(0..).filter_map(|((generation, place), index)| {
            Some((SlabKey { index, generation: *generation }, place.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Insert,
        /// With a key that was given out at some time, counted from the first.
        Remove(prop::sample::Index),
        Change(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Insert),
            any::<prop::sample::Index>().prop_map(Step::Remove),
            any::<prop::sample::Index>().prop_map(Step::Change),
        ]
    }

    proptest! {
        #[test]
        fn a_slab_is_a_map_whose_keys_are_new_each_time(
            steps in prop::collection::vec(step(), 0..100)
        ) {
            let mut slab = Slab::new();
            // Every key ever given out, with its item while there is one.
            let mut model: Vec<(SlabKey, Option<usize>)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert => {
                        let mut told = None;
                        let key = slab.insert(|key| {
                            told = Some(key);
                            number
                        });
                        prop_assert_eq!(told, Some(key));
                        prop_assert!(model.iter().all(|(known, _)| *known != key));
                        model.push((key, Some(number)));
                    }
                    Step::Remove(index) if !model.is_empty() => {
                        let (key, item) = index.get(&model);
                        prop_assert_eq!(slab.remove(*key), *item);
                        let place = index.index(model.len());
                        model[place].1 = None;
                    }
                    Step::Change(index) if !model.is_empty() => {
                        let place = index.index(model.len());
                        let (key, item) = &mut model[place];
                        prop_assert_eq!(slab.get_mut(*key).copied(), *item);
                        slab.get_mut(*key).into_iter().chain(item).for_each(|it| *it = number);
                    }
                    _ => {}
                }
                for (key, item) in &model {
                    prop_assert_eq!(slab.get(*key), item.as_ref());
                }
            }
            let mut live: Vec<_> = model.into_iter().filter_map(|(key, it)| Some((key, it?))).collect();
            live.sort_unstable();
            prop_assert_eq!(slab.iter().map(|(key, it)| (key, *it)).collect::<Vec<_>>(), live);
        }
    }

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
