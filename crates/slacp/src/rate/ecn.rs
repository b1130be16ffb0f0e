//! Explicit congestion notification (RFC 3168) of a session: codepoints to report to the peer,
//! packets that get ECT(0), and the number of packets that the path has marked (`docs/slacp.md`,
//! ECN).
//!
//! The validation follows RFC 9000 §13.4.2: a path that clears the codepoint, or loses packets
//! because of it, gets none from then on.
//!
//! Not modelled: a path that changes ECT(0) to CE without congestion, and a peer that conceals
//! marks. Both look like an honest path with more or less congestion.

use crate::EcnState;
use crate::wire::ecn::{Ecn, EcnCounts};

/// Number of acknowledgements that report a change of the counts, because one may be lost.
const REPORTS: u8 = 2;

/// Number of packets that test a path (RFC 9000 §A.4).
const TESTS: u32 = 10;

/// A path fails once this many packets were acknowledged without being counted, in this many
/// acknowledgements: a few of those that carried counts may have been lost.
const UNCOUNTED_PACKETS: u64 = 10;
const UNCOUNTED_REPORTS: u32 = 3;

/// Codepoints received, and when to report them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: EcnCounts,
    /// Number of acknowledgements that are still to report the counts.
    reports: u8,
}

impl Tally {
    /// Records the codepoint of a packet received for the first time.
    pub(crate) fn arrived(&mut self, ecn: Ecn) {
        match ecn {
            Ecn::Ect0 => self.counts.ect0 += 1,
            Ecn::Ce => self.counts.ce += 1,
            Ecn::NotEct | Ecn::Ect1 => return,
        }
        self.reports = REPORTS;
    }

    pub(crate) fn counts(&self) -> EcnCounts {
        self.counts
    }

    /// The counts for the acknowledgement that is being written; `None` if it need not report any.
    pub(crate) fn report(&mut self) -> Option<EcnCounts> {
        self.reports = self.reports.checked_sub(1)?;
        Some(self.counts)
    }
}

/// Decides which packets get ECT(0), and validates the peer's counts of them.
///
/// ```text
///           a tested packet                     fewer counted than acknowledged,
///              is counted                        more than sent, or a decrease
///  ┌─────────┐            ┌─────────┐                      ┌────────┐
///  │ Testing ├───────────►│ Capable ├─────────────────────►│ Failed │
///  └─┬────▲──┘            └────┬────┘                      └───▲────┘
///    │    └────────────────────┘                               │
///    │     another path, or the end of an outage               │
///    └─────────────────────────────────────────────────────────┘
///           the same, or no tested packet is counted
/// ```
#[derive(Debug, Default)]
pub(crate) struct Marking {
    state: EcnState,
    /// Number of packets sent with ECT(0), on all paths of the session.
    sent: u64,
    /// The newest counts, and the number of the peer's packet that brought them.
    counts: EcnCounts,
    counted_in: Option<u64>,
    /// Counted by the peer since the last acknowledgement that was compared with its counts.
    rise: Option<EcnCounts>,
    /// Packets with ECT(0) acknowledged and not counted yet, and the number of acknowledgements
    /// with them.
    uncounted: u64,
    uncounted_reports: u32,
    /// The test concerns packets from this number on. Of these `tests` were sent, and `tests_over`
    /// are acknowledged or lost.
    test_from: u64,
    tests: u32,
    tests_over: u32,
    /// The rate is reported at present, and does not yield to marks.
    rests: bool,
}

impl Marking {
    pub(crate) fn new(enabled: bool) -> Self {
        let state = if enabled { EcnState::Testing } else { EcnState::Off };
        Self { state, ..Self::default() }
    }

    pub(crate) fn state(&self) -> EcnState {
        if self.rests && self.is_active() { EcnState::Off } else { self.state }
    }

    /// Follows whether the rate is measured, with packets from `next` on. A rate that is reported does
    /// not yield to marks, so its packets must not ask for any (RFC 3168 §5).
    pub(crate) fn follow(&mut self, measured: bool, next: u64) {
        if measured && self.rests {
            self.restart(next);
        }
        self.rests = !measured;
    }

