//! Divides a hub's rate between two of its processes while one takes the other's place.
//!
//! Each process may use a portion of the rate. The former process reports its usage to the next one twice a
//! second, and gets its portion in the answer. Together the portions never exceed the whole, whatever is
//! lost: the next process takes nothing that the former may still use, and gives nothing that it still uses
//! itself.
//!
//! Not modelled: rates that the sessions of either process measure; these find their shares by themselves.

use core::time::Duration;

use units::Instant;

/// Initial portion of both processes.
pub const HALF: f64 = 0.5;
/// A process that uses this much of its portion wants more.
const SHORT: f64 = 0.9;
/// A process that has enough gets its usage times this factor, plus `RESERVE`, so that it can show when it
/// wants more.
const MORE: f64 = 1.25;
const RESERVE: f64 = 0.05;
/// Smallest portion, so that handshakes and acknowledgements pass.
const LEAST: f64 = 0.05;

/// Usage of the rate by a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessNeed {
    /// Portion that it may use at present, 0 to 1.
    pub portion: f64,
    /// Portion that it has used recently, 0 to 1.
    pub used: f64,
    /// Number of connections that it carries.
    pub connections: u64,
}

impl ProcessNeed {
    fn is_short(&self) -> bool {
        self.used >= SHORT * self.portion
    }

    fn wanted(&self) -> f64 {
        self.used * MORE + RESERVE
    }
}

/// The portions of the former and the next process; their sum is 1. If both want more, they are in
/// proportion to the connections.
fn divide(former: &ProcessNeed, next: &ProcessNeed) -> [f64; 2] {
    let of_former = match (former.is_short(), next.is_short()) {
        (true, true) => {
            former.connections.max(1) as f64
                / former.connections.max(1).saturating_add(next.connections.max(1)) as f64
        }
        (true, false) => 1.0 - next.wanted(),
        (false, true) => former.wanted(),
        (false, false) => (1.0 + former.wanted() - next.wanted()) / 2.0,
    };
    let of_former = of_former.clamp(LEAST, 1.0 - LEAST);
    [of_former, 1.0 - of_former]
}

/// State of the next process.
#[derive(Debug)]
pub struct RateDivision {
    own: f64,
}

impl Default for RateDivision {
    fn default() -> Self {
        Self { own: HALF }
    }
}

impl RateDivision {
    /// Portion that this process may use at present.
    pub fn own(&self) -> f64 {
        self.own
    }

    /// Handles a report of the former process. `used` and `connections` are this process's own. Returns the
    /// portion that the former may use from now on; [`Self::own`] changes at once.
    pub fn handle(&mut self, former: ProcessNeed, used: f64, connections: u64) -> f64 {
        // The report comes from another process, possibly of another version.
        let good = |portion: f64| if portion.is_finite() { portion.clamp(0.0, 1.0) } else { HALF };
        let former =
            ProcessNeed { portion: good(former.portion), used: good(former.used), ..former };
        let [of_former, own] =
            divide(&former, &ProcessNeed { portion: self.own, used, connections });
        // The former process may use its old portion until it gets this answer.
        self.own = own.min(1.0 - former.portion).max(0.0);
        of_former.min(1.0 - self.own)
    }
}

/// Measures the usage of the rate by a process.
#[derive(Debug, Default)]
pub struct UsageMeter {
    last: Option<(Instant, Duration)>,
}

impl UsageMeter {
    /// Fraction of the time since the last call in which the link was in use; `spent` is the total so far.
    /// Zero at the first call.
    pub fn since(&mut self, now: Instant, spent: Duration) -> f64 {
        let Some((before, had)) = self.last.replace((now, spent)) else { return 0.0 };
        let time = now.saturating_since(before).as_secs_f64();
        let used = spent.saturating_sub(had).as_secs_f64();
        if time > 0.0 { (used / time).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both processes, told twice a second; either uses what it wants of the rate as far as it may.
    struct Both {
        next: RateDivision,
        former: f64,
    }

    impl Both {
        fn new() -> Self {
            Self { next: RateDivision::default(), former: HALF }
        }

        /// One message from the former, which learns the answer unless that is `lost`.
        fn tell(&mut self, wanted: [f64; 2], connections: [u64; 2], lost: bool) {
            let need = ProcessNeed {
                portion: self.former,
                used: wanted[0].min(self.former),
                connections: connections[0],
            };
            let used = wanted[1].min(self.next.own());
            let portion = self.next.handle(need, used, connections[1]);
            if !lost {
                self.former = portion;
            }
        }
    }

    fn after(rounds: u32, wanted: [f64; 2], connections: [u64; 2]) -> [f64; 2] {
        let mut both = Both::new();
        (0..rounds).for_each(|_| both.tell(wanted, connections, false));
        [both.former, both.next.own()]
    }

    #[test]
    fn who_wants_more_gets_what_the_other_leaves() {
        let [former, next] = after(6, [1.0, 0.0], [3, 0]);
        assert!(former > 0.94 && next > 0.04, "{former} {next}");
        let [former, next] = after(6, [0.0, 1.0], [3, 5]);
        assert!(former > 0.04 && next > 0.94, "{former} {next}");
        let [former, next] = after(6, [0.2, 1.0], [3, 5]);
        assert!(former > 0.29 && next > 0.69, "{former} {next}");
    }

    #[test]
    fn if_both_want_more_connections_decide() {
        for connections in [[1, 1], [30, 10], [1, 1000], [0, 0]] {
            let [former, next] = after(6, [1.0, 1.0], connections);
            let [of_former, of_next] = connections.map(|count| count.max(1) as f64);
            let share = (of_former / (of_former + of_next)).clamp(LEAST, 1.0 - LEAST);
            assert!((former - share).abs() < 1e-9, "{connections:?}: {former}");
            assert!((former + next - 1.0).abs() < 1e-9, "{former} {next}");
        }
    }

    #[test]
    fn use_is_measured_from_call_to_call() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut used = UsageMeter::default();
        let spent = Duration::from_millis;
        assert_eq!(used.since(at(100), spent(50)), 0.0);
        assert_eq!(used.since(at(600), spent(175)), 0.25);
        assert_eq!(used.since(at(600), spent(175)), 0.0);
        assert_eq!(used.since(at(1100), spent(1000)), 1.0, "what it has saved up counts once");
    }

    proptest! {
        /// Whatever both want, and whichever answers are lost, they have no more than the whole.
        #[test]
        fn together_they_never_exceed_the_whole(
            rounds in prop::collection::vec(((0.0f64..1.0, 0.0f64..1.0), (0u64..50, 0u64..50), any::<bool>()), 40),
        ) {
            let mut both = Both::new();
            for ((former, next), (of_former, of_next), lost) in rounds {
                both.tell([former, next], [of_former, of_next], lost);
                prop_assert!(both.former + both.next.own() <= 1.0 + 1e-9);
                prop_assert!(both.former > 0.0);
            }
        }

        /// What another program says is bounded.
        #[test]
        fn foreign_numbers_are_harmless(portion in any::<f64>(), used in any::<f64>(), count in any::<u64>()) {
            let mut next = RateDivision::default();
            let granted = next.handle(ProcessNeed { portion, used, connections: count / 2 }, 0.1, 7);
            prop_assert!((0.0..=1.0).contains(&granted) && (0.0..=1.0).contains(&next.own()));
        }
    }
}
