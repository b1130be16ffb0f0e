//! Bound of the padding to a peer over all its sessions (`docs/rate.md`, Padding): on a metered
//! link it is a stated share of what is sent, so that a path that fails every minute costs no more
//! than one that stays.

use std::collections::BTreeMap;

use crate::PublicKey;

/// Padding that a peer gets in advance, in bytes: two measurements of at most 400 kB, or two as long
/// as the first if that was longer, because of jitter.
pub(crate) const ADVANCE: u64 = 800_000;
const MEASUREMENTS: u64 = 2;

/// Maximum number of peers whose use is known; beyond it the one that has used least is forgotten,
/// which gives it at most another advance.
const PEERS: usize = 4096;

/// Bytes of IP packets that this side has sent to a peer, and of these the padded ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// In trains that padding completed, data in these trains included.
    pub(crate) padded: u64,
    pub(crate) sent: u64,
    /// Bytes padded on the first path; `None` while that is in use.
    pub(crate) first: Option<u64>,
}

impl Spent {
    fn plus(self, more: Self) -> Self {
        Self {
            padded: self.padded + more.padded,
            sent: self.sent + more.sent,
            first: self.first.or(more.first),
        }
    }

    /// The same once the present path is no longer used.
    fn over(self) -> Self {
        Self { first: self.first.or(Some(self.padded)), ..self }
    }
}

/// A session's budget for padding, from the share that is configured and from earlier sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// Share of the bytes sent that padding may take, 0 to 1.
    share: f64,
    /// Bytes sent in earlier sessions of the peer.
    before: Spent,
}

impl Allowance {
    pub(crate) fn new(share: f64, before: Spent) -> Self {
        Self { share, before }
    }

    /// Number of bytes of padding that may still be sent, if the session has spent `session` so
    /// far.
    pub(crate) fn left(&self, session: Spent) -> u64 {
        let Spent { padded, sent, first } = self.before.plus(session).over();
        // With much jitter one measurement may take megabytes, for which the first user would wait.
        let advance = first.map_or(ADVANCE, |first| ADVANCE.max(first * MEASUREMENTS));
        (advance + (sent as f64 * self.share) as u64).saturating_sub(padded)
    }

    /// Returns `true` if it covers a train of `bytes` bytes. The first path is measured whatever
    /// that takes.
    pub(crate) fn covers(&self, bytes: u64, session: Spent) -> bool {
        self.before.plus(session).first.is_none() || bytes <= self.left(session)
    }
}

/// Bytes spent by the sessions of each peer that are over. Not kept over a restart of the process.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    peers: BTreeMap<PublicKey, Spent>,
}

impl Ledger {
    pub(crate) fn of(&self, peer: &PublicKey) -> Spent {
        self.peers.get(peer).copied().unwrap_or_default()
    }

    /// Enters a session that is over.
    pub(crate) fn enter(&mut self, peer: PublicKey, session: Spent) {
        let spent = self.of(&peer).plus(session.over());
        self.peers.insert(peer, spent);
        if self.peers.len() > PEERS {
            let least = self.peers.iter().min_by_key(|(_, spent)| spent.padded);
            least.map(|(peer, _)| *peer).inspect(|peer| _ = self.peers.remove(peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;

    fn peer(n: u16) -> PublicKey {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&n.to_be_bytes());
        PublicKey(key)
    }

    fn spent(padded: u64, sent: u64, first: Option<u64>) -> Spent {
        Spent { padded, sent, first }
    }

    #[test]
    fn the_share_is_of_all_that_was_sent() {
        let before = spent(700_000, 10_000_000, Some(300_000));
        let allowance = Allowance::new(0.02, before);
        assert_eq!(allowance.left(Spent::default()), ADVANCE + 200_000 - 700_000);
        let session = spent(300_000, 5_000_000, None);
        assert_eq!(allowance.left(session), ADVANCE + 300_000 - 1_000_000);
        assert!(allowance.covers(100_000, session) && !allowance.covers(100_001, session));
        assert_eq!(allowance.left(spent(1 << 40, 1 << 40, None)), 0);
        assert_eq!(Allowance::new(0.0, before).left(session), 0);
    }

    #[test]
    fn the_first_path_is_measured_and_the_second_costs_as_much_at_most() {
        let allowance = Allowance::new(0.0, Spent::default());
        let first = spent(3_000_000, 3_000_000, None);
        assert!(allowance.covers(4_000_000, first));
        let second = spent(3_000_000, 3_000_000, Some(3_000_000));
        assert!(allowance.covers(3_000_000, second) && !allowance.covers(3_000_001, second));
        let (mut ledger, mut all) = (Ledger::default(), 0);
        for session in 0..10 {
            let allowance = Allowance::new(0.0, ledger.of(&peer(1)));
            let padded = if allowance.covers(3_000_000, Spent::default()) { 3_000_000 } else { 0 };
            assert_eq!(padded > 0, session < 2, "{session}");
            ledger.enter(peer(1), spent(padded, padded, None));
            all += padded;
        }
        assert_eq!(ledger.of(&peer(1)), spent(all, all, Some(3_000_000)));
    }

    /// Any mixture of sessions, each of which pads whenever it may.
    #[test]
    fn padding_never_exceeds_the_share_whatever_the_sessions() {
        for seed in 0..1000 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let share = f64::from(rng.next_u32() % 100) / 1000.0;
            let mut ledger = Ledger::default();
            for _ in 0..1 + rng.next_u32() % 100 {
                let allowance = Allowance::new(share, ledger.of(&peer(1)));
                let mut session = Spent::default();
                for _ in 0..rng.next_u32() % 20 {
                    let train = u64::from(rng.next_u32() % 400_000);
                    if allowance.covers(train, session) {
                        session = session.plus(spent(train, train, None));
                    }
                    session.sent += u64::from(rng.next_u32() % 3_000_000);
                    if rng.next_u32().is_multiple_of(4) {
                        session = session.over();
                    }
                }
                ledger.enter(peer(1), session);
                let Spent { padded, sent, first } = ledger.of(&peer(1));
                let advance = ADVANCE.max(2 * first.unwrap());
                let most = advance as f64 + share * sent as f64;
                assert!(padded as f64 <= most, "seed {seed}: {padded} of {sent}, share {share}");
            }
        }
    }

    #[test]
    fn who_used_least_is_forgotten_when_there_are_too_many() {
        let mut ledger = Ledger::default();
        for n in 0..=PEERS as u16 {
            let padded = if n == 99 { 5 } else { 1000 };
            ledger.enter(peer(n), spent(padded, padded, None));
        }
        assert_eq!(ledger.peers.len(), PEERS);
        assert_eq!(ledger.of(&peer(99)), Spent::default());
        assert_eq!(ledger.of(&peer(7)).padded, 1000);
    }
}
