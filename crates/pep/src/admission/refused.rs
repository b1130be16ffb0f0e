//! Remembers destinations that refused connections. A client that was answered at once sees only a reset,
//! and does not try its server's next address (Happy Eyeballs, RFC 8305). So further connections to the
//! destination pass unaccelerated for a while, and the client gets the refusal of the destination itself.
//! Deferring the answer would do as well, but needs CAP_NET_RAW.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use slacp::ResetReason;
use units::Instant;

/// First period for which connections pass: short, because the server may just be starting. It doubles with
/// each further refusal up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(5);
/// Longest period. A destination is forgotten this long after its last period has ended.
const LONGEST: Duration = Duration::from_secs(60);
/// Maximum number of destinations. Each new one rebuilds the interception table, and a port scan yields
/// many.
const MOST: usize = 64;

/// Destinations that have refused connections recently.
#[derive(Debug, Default)]
pub struct RefusedDestinations {
    /// `true` once the interception acts on refusals; nothing is remembered before.
    is_enabled: bool,
    refusals: BTreeMap<SocketAddr, LastRefusal>,
    /// The list as last reported.
    known: Vec<SocketAddr>,
}

/// The last refusal of a destination.
#[derive(Debug)]
struct LastRefusal {
    /// End of the current period, and its length.
    until: Instant,
    lasting: Duration,
}

impl RefusedDestinations {
    /// Starts remembering refusals: the interception can act on them.
    pub fn enable(&mut self) {
        self.is_enabled = true;
    }

    /// Records that a connection to `to` failed for this reason. Returns `true` if the next connection will
    /// pass unaccelerated once the interception has applied the change.
    pub fn remember(&mut self, now: Instant, to: SocketAddr, reason: ResetReason) -> bool {
        // Other failures are the hub's or the session's, and a direct connection would not show them.
        let is_of_destination = matches!(
            reason,
            ResetReason::Refused | ResetReason::Unreachable | ResetReason::TimedOut
        );
        self.refusals.retain(|_, refusal| refusal.until + LONGEST > now);
        let has_room = self.refusals.len() < MOST || self.refusals.contains_key(&to);
        if !is_of_destination || !self.is_enabled || !has_room {
            return false;
        }
        let refusal = self.refusals.entry(to);
        let refusal = refusal
            .and_modify(|refusal| {
                if refusal.until <= now {
                    refusal.lasting = (refusal.lasting * 2).min(LONGEST);
                }
            })
            .or_insert(LastRefusal { until: now, lasting: FIRST });
        refusal.until = now + refusal.lasting;
        !self.known.contains(&to)
    }

    /// Time at which the next period ends.
    pub fn next_end(&self) -> Option<Instant> {
        let passing = self.known.iter().filter_map(|destination| self.refusals.get(destination));
        passing.map(|refusal| refusal.until).min()
    }

    /// The destinations to let pass, if the list has changed since the last call.
    pub fn take_change(&mut self, now: Instant) -> Option<Vec<SocketAddr>> {
        let passing = self.refusals.iter().filter(|(_, refusal)| refusal.until > now);
        let passing: Vec<SocketAddr> = passing.map(|(destination, _)| *destination).collect();
        if passing == self.known {
            return None;
        }
        self.known.clone_from(&passing);
        Some(passing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: ResetReason = ResetReason::Refused;

    fn enabled() -> RefusedDestinations {
        RefusedDestinations { is_enabled: true, ..RefusedDestinations::default() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn port(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    /// Seconds until a destination that refuses at this time is intercepted again.
    fn lasts(memory: &mut RefusedDestinations, seconds: u64) -> u64 {
        assert!(memory.remember(at(seconds), port(80), REFUSED));
        assert_eq!(memory.take_change(at(seconds)), Some(vec![port(80)]));
        let end = memory.next_end().unwrap();
        assert_eq!(memory.take_change(end), Some(vec![]));
        assert_eq!(memory.next_end(), None);
        end.saturating_since(at(seconds)).as_secs()
    }

    #[test]
    fn repeated_refusals_bypass_for_longer() {
        let mut memory = enabled();
        let mut now = 0;
        for lasting in [5, 10, 20, 40, 60, 60] {
            assert_eq!(lasts(&mut memory, now), lasting);
            now += lasting;
        }
        assert_eq!(lasts(&mut memory, now + 59), 60);
        assert_eq!(lasts(&mut memory, now + 59 + 60 + 60), 5, "it was forgotten");
    }

    #[test]
    fn refusals_at_the_same_time_count_once() {
        let mut memory = enabled();
        assert!(memory.remember(at(0), port(80), REFUSED));
        assert!(memory.remember(at(0), port(80), REFUSED), "the intake does not know it yet");
        assert_eq!(memory.take_change(at(0)), Some(vec![port(80)]));
        assert_eq!(memory.take_change(at(1)), None);
        assert!(!memory.remember(at(3), port(80), REFUSED), "the intake knows it");
        assert_eq!((memory.take_change(at(5)), memory.next_end()), (None, Some(at(8))));
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut memory = enabled();
        let first = MOST as u16;
        assert!((0..first).all(|number| memory.remember(at(0), port(number), REFUSED)));
        assert!(!memory.remember(at(1), port(first), REFUSED));
        assert_eq!(memory.take_change(at(1)).unwrap().len(), MOST);
        assert_eq!(memory.take_change(at(5)), Some(vec![]));
        assert!(!memory.remember(at(64), port(first), REFUSED));
        assert!(memory.remember(at(65), port(first), REFUSED), "the others are forgotten");
        assert_eq!(memory.take_change(at(65)), Some(vec![port(first)]));
    }

    #[test]
    fn only_refusals_by_the_destination_are_remembered() {
        let mut memory = RefusedDestinations::default();
        assert!(!memory.remember(at(0), port(80), REFUSED));
        memory.enable();
        assert!(!memory.remember(at(0), port(80), ResetReason::Limit));
        assert_eq!(memory.take_change(at(0)), None);
    }
}
