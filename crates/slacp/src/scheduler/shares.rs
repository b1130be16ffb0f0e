//! Weighted shares by start-time fair queueing.
//!
//! P. Goyal, H. Vin and H. Cheng, *Start-time Fair Queuing*, SIGCOMM 1996. Each party has a virtual
//! time at which its next piece starts. The earliest goes first, and a piece advances the time of
//! its party by its size over the party's weight. A party that was idle restarts at the virtual
//! time of the others: it neither gains credit nor owes any.

/// Fixed point: steps of virtual time per byte and unit of weight.
const STEPS: u64 = 256;

/// Virtual times of the parties, by index.
#[derive(Debug)]
pub(crate) struct FairShares {
    /// Virtual start time of the piece sent last.
    now: u64,
    next: Vec<u64>,
}

impl FairShares {
    pub(crate) fn new(parties: usize) -> Self {
        Self { now: 0, next: vec![0; parties] }
    }

    /// The party among `ready` whose turn it is; of equals, the one with the lowest index.
    pub(crate) fn first(&self, ready: impl Iterator<Item = usize>) -> Option<usize> {
        ready.min_by_key(|party| (self.start(*party), *party))
    }

    /// Charges `party`, of this `weight`, for `bytes`.
    pub(crate) fn charge(&mut self, party: usize, bytes: usize, weight: u64) {
        let start = self.start(party);
        // The common virtual time is the start of the piece in service.
        self.now = start;
        self.next[party] = start + bytes as u64 * STEPS / weight.max(1);
    }

    /// The virtual time at which the next piece of `party` starts.
    pub(crate) fn start(&self, party: usize) -> u64 {
        self.next[party].max(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights_whatever_the_sizes() {
        let mut shares = FairShares::new(3);
        let parties = [(1, 1500), (2, 300), (5, 1000)];
        let mut sent = [0; 3];
        while sent.iter().sum::<usize>() < 8_000_000 {
            let party = shares.first(0..3).unwrap();
            let (weight, bytes) = parties[party];
            shares.charge(party, bytes, weight);
            sent[party] += bytes;
        }
        for (got, want) in sent.iter().zip([1_000_000, 2_000_000, 5_000_000]) {
            assert!(got.abs_diff(want) <= 3000, "{sent:?}");
        }
    }

    #[test]
    fn an_absent_session_gains_no_credit_and_owes_none() {
        let mut shares = FairShares::new(2);
        for _ in 0..1000 {
            shares.charge(0, 1000, 1);
        }
        let mut turns = [0; 2];
        for _ in 0..10 {
            let party = shares.first(0..2).unwrap();
            turns[party] += 1;
            shares.charge(party, 1000, 1);
        }
        assert_eq!(turns, [5, 5]);
    }
}
