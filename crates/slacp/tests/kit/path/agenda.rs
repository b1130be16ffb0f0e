//! When each flow next has something to do, so that an event costs nothing for the others.

use std::collections::BTreeSet;

use units::Instant;

/// The flows by the time of their next event, and those that must be asked again: something
/// happened to them since.
#[derive(Debug, Default)]
pub struct Agenda {
    times: Vec<Option<Instant>>,
    order: BTreeSet<(Instant, usize)>,
    touched: BTreeSet<usize>,
}

impl Agenda {
    /// Notes that something happened to a flow.
    pub fn touch(&mut self, flow: usize) {
        self.touched.insert(flow);
    }

    /// Touches the flows whose time has come, and returns all touched ones in ascending order.
    pub fn due(&mut self, now: Instant) -> Vec<usize> {
        while let Some((time, flow)) = self.order.first().copied().filter(|(time, _)| *time <= now)
        {
            self.order.remove(&(time, flow));
            self.times[flow] = None;
            self.touched.insert(flow);
        }
        self.touched.iter().copied().collect()
    }

    /// Returns the next touched flow in ascending order, which counts as touched no more.
    pub fn pop_touched(&mut self) -> Option<usize> {
        self.touched.pop_first()
    }

    /// Sets the time of a flow's next event.
    pub fn set(&mut self, flow: usize, time: Option<Instant>) {
        self.times.resize(self.times.len().max(flow + 1), None);
        if self.times[flow] == time {
            return;
        }
        if let Some(before) = self.times[flow] {
            self.order.remove(&(before, flow));
        }
        self.order.extend(time.map(|time| (time, flow)));
        self.times[flow] = time;
    }

    /// When the first of the flows has something to do.
    pub fn next(&self) -> Option<Instant> {
        self.order.first().map(|(time, _)| *time)
    }
}
