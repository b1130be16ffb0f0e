//! Progress of a study: shown by its owner, recorded with the results.

use std::thread;
use std::time::{Duration, Instant};

use meter::ProgressCounter;

use super::entry::{MeasurementEntry, Trail};
use crate::plan::{Task, TrafficPath};

/// Polling interval of the progress counters.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Shows the progress of a study.
pub trait ProgressDisplay: Sync {
    /// The study begins: its title, and the number of measurements.
    fn start(&mut self, title: &str, measurements: usize);

    /// A measurement begins, which may take up to `limit`. It ends when the bar is dropped.
    fn begin(&self, task: Task, way: &TrafficPath, limit: Duration) -> Box<dyn TaskProgress>;

    /// A measurement has ended. Simulated ones do not begin: they take no time.
    fn done(&mut self, entry: &MeasurementEntry);
}

/// Shows the progress of one measurement.
pub trait TaskProgress {
    /// Sets the number of bytes, objects or replies that have arrived.
    fn set(&self, count: u64);
}

/// Runs `work` in another thread while showing and recording `progress`.
pub(crate) fn watched<T: Send>(
    bar: &dyn TaskProgress,
    progress: &ProgressCounter,
    work: impl FnOnce() -> T + Send,
) -> (T, Trail) {
    let start = Instant::now();
    let mut trail = vec![(0.0, 0)];
    let done = thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            thread::park_timeout(POLL_INTERVAL);
            let count = progress.get();
            bar.set(count);
            note(&mut trail, start.elapsed().as_secs_f64(), count);
        }
        worker.join()
    });
    // A panic of `work` goes on to the caller, as if it had run on this thread.
    (done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), trail)
}

/// Records a sample only when the count has changed: a standstill is the line between two points.
pub(crate) fn note(trail: &mut Trail, at: f64, count: u64) {
    match trail.as_mut_slice() {
        [.., (_, before), (last, now)] if *before == count && *now == count => *last = at,
        _ => trail.push((at, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_two_points() {
        let mut trail = vec![(0.0, 0)];
        let seen = [(1.0, 0), (2.0, 0), (3.0, 0), (4.0, 7), (5.0, 7), (6.0, 7), (7.0, 9)];
        for (seconds, count) in seen {
            note(&mut trail, seconds, count);
        }
        assert_eq!(trail, [(0.0, 0), (3.0, 0), (4.0, 7), (6.0, 7), (7.0, 9)]);
    }
}
