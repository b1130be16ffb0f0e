//! Assignment of terminals to the parts of a hub ([`crate::wire::parts`]).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use units::Instant;

use crate::wire::packet::Mac;
use crate::{AggregateId, PublicKey};

/// Time for which a repeated initiation is passed on without being read again: as long as its
/// answer waits for the terminal's first packet.
const REPEATS: Duration = Duration::from_secs(30);

/// The part of the hub that each terminal belongs to. A terminal stays in its part for as long as
/// it is served: the state of its last session is there.
#[derive(Debug, Default)]
pub(crate) struct PartAssignments {
    /// Number of terminals in each part; empty if the hub has one part.
    sizes: Vec<usize>,
    terminals: BTreeMap<PublicKey, TerminalAssignment>,
    /// Terminals by the knocks of their last initiations.
    knocks: BTreeMap<Mac, PublicKey>,
}

#[derive(Debug, Clone, Copy)]
struct TerminalAssignment {
    part: u8,
    /// Knock and arrival of its last initiation.
    last: Option<(Mac, Instant)>,
}

impl PartAssignments {
    /// Creates an assignment to this number of parts, still without terminals.
    pub(crate) fn new(parts: u8) -> Self {
        Self { sizes: vec![0; parts.into()], ..Self::default() }
    }

    /// Replaces the set of terminals served. New ones go to the part with the fewest.
    pub(crate) fn set_allowed(&mut self, allow: &BTreeSet<PublicKey>) {
        if self.sizes.is_empty() {
            return;
        }
        let gone: Vec<PublicKey> =
            self.terminals.keys().filter(|key| !allow.contains(key)).copied().collect();
        gone.iter().for_each(|key| self.remove(key));
        for key in allow {
            if !self.terminals.contains_key(key) {
                let part = self.least_loaded();
                self.assign(*key, part);
            }
        }
    }

    /// Moves terminals that share a link to one part, except those that have connected already.
    pub(crate) fn set_aggregates(&mut self, of: &BTreeMap<PublicKey, AggregateId>) {
        if self.sizes.is_empty() {
            return;
        }
        let mut members: BTreeMap<&AggregateId, Vec<PublicKey>> = BTreeMap::new();
        for (key, aggregate) in of.iter().filter(|(key, _)| self.terminals.contains_key(key)) {
            members.entry(aggregate).or_default().push(*key);
        }
        for keys in members.values() {
            // A terminal that has connected stays where its session is.
            let came = |key: &PublicKey| self.terminals[key].last.map(|_| self.terminals[key].part);
            let fixed = keys.iter().find_map(came);
            let free: Vec<_> = keys.iter().filter(|key| came(key).is_none()).copied().collect();
            free.iter().for_each(|key| self.remove(key));
            let part = fixed.unwrap_or_else(|| self.least_loaded());
            free.iter().for_each(|key| self.assign(*key, part));
        }
    }

    /// The part with the fewest terminals.
    fn least_loaded(&self) -> u8 {
        let parts = self.sizes.iter().zip(0..);
        parts.min_by_key(|(size, part)| (**size, *part)).map_or(0, |(_, part)| part)
    }

    fn assign(&mut self, key: PublicKey, part: u8) {
        self.sizes[usize::from(part)] += 1;
        self.terminals.insert(key, TerminalAssignment { part, last: None });
    }

    fn remove(&mut self, key: &PublicKey) {
        let Some(gone) = self.terminals.remove(key) else { return };
        self.sizes[usize::from(gone.part)] -= 1;
        gone.last.iter().for_each(|(knock, _)| _ = self.knocks.remove(knock));
    }

    /// The part that an initiation with this knock was passed on to a short time ago.
    pub(crate) fn repeated(&self, now: Instant, knock: &Mac) -> Option<u8> {
        let assignment = self.terminals.get(self.knocks.get(knock)?)?;
        let recent = assignment.last.is_some_and(|(_, at)| now < at + REPEATS);
        recent.then_some(assignment.part)
    }

    /// Returns whether an initiation of this terminal was passed on less than `within` ago.
    pub(crate) fn had_recent_initiation(
        &self,
        now: Instant,
        key: &PublicKey,
        within: Duration,
    ) -> bool {
        let last = self.terminals.get(key).and_then(|assignment| assignment.last);
        last.is_some_and(|(_, at)| now < at + within)
    }

