//! Timing of reports about a problem that lasts.

use std::time::Duration;

/// Duration of a problem at its first report.
const FIRST: Duration = Duration::from_secs(10);
/// Longest time between two reports.
const SELDOM: Duration = Duration::from_secs(3600);

/// Decides when to report a lasting problem: soon, and then at intervals that double up to an hour.
#[derive(Debug, Clone, Copy)]
pub struct Reminder {
    /// Duration of the problem at the next report.
    next: Duration,
}

impl Default for Reminder {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Reminder {
    /// Returns `true` if a problem that has lasted this long is to be reported; `None` means that there is
    /// none.
    pub fn is_due(&mut self, lasted: Option<Duration>) -> bool {
        let Some(lasted) = lasted else {
            *self = Self::default();
            return false;
        };
        let is_due = lasted >= self.next;
        if is_due {
            self.next = lasted + lasted.min(SELDOM);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_reported_ever_more_seldom_and_soon_again_when_it_comes_back() {
        let mut reminder = Reminder::default();
        let mut due = |seconds: u64| reminder.is_due(Some(Duration::from_secs(seconds)));
        let reported: Vec<u64> = (0..20_000).filter(|seconds| due(*seconds)).collect();
        let doubling = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120];
        assert_eq!(reported[..10], doubling);
        assert_eq!(reported[10..], [8720, 12_320, 15_920, 19_520]);
        assert!(!reminder.is_due(None));
        assert!(reminder.is_due(Some(FIRST)));
    }
}
