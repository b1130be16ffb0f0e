//! Precomputed sums of the work that a rate trace can do.

use units::BitRate;

use crate::Trace;
use crate::trace::nanos;

/// A trace of rates with the sums of its work.
#[derive(Debug)]
pub(super) struct Steps {
    /// At least one, ordered, the first at 0.
    steps: Vec<Step>,
    repeat: Option<Repeat>,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    /// Start of the step, in nanoseconds of the trace.
    at: u64,
    /// Work possible per nanosecond.
    rate: u128,
    /// Work possible from the start of the trace to this step.
    before: u128,
}

#[derive(Debug, Clone, Copy)]
struct Repeat {
    /// Length of the period, in nanoseconds.
    period: u64,
    /// Work possible in a period.
    work: u128,
}

impl Steps {
    pub(super) fn new(trace: &Trace<BitRate>) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        for (at, rate) in trace.steps() {
            // Summed up once, so that no packet adds up all steps before it.
            let before = steps.last().map_or(0, |last| last.work_by(at));
            steps.push(Step { at, rate: rate.bits_per_second().into(), before });
        }
        let repeat = trace.period().map(nanos).map(|period| Repeat {
            period,
            work: steps.last().map_or(0, |last| last.work_by(period)),
        });
        Self { steps, repeat }
    }

    /// Returns the work possible until `elapsed` nanoseconds.
    pub(super) fn work_by(&self, elapsed: u64) -> u128 {
        let (cycles, elapsed) = match self.repeat {
            Some(Repeat { period, work }) => {
                (u128::from(elapsed / period) * work, elapsed % period)
            }
            None => (0, elapsed),
        };
        let begun = self.steps.partition_point(|step| step.at <= elapsed);
        cycles + self.steps[begun.saturating_sub(1)].work_by(elapsed)
    }

    /// Returns the number of nanoseconds in which `work`, which must not be 0, can be done; `None`
    /// if it never can.
    pub(super) fn time_for(&self, work: u128) -> Option<u128> {
        let Some(repeat) = self.repeat else { return self.time_in_one(work) };
        // Less one: work that ends exactly with a period is done within it, not at the next one's
        // start.
        let cycles = (work - 1).checked_div(repeat.work)?;
        let time = self.time_in_one(work - cycles * repeat.work)?;
        cycles.checked_mul(repeat.period.into())?.checked_add(time)
    }

    fn time_in_one(&self, work: u128) -> Option<u128> {
        let reached = self.steps.partition_point(|step| step.before < work);
        let step = self.steps[reached.saturating_sub(1)];
        if step.rate == 0 {
            return None;
        }
        Some(u128::from(step.at) + (work - step.before).div_ceil(step.rate))
    }
}

impl Step {
    /// Returns the work possible until a time in this step.
    fn work_by(self, elapsed: u64) -> u128 {
        self.before + self.rate * u128::from(elapsed - self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Steps {
        Steps::new(&Trace::parse(text).unwrap())
    }

    #[test]
    fn work_stands_still_at_rate_zero() {
        let steps = steps("0ns 2 bit/s\n10ns 0 bit/s\n20ns 5 bit/s");
        let work: Vec<_> = [0, 9, 10, 19, 20, 22].map(|at| steps.work_by(at)).into();
        assert_eq!(work, [0, 18, 20, 20, 20, 30]);
        let times: Vec<_> = [1, 2, 3, 20, 21, 26].map(|work| steps.time_for(work)).into();
        assert_eq!(times, [Some(1), Some(1), Some(2), Some(10), Some(21), Some(22)]);
    }

    #[test]
    fn a_trace_that_ends_at_zero_never_does_more() {
        let steps = steps("0ns 2 bit/s\n10ns 0 bit/s");
        assert_eq!((steps.time_for(20), steps.time_for(21)), (Some(10), None));
    }

    #[test]
    fn periods_repeat() {
        let steps = steps("0ns 1 bit/s\n10ns 0 bit/s\nloop 15ns");
        assert_eq!([14, 15, 16, 44].map(|at| steps.work_by(at)), [10, 10, 11, 30]);
        let times = [10, 11, 20, 21, 1001].map(|work| steps.time_for(work));
        assert_eq!(times, [Some(10), Some(16), Some(25), Some(31), Some(1501)]);
    }

    #[test]
    fn a_loop_of_nothing_never_does_anything() {
        assert_eq!(steps("0ns 0 bit/s\nloop 15ns").time_for(1), None);
    }
}