    /// The part that an authentic initiation must be passed on to; `None` if it stays here.
    pub(crate) fn pass_on(&mut self, now: Instant, key: &PublicKey, knock: Mac) -> Option<u8> {
        let assignment = self.terminals.get_mut(key)?;
        let old = assignment.last.replace((knock, now));
        let part = assignment.part;
        old.iter().for_each(|(knock, _)| _ = self.knocks.remove(knock));
        // The first part finds repeats of its own initiations by their answers.
        if part == 0 {
            return None;
        }
        self.knocks.insert(knock, *key);
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey([number; 32])
    }

    fn served(parts: u8, terminals: u8) -> PartAssignments {
        let mut dispatch = PartAssignments::new(parts);
        dispatch.set_allowed(&(0..terminals).map(key).collect());
        dispatch
    }

    fn part(dispatch: &mut PartAssignments, number: u8) -> u8 {
        dispatch.pass_on(Instant::ZERO, &key(number), [number; 16]).unwrap_or(0)
    }

    #[test]
    fn terminals_are_divided_evenly_and_stay_where_they_are() {
        let mut dispatch = served(3, 9);
        assert_eq!(dispatch.sizes, [3, 3, 3]);
        let before: Vec<u8> = (3..9).map(|number| part(&mut dispatch, number)).collect();
        dispatch.set_allowed(&(3..12).map(key).collect());
        assert_eq!(dispatch.sizes.iter().sum::<usize>(), 9);
        assert!(dispatch.sizes.iter().all(|size| *size == 3), "{:?}", dispatch.sizes);
        let after: Vec<u8> = (3..9).map(|number| part(&mut dispatch, number)).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn terminals_that_share_a_link_are_in_one_part() {
        let mut dispatch = served(2, 10);
        let came = part(&mut dispatch, 1);
        let beam = |name: &str, of: [u8; 3]| of.map(|number| (key(number), name.into()));
        let beams = [beam("a", [1, 2, 4]), beam("b", [5, 6, 8])];
        dispatch.set_aggregates(&beams.into_iter().flatten().collect());
        assert_eq!([1, 2, 4].map(|number| part(&mut dispatch, number)), [came; 3]);
        let other = part(&mut dispatch, 5);
        assert_eq!([6, 8].map(|number| part(&mut dispatch, number)), [other; 2]);
        assert_eq!(dispatch.sizes.iter().sum::<usize>(), 10);
    }

    #[test]
    fn a_repeated_initiation_is_known_by_its_knock_for_a_while() {
        let mut dispatch = served(2, 2);
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert_eq!(dispatch.pass_on(at(0), &key(0), [7; 16]), None);
        assert_eq!(dispatch.repeated(at(0), &[7; 16]), None, "it stays in the first part");
        assert_eq!(dispatch.pass_on(at(0), &key(1), [8; 16]), Some(1));
        assert_eq!(dispatch.repeated(at(29), &[8; 16]), Some(1));
        assert_eq!(dispatch.repeated(at(30), &[8; 16]), None);
        assert!(dispatch.had_recent_initiation(at(0), &key(1), Duration::from_secs(1)));
        assert!(!dispatch.had_recent_initiation(at(1), &key(1), Duration::from_secs(1)));
        // Only the last one of each terminal is kept.
        assert_eq!(dispatch.pass_on(at(40), &key(1), [9; 16]), Some(1));
        assert_eq!(dispatch.knocks.len(), 1);
        dispatch.set_allowed(&BTreeSet::new());
        assert!(dispatch.knocks.is_empty() && dispatch.terminals.is_empty());
    }

    #[test]
    fn a_hub_that_is_not_divided_keeps_nothing() {
        let mut dispatch = PartAssignments::default();
        dispatch.set_allowed(&[key(1)].into());
        dispatch.set_aggregates(&BTreeMap::from([(key(1), "a".into())]));
        assert_eq!(dispatch.pass_on(Instant::ZERO, &key(1), [1; 16]), None);
        assert!(dispatch.terminals.is_empty() && dispatch.knocks.is_empty());
    }
}
