//! Progress of the demo on stderr.

use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use meter::Progress;

use super::entry::Entry;
use super::plan::{Task, Way, Work};

/// Polling interval of the progress counters.
const LOOK: Duration = Duration::from_millis(50);

/// Announces measurements and reports their outcome: with a progress bar each on a terminal, in
/// plain lines elsewhere.
pub(crate) struct Display {
    total: usize,
    done: usize,
    bars: MultiProgress,
}

/// Progress samples of one measurement: seconds since its start, and the count at that time.
pub(crate) type Trail = Vec<(f64, u64)>;

impl Display {
    /// Creates a display for `total` measurements.
    pub(crate) fn new(total: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { total, done: 0, bars: MultiProgress::with_draw_target(target) }
    }

    /// Runs `work` in another thread, for up to `limit`, while showing and recording `progress`.
    pub(crate) fn during<T: Send>(
        &self,
        (task, way, limit): (Task, &Way, Duration),
        progress: &Progress,
        work: impl FnOnce() -> T + Send,
    ) -> (T, Trail) {
        let bar = self.bars.add(bar(task, way, limit));
        let (start, mut trail) = (Instant::now(), vec![(0.0, 0)]);
        let done = thread::scope(|scope| {
            let worker = scope.spawn(work);
            while !worker.is_finished() {
                thread::park_timeout(LOOK);
                let count = progress.get();
                bar.set_position(count);
                note(&mut trail, start.elapsed().as_secs_f64(), count);
            }
            worker.join()
        });
        bar.finish_and_clear();
        self.bars.remove(&bar);
        (done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), trail)
    }

    /// Reports the outcome of a measurement.
    pub(crate) fn done(&mut self, entry: &Entry) {
        self.done += 1;
        let count = format!("[{}/{}]", self.done, self.total);
        eprintln!("{count:>7} {}: {}", title(entry.task, &entry.way), result(entry));
    }
}

/// Records a sample only when the count has changed: a standstill is the line between two points.
pub(crate) fn note(trail: &mut Trail, at: f64, count: u64) {
    match trail.as_mut_slice() {
        [.., (_, before), (last, now)] if *before == count && *now == count => *last = at,
        _ => trail.push((at, count)),
    }
}

fn bar(task: Task, way: &Way, limit: Duration) -> ProgressBar {
    let unit = match task.work() {
        Work::Flow(_) => "{decimal_bytes}/{decimal_total_bytes}".to_owned(),
        Work::Pieces { .. } => format!("{{pos}}/{{len}} {}", task.parts()),
    };
    let limit = limit.as_secs();
    let template = format!("{{msg:47}} {{wide_bar}} {unit} {{elapsed}} of {limit}s");
    let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
    ProgressBar::new(task.total()).with_style(style).with_message(title(task, way))
}

fn title(task: Task, way: &Way) -> String {
    format!("{}, {way}", task.short())
}

fn result(entry: &Entry) -> String {
    let Some(it) = entry.figures else {
        return format!("failed: {}", entry.failure.as_deref().unwrap_or("nothing came"));
    };
    let end = if it.complete { "" } else { "not finished, " };
    let done = match entry.task.work() {
        Work::Flow(_) => format!("{:.2} MB", it.moved_bytes as f64 / 1e6),
        Work::Pieces { .. } => format!("{} {}", it.done, entry.task.parts()),
    };
    format!("{end}{done} in {:.2} s, {:.2} Mbit/s", it.seconds, it.goodput / 1e6)
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
