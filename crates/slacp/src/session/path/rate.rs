//! The rate of a path: who uses it, and what the owner hears about it.

use core::time::Duration;

use units::Instant;

use super::{SessionPath, SharedState};
use crate::event::log::LogEvent;
use crate::rate::{Auto, CapacityWatch, Change};
use crate::session::{LEAST_RTT, unsent_limit};
use crate::streams::flow::SessionPace;
use crate::{Event, PathMemory};

/// The state of the link as last reported to the owner.
#[derive(Debug, Default)]
pub(in crate::session) struct LinkWatch {
    /// The rate was last reported to exceed the link.
    exceeds: bool,
    capacity: CapacityWatch,
}

impl SessionPath {
    /// The measurements of the path that a later session can start from; `None` if there are none.
    pub(in crate::session) fn path_memory(&self, now: Instant) -> Option<PathMemory> {
        self.rate.auto()?.memory(now)
    }

    /// Turns ECN on while the rate is measured, and off otherwise.
    pub(in crate::session) fn update_ecn_use(&mut self) {
        self.marking.follow(self.rate.auto().is_some(), self.sender.sent.next_number());
    }

    /// Time that a full packet takes on the link; zero while no rate is known.
    pub(super) fn packet_time(&self) -> Duration {
        let bits = self.discovery.pmtu.size() as u64 * 8;
        let rate = self.rate.rate().bits_per_second();
        Duration::from_nanos((bits * 1_000_000_000).checked_div(rate).unwrap_or(0))
    }

    /// Reports the circuit breaker's state changes to the owner and the log.
    fn report_breaker(&mut self, shared: &mut SharedState, now: Instant) {
        let Some(change) = self.rate.take_change() else { return };
        let (rate, told) = (self.rate.rate(), self.rate.shared().unwrap_or_default());
        match change {
            Change::Tripped => {
                self.counters.trips += 1;
                self.report(shared, Event::Tripped { rate, instead_of: told });
                self.log.record(now, || LogEvent::BreakerTripped { rate });
            }
            Change::Again => self.log.record(now, || LogEvent::BreakerTripped { rate }),
            Change::Trial => self.log.record(now, || LogEvent::BreakerTries { rate }),
            Change::Closed => {
                self.report(shared, Event::Restored { rate });
                self.log.record(now, || LogEvent::BreakerClosed { rate });
            }
        }
    }

    /// Passes the current rate on to the event log, the FEC budget and the streams.
    pub(in crate::session) fn rate_changed(&mut self, shared: &mut SharedState, now: Instant) {
        self.report_breaker(shared, now);
        let rate = self.rate.rate();
        self.log.record(now, || LogEvent::Rate { rate });
        self.sender.planner.set_rate(now, rate);
        shared.streams.set_unsent_limit(unsent_limit(rate, shared.on_demand));
        self.update_pace(shared);
    }

    /// Updates the RTT and the rates that the streams size their windows by. With several links the
    /// session sizes the windows for all of them together.
    pub(in crate::session) fn update_pace(&self, shared: &mut SharedState) {
        if self.has_siblings() {
            return;
        }
        let rtt = self.rtt.smoothed().max(LEAST_RTT);
        let rates = [self.rate.rate(), self.remote.rate];
        shared.streams.set_pace(SessionPace { rtt, rates });
    }

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
