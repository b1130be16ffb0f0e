//! Fair shares of the processor: bounds the work that each session may cause between two turns of a
//! thread's driver.
//!
//! A driver sends and receives for all sessions, and everything that it wakes runs on its thread. Work is
//! counted where it is done, in units of about a nanosecond of an ordinary processor. A session that has
//! used its share waits for the driver's next turn; the others continue. Not counted: the work of packets
//! themselves, which the link's rate bounds.
//!
//! [`cost`] counts the work of parsers, whose input waits in an [`inbox`].

pub mod cost;
pub mod inbox;

use std::collections::BTreeMap;

/// Work that all sessions share in a turn, in units, and the bound for all together: sessions that begin in
/// the same turn do not know of each other, and a piece of work may exceed a share.
const TURN: u64 = 2_000_000;
const MOST: u64 = 2 * TURN;

/// Work of a call that moves data of a stream; each byte adds one unit.
pub const CALL: u64 = 20_000;
/// Work of a stream that a peer opens: a connection is made, or a name is looked up.
pub const OPENING: u64 = 100_000;

/// Shares of sessions identified by `K`.
///
/// Call [`WorkShares::charge`] after work, and [`WorkShares::wait`] if a session that wants to work may
/// not. The driver calls [`WorkShares::begin_turn`]. Work beyond a share is deducted from the session's
/// next ones.
#[derive(Debug)]
pub struct WorkShares<K> {
    share: u64,
    /// Work of all sessions in this turn.
    done: u64,
    /// Work of sessions in this turn and debts from earlier ones; 0 for a session that only waits.
    spent: BTreeMap<K, u64>,
    /// `true` if a session waits.
    waits: bool,
}

impl<K> Default for WorkShares<K> {
    fn default() -> Self {
        Self { share: TURN, done: 0, spent: BTreeMap::new(), waits: false }
    }
}

impl<K: Ord + Copy> WorkShares<K> {
    /// Returns `true` if a session may work in this turn.
    pub fn permits(&self, session: K) -> bool {
        self.done < MOST && self.spent.get(&session).is_none_or(|spent| *spent < self.share)
    }

    /// Records work of a session.
    pub fn charge(&mut self, session: K, work: u64) {
        let spent = self.spent.entry(session).or_default();
        *spent = spent.saturating_add(work);
        self.done = self.done.saturating_add(work);
    }

    /// Records that a session waits for the next turn.
    pub fn wait(&mut self, session: K) {
        self.spent.entry(session).or_default();
        self.waits = true;
    }

    /// Begins the driver's next turn. The sessions that worked or waited in the last one share it equally.
    /// Returns `true` if one has waited.
    pub fn begin_turn(&mut self) -> bool {
        let share = self.share;
        let sessions = self.spent.len().max(1) as u64;
        self.spent.retain(|_, spent| {
            // What exceeds the share stays as a debt.
            *spent = spent.saturating_sub(share);
            *spent > 0
        });
        (self.share, self.done) = (TURN / sessions, 0);
        std::mem::take(&mut self.waits)
    }

    /// Forgets a session that has ended.
    pub fn remove(&mut self, session: K) {
        self.spent.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets sessions with pieces of work of these sizes work for so many turns; returns what each has done,
    /// and the most that all have done in one turn.
    fn run(sizes: &[u64], turns: usize) -> (Vec<u64>, u64) {
        let (mut shares, mut done, mut most) = (WorkShares::default(), vec![0; sizes.len()], 0);
        for _ in 0..turns {
            let mut in_turn = 0;
            // One piece each, again and again, as tasks run.
            loop {
                let before = in_turn;
                for (session, size) in sizes.iter().enumerate() {
                    if shares.permits(session) {
                        shares.charge(session, *size);
                        done[session] += size;
                        in_turn += size;
                    } else {
                        shares.wait(session);
                    }
                }
                if in_turn == before {
                    break;
                }
            }
            most = most.max(in_turn);
            assert!(shares.begin_turn());
        }
        (done, most)
    }

    #[test]
    fn a_turn_is_shared_equally_whatever_the_pieces() {
        let sizes = [1_000, 20_000, 500_000, 90_000];
        let (done, most) = run(&sizes, 1000);
        let fair = 1000 * TURN / sizes.len() as u64;
        assert!(done.iter().all(|done| done.abs_diff(fair) <= fair / 100), "{done:?}");
        assert!(most < MOST + 500_000, "{most}");
    }

    #[test]
    fn many_sessions_take_no_longer_turn_and_each_has_its_share() {
        let (done, most) = run(&[30_000; 300], 1000);
        assert!(most < MOST + 30_000, "{most}");
        let fair = 1000 * TURN / 300;
        assert!(done.iter().all(|done| done.abs_diff(fair) <= fair / 100), "{done:?}");
    }

    #[test]
    fn a_session_alone_has_the_whole_turn_and_what_it_owes_is_taken_from_the_next() {
        let mut shares = WorkShares::default();
        shares.charge(1, TURN);
        assert!(shares.permits(2));
        shares.charge(1, 3 * TURN / 2);
        assert!(!shares.permits(2), "the turn is over for all");
        for _ in 0..2 {
            assert!(!shares.permits(1), "it owes");
            assert!(!shares.begin_turn(), "nobody waits");
            assert!(shares.permits(2));
        }
        assert!(shares.permits(1));
        shares.charge(1, TURN / 4);
        assert!(shares.permits(1));
        assert!(!shares.begin_turn());
        assert!(shares.spent.is_empty());
    }
}
