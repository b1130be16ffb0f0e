//! Chooses the congestion control of the kernel's TCP below a session.
//!
//! BBR tolerates the losses of a satellite link. But every 10 s it measures the delay, and sends next to
//! nothing for about a round trip and 200 ms (`PROBE_RTT`): over 600 ms this costs an eighth of the rate.
//! CUBIC has no such pause, but takes each loss for congestion. As the session paces itself, CUBIC has no
//! queue to fill. So CUBIC is used while nothing is lost, and BBR otherwise.

use core::time::Duration;

use units::Instant;

/// Loss-free time before a change to CUBIC; doubled each time that CUBIC lasts for less than [`STEADY`].
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_PATIENCE: Duration = Duration::from_secs(60);
const STEADY: Duration = Duration::from_secs(60);
/// Segments without a loss that are significant: the loss rate is below 0.1 %.
const ENOUGH: u32 = 1000;

/// A congestion control of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelControl {
    /// For paths that lose packets.
    Bbr,
    /// For paths without losses; it never pauses to measure the delay.
    Cubic,
}

impl KernelControl {
    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bbr => "bbr",
            Self::Cubic => "cubic",
        }
    }
}

/// Counters of a connection from the kernel, in segments. They may wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentCounters {
    /// Segments sent so far.
    pub sent: u32,
    /// Segments retransmitted so far.
    pub resent: u32,
    /// Congestion window in segments.
    pub window: u32,
}

/// Chooses the congestion control of a connection that starts with BBR.
#[derive(Debug)]
pub struct ControlChoice {
    control: KernelControl,
    /// Start of the use of this control; with BBR, time of the last loss.
    since: Instant,
    before: SegmentCounters,
    /// Widest congestion window so far.
    widest: u32,
    patience: Duration,
}

impl ControlChoice {
    /// Starts with BBR on a new connection.
    pub fn new(now: Instant) -> Self {
        Self {
            control: KernelControl::Bbr,
            since: now,
            before: SegmentCounters::default(),
            widest: 0,
            patience: PATIENCE,
        }
    }

    /// Handles new counters, at least a second after the last. Returns the congestion control to set, if it
    /// changes.
    pub fn handle_counters(
        &mut self,
        now: Instant,
        figures: SegmentCounters,
    ) -> Option<KernelControl> {
        let calm = now.saturating_since(self.since);
        self.widest = self.widest.max(figures.window);
        // Not "more than": the counters wrap.
        if figures.resent != self.before.resent {
            (self.since, self.before) = (now, figures);
            if self.control == KernelControl::Bbr {
                return None;
            }
            // CUBIC did not last, so losses are frequent here, and the next change waits longer.
            let doubled = (2 * self.patience).min(MOST_PATIENCE);
            self.patience = if calm >= STEADY { PATIENCE } else { doubled };
            return self.change(KernelControl::Bbr);
        }
        let sent = figures.sent.wrapping_sub(self.before.sent);
        // CUBIC starts with the current window, which is small while BBR measures the delay.
        let is_wide = figures.window >= self.widest / 2;
        if self.control == KernelControl::Bbr && calm >= self.patience && sent >= ENOUGH && is_wide
        {
            self.since = now;
            return self.change(KernelControl::Cubic);
        }
        None
    }

    fn change(&mut self, to: KernelControl) -> Option<KernelControl> {
        self.control = to;
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that is looked at every second.
    struct Connection(ControlChoice, SegmentCounters, Instant);

    impl Connection {
        fn new() -> Self {
            let now = Instant::from_nanos(1);
            Self(
                ControlChoice::new(now),
                SegmentCounters { window: 100, ..SegmentCounters::default() },
                now,
            )
        }

        /// What changes, and after how many seconds, in `seconds` with so many segments in each, of
        /// which `resent` are resent.
        fn run(&mut self, seconds: u32, sent: u32, resent: u32) -> Vec<(u32, KernelControl)> {
            let mut second = |second| {
                let Self(choice, figures, now) = self;
                figures.sent = figures.sent.wrapping_add(sent);
                figures.resent = figures.resent.wrapping_add(resent);
                *now += Duration::from_secs(1);
                choice.handle_counters(*now, *figures).map(|control| (second, control))
            };
            (1..=seconds).filter_map(&mut second).collect()
        }
    }

    #[test]
    fn without_losses_it_is_cubic_and_the_first_loss_ends_that() {
        let mut connection = Connection::new();
        assert_eq!(connection.run(100, 1000, 0), [(10, KernelControl::Cubic)]);
        assert_eq!(connection.run(3, 1000, 1), [(1, KernelControl::Bbr)]);
        assert_eq!(
            connection.run(100, 1000, 0),
            [(10, KernelControl::Cubic)],
            "that was a long calm"
        );
        assert_eq!(connection.run(1, 1000, 1), [(1, KernelControl::Bbr)]);
    }

    #[test]
    fn with_losses_it_stays_bbr() {
        let mut connection = Connection::new();
        assert_eq!(connection.run(1000, 1000, 10), []);
    }

    #[test]
    fn losses_that_come_again_make_it_patient() {
        let mut connection = Connection::new();
        let mut waited = Vec::new();
        for _ in 0..5 {
            let changes = connection.run(70, 1000, 0);
            waited.push(changes[0].0);
            connection.run(1, 1000, 1);
        }
        assert_eq!(waited, [10, 10, 10, 10, 10], "each lasted for a minute");
        for _ in 0..5 {
            let changes = connection.run(61, 1000, 0);
            waited.push(changes[0].0);
            connection.run(1, 1000, 1);
        }
        assert_eq!(waited[5..], [10, 20, 40, 60, 60]);
    }

    #[test]
    fn a_connection_that_sends_little_and_one_that_measures_keep_bbr() {
        let mut connection = Connection::new();
        assert_eq!(connection.run(99, 10, 0), []);
        assert_eq!(connection.run(1, 10, 0), [(1, KernelControl::Cubic)], "1000 without a loss");
        let mut connection = Connection::new();
        connection.run(9, 1000, 0);
        connection.1.window = 4;
        assert_eq!(connection.run(5, 1000, 0), []);
        connection.1.window = 100;
        assert_eq!(connection.run(5, 1000, 0), [(1, KernelControl::Cubic)]);
    }

    #[test]
    fn counters_that_wrap_are_counted_on() {
        let mut connection = Connection::new();
        connection.1.sent = u32::MAX - 500;
        connection.1.resent = u32::MAX;
        assert_eq!(connection.run(1, 1000, 0), []);
        assert_eq!(connection.run(1, 1000, 1), []);
        assert_eq!(connection.run(10, 1000, 0), [(10, KernelControl::Cubic)]);
    }
}
