//! The contract of state machines, as a trait for drivers.

use crate::Instant;

/// A state machine. It is *passed* the time, and has no clock, socket, thread or unseeded random
/// numbers of its own (`docs/state-machines.md`).
///
/// A driver repeats: pass inputs to the machine's `handle_*` methods, drain its `poll_*` outputs in
/// the order given in the type's documentation, wait until [`Machine::poll_timeout`] or the next
/// input, call [`Machine::handle_timeout`].
pub trait Machine {
    /// The reason for which the machine is woken.
    type Wake: core::fmt::Debug;

    /// Returns the time at which the machine next needs [`Machine::handle_timeout`], with the
    /// reason; `None` while only an input can change it. A time in the past means now.
    fn poll_timeout(&self) -> Option<(Instant, Self::Wake)>;

    /// Advances the machine to `now`. It may be called early or late: an early call is harmless,
    /// and a late one does everything that is due.
    fn handle_timeout(&mut self, now: Instant);
}

/// Returns the earlier of two timeouts, the first one on a tie.
pub fn earliest<W>(a: Option<(Instant, W)>, b: Option<(Instant, W)>) -> Option<(Instant, W)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Returns the earliest of many timers, most of which are off, with its purpose; the first one on a
/// tie.
#[inline]
pub fn earliest_timer<W, const N: usize>(
    timers: [(Option<Instant>, W); N],
) -> Option<(Instant, W)> {
    let mut soonest: Option<(Instant, W)> = None;
    for (at, wake) in timers {
        if let Some(at) = at
            && soonest.as_ref().is_none_or(|(soonest, _)| at < *soonest)
        {
            soonest = Some((at, wake));
        }
    }
    soonest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wins_a_tie() {
        let at = |nanos, why| Some((Instant::from_nanos(nanos), why));
        assert_eq!(earliest(at(5, 'a'), at(5, 'b')), at(5, 'a'));
        assert_eq!(earliest(at(5, 'a'), at(4, 'b')), at(4, 'b'));
        assert_eq!(earliest(None, at(4, 'b')), at(4, 'b'));
        let timer = |nanos: Option<u64>, why| (nanos.map(Instant::from_nanos), why);
        let all = [timer(None, 'a'), timer(Some(5), 'b'), timer(Some(4), 'c'), timer(Some(4), 'd')];
        assert_eq!(earliest_timer(all), at(4, 'c'));
        assert_eq!(earliest_timer([timer(None, 'a'); 2]), None);
    }
}