    /// Number of packets sent with ECT(0) in the session.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The codepoint for packet `number`, which carries data. Tests are every second packet, so that
    /// a path that loses them does not lose the session.
    pub(crate) fn codepoint(&self, number: u64) -> Ecn {
        match self.state() {
            EcnState::Capable => Ecn::Ect0,
            EcnState::Testing if self.tests < TESTS && number % 2 == 1 => Ecn::Ect0,
            _ => Ecn::NotEct,
        }
    }

    /// Records that a packet left with ECT(0).
    pub(crate) fn sent_ect(&mut self) {
        self.sent += 1;
        if self.state == EcnState::Testing {
            self.tests += 1;
        }
    }

    /// Tests the path again, with packets from `next` on: it may be another one.
    pub(crate) fn restart(&mut self, next: u64) {
        if self.is_active() {
            self.state = EcnState::Testing;
            (self.test_from, self.tests, self.tests_over) = (next, 0, 0);
        }
    }

    fn is_active(&self) -> bool {
        matches!(self.state, EcnState::Testing | EcnState::Capable)
    }

    fn fail(&mut self) {
        self.state = EcnState::Failed;
        self.rise = None;
    }

    /// Takes the counts in packet `packet` of the peer. Those in an older packet are outdated.
    pub(crate) fn heard(&mut self, packet: u64, counts: EcnCounts) {
        if !self.is_active() || self.counted_in.is_some_and(|newest| packet <= newest) {
            return;
        }
        let Some(rise) = counts.since(self.counts).filter(|_| counts.total() <= self.sent) else {
            return self.fail();
        };
        let before = self.rise.unwrap_or_default();
        self.rise = Some(EcnCounts { ect0: before.ect0 + rise.ect0, ce: before.ce + rise.ce });
        self.counts = counts;
        self.counted_in = Some(packet);
    }

    /// Takes an acknowledgement, after the counts that came with it: the numbers of newly
    /// acknowledged packets with ECT(0), each with whether the packet itself is known to have
    /// arrived. Returns how many packets the path has newly marked.
    pub(crate) fn acknowledged(&mut self, packets: impl Iterator<Item = (u64, bool)>) -> u64 {
        if !self.is_active() {
            return 0;
        }
        let mut arrived = 0;
        let mut tested = false;
        for (number, came) in packets {
            arrived += u64::from(came);
            tested |= came && number >= self.test_from;
            self.test_is_over(number);
        }
        self.uncounted += arrived;
        // RFC 9000 §13.4.2.1: counts that rise by less than the packets that have arrived show that
        // the path clears the codepoint. More may be counted, because acknowledgements are lost.
        let marked = match self.rise.take() {
            Some(rise) if rise.total() >= self.uncounted => self.counted(rise, tested),
            Some(_) => {
                self.fail();
                0
            }
            None => {
                self.uncounted_reports += u32::from(arrived > 0);
                0
            }
        };
        self.check_tests();
        self.check_silence();
        marked
    }

    /// All packets acknowledged so far have been counted.
    fn counted(&mut self, rise: EcnCounts, tested: bool) -> u64 {
        (self.uncounted, self.uncounted_reports) = (0, 0);
        if tested {
            self.state = EcnState::Capable;
        }
        rise.ce
    }

    /// Records that a packet with ECT(0) was lost while the link was up.
    pub(crate) fn lost(&mut self, number: u64) {
        self.test_is_over(number);
        self.check_tests();
    }

    fn test_is_over(&mut self, number: u64) {
        if self.state == EcnState::Testing && number >= self.test_from {
            self.tests_over += 1;
        }
    }

    /// Fails the path if no packet of the test was counted.
    fn check_tests(&mut self) {
        if self.state == EcnState::Testing && self.tests_over >= TESTS {
            self.fail();
        }
    }

    /// Fails the path if packets are acknowledged, but not counted any more.
    fn check_silence(&mut self) {
        let silent = self.uncounted_reports >= UNCOUNTED_REPORTS;
        if self.state == EcnState::Capable && silent && self.uncounted >= UNCOUNTED_PACKETS {
            self.fail();
        }
    }
}

#[cfg(test)]
mod tests;
