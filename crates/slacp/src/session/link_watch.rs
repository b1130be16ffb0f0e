//! Events about the link for the owner: a configured rate that exceeds it, and falls of its
//! capacity.

use units::Instant;

use super::{SessionPath, SharedState};
use crate::rate::{Auto, CapacityWatch};
use crate::{Event, LogEvent};

/// The state of the link as last reported to the owner.
#[derive(Debug, Default)]
pub(super) struct LinkWatch {
    /// The rate was last reported to exceed the link.
    exceeds: bool,
    capacity: CapacityWatch,
}

impl SessionPath {
    /// Reports changes of this state, after acknowledgements or losses were processed.
    pub(super) fn watch_link(&mut self, shared: &mut SharedState, now: Instant) {
        let overload = self.rate.overload().copied();
        if overload.is_some() != self.watch.exceeds {
            self.watch.exceeds = overload.is_some();
            match overload {
                Some(it) => {
                    let (rate, carries) = (it.rate, it.carries);
                    self.report(shared, Event::RateExceedsLink { rate, carries });
                    self.log.record(now, || LogEvent::RateExceedsLink { carries });
                }
                None => {
                    let rate = self.rate.rate();
                    self.report(shared, Event::RateFitsLink);
                    self.log.record(now, || LogEvent::RateFitsLink { rate });
                }
            }
        }
        let capacity = self.rate.auto().and_then(Auto::capacity);
        let fall = capacity.and_then(|capacity| self.watch.capacity.see(now, capacity));
        if let Some(fall) = fall {
            self.counters.capacity_falls += 1;
            self.report(shared, Event::CapacityFell { from: fall.from, to: fall.to });
            self.log.record(now, || LogEvent::CapacityFell { rate: fall.to });
        }
    }
}
