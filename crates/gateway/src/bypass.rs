//! Tracks why and for how long connections pass unaccelerated.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Instant;

use crate::status::{Bypass, BypassStatus, InterceptionStatus};

/// Time and number of bypasses, by reason.
#[derive(Debug)]
pub(crate) struct BypassClock {
    why: Option<Bypass>,
    since: Instant,
    past: BTreeMap<Bypass, (Duration, u64)>,
}

impl BypassClock {
    /// Starts in bypass for this reason.
    pub(crate) fn new(now: Instant, why: Bypass) -> Self {
        Self { why: Some(why), since: now, past: [(why, (Duration::ZERO, 1))].into() }
    }

    /// Enters a bypass for this reason, or ends it.
    pub(crate) fn set(&mut self, now: Instant, why: Option<Bypass>) {
        if why == self.why {
            return;
        }
        if let Some(old) = self.why {
            self.past.entry(old).or_default().0 += now.saturating_since(self.since);
        }
        if let Some(new) = why {
            self.past.entry(new).or_default().1 += 1;
        }
        (self.why, self.since) = (why, now);
    }

    pub(crate) fn status(&self, now: Instant) -> InterceptionStatus {
        let present = now.saturating_since(self.since);
        let row = |(why, (total, times)): (&Bypass, &(Duration, u64))| {
            let running = if self.why == Some(*why) { present } else { Duration::ZERO };
            BypassStatus { why: *why, total_s: (*total + running).as_secs_f64(), times: *times }
        };
        InterceptionStatus {
            on: self.why.is_none(),
            why: self.why,
            since_s: present.as_secs_f64(),
            bypassed: self.past.iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_clock() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let mut clock = BypassClock::new(at(0), Bypass::PeerUnreachable);
        clock.set(at(10), None);
        clock.set(at(11), None);
        clock.set(at(20), Some(Bypass::Memory));
        clock.set(at(21), Some(Bypass::PeerUnreachable));
        let status = clock.status(at(25));
        assert!(!status.on && status.why == Some(Bypass::PeerUnreachable));
        assert_eq!(status.since_s, 4.0);
        let row = |why| *status.bypassed.iter().find(|row| row.why == why).unwrap();
        assert_eq!(
            (row(Bypass::PeerUnreachable).total_s, row(Bypass::PeerUnreachable).times),
            (14.0, 2)
        );
        assert_eq!((row(Bypass::Memory).total_s, row(Bypass::Memory).times), (1.0, 1));
    }
}
