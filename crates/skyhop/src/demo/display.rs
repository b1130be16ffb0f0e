//! What the user sees while the demo runs, on stderr.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use meter::Progress;

use super::entry::{Entry, Figures};
use super::plan::{LIMIT, Task, Way};

const REDRAW: Duration = Duration::from_millis(100);

/// Announces measurements and says how they went: with a bar on a terminal, in
/// plain lines elsewhere.
pub(crate) struct Display {
    total: usize,
    done: usize,
    terminal: bool,
}

impl Display {
    /// For a plan of `total` measurements.
    pub(crate) fn new(total: usize) -> Self {
        Self { total, done: 0, terminal: std::io::stderr().is_terminal() }
    }

    /// Runs `work` in another thread and shows how `progress` grows meanwhile.
    pub(crate) fn during<T: Send>(
        &self,
        (task, way): (Task, &Way),
        progress: &Progress,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        let bar = self.bar(task, way);
        let done = thread::scope(|scope| {
            let worker = scope.spawn(work);
            while !worker.is_finished() {
                bar.set_position(progress.get());
                thread::park_timeout(REDRAW);
            }
            worker.join()
        });
        bar.finish_and_clear();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Says how a measurement went.
    pub(crate) fn done(&mut self, entry: &Entry) {
        self.done += 1;
        let count = format!("[{}/{}]", self.done, self.total);
        eprintln!("{count:>7} {}: {}", title(entry.task, &entry.way), result(entry));
    }

    fn bar(&self, task: Task, way: &Way) -> ProgressBar {
        if !self.terminal {
            return ProgressBar::hidden();
        }
        let unit = match task {
            Task::Requests => "{pos}/{len} replies",
            Task::Download | Task::Upload => "{decimal_bytes}/{decimal_total_bytes}",
        };
        let limit = LIMIT.as_secs();
        let template = format!(
            "[{}/{}] {{msg}} {{bar:24}} {unit} {{elapsed}} of {limit}s",
            self.done + 1,
            self.total
        );
        let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
        let bar = ProgressBar::with_draw_target(Some(task.total()), ProgressDrawTarget::stderr());
        bar.set_style(style);
        bar.set_message(title(task, way));
        bar
    }
}

fn title(task: Task, way: &Way) -> String {
    let what = match task {
        Task::Download => "download",
        Task::Upload => "upload",
        Task::Requests => "requests",
    };
    format!("{what}, {way}")
}

fn result(entry: &Entry) -> String {
    match (entry.figures, &entry.failure) {
        (Some(Figures::Transfer(it)), _) => {
            let end = if it.complete { "" } else { "unfinished after " };
            let (mb, mbit) = (it.moved_bytes as f64 / 1e6, it.goodput / 1e6);
            format!("{end}{:.2} s, {mb:.2} MB, {mbit:.2} Mbit/s", it.seconds)
        }
        (Some(Figures::Requests(it)), _) => {
            let end = if it.complete { "" } else { "unfinished after " };
            let median = it.median_seconds * 1e3;
            format!("{end}{:.2} s, {} answered, median {median:.0} ms", it.seconds, it.answered)
        }
        (None, Some(failure)) => format!("failed: {failure}"),
        (None, None) => format!("nothing within {} s", LIMIT.as_secs()),
    }
}
