//! Progress of the demo on standard error.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use study::{MeasurementEntry, Task, TaskProgress, TaskWork, TrafficPath};

/// Announces measurements and reports their results, with a progress bar for each on a terminal and in
/// plain lines elsewhere.
pub(super) struct DemoDisplay {
    total: usize,
    done: usize,
    bars: MultiProgress,
}

/// The progress bar of a measurement, which is removed when this is dropped.
struct MeasurementBar {
    bars: MultiProgress,
    bar: ProgressBar,
}

impl DemoDisplay {
    pub(super) fn new() -> Self {
        let bars = MultiProgress::with_draw_target(crate::progress::target());
        Self { total: 0, done: 0, bars }
    }
}

impl study::ProgressDisplay for DemoDisplay {
    fn start(&mut self, title: &str, measurements: usize) {
        crate::print_to_stderr(title);
        (self.total, self.done) = (measurements, 0);
    }

    fn begin(&self, task: Task, way: &TrafficPath, limit: Duration) -> Box<dyn TaskProgress> {
        let bar = self.bars.add(bar(task, way, limit));
        Box::new(MeasurementBar { bars: self.bars.clone(), bar })
    }

    fn done(&mut self, entry: &MeasurementEntry) {
        self.done += 1;
        let count = format!("[{}/{}]", self.done, self.total);
        crate::print_to_stderr(format_args!(
            "{count:>7} {}: {}",
            title(entry.task, &entry.way),
            result(entry)
        ));
    }
}

impl TaskProgress for MeasurementBar {
    fn set(&self, count: u64) {
        self.bar.set_position(count);
    }
}

impl Drop for MeasurementBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        self.bars.remove(&self.bar);
    }
}

fn bar(task: Task, way: &TrafficPath, limit: Duration) -> ProgressBar {
    let unit = match task.work() {
        TaskWork::Flow(_) => "{decimal_bytes}/{decimal_total_bytes}".to_owned(),
        TaskWork::Pieces { .. } => format!("{{pos}}/{{len}} {}", task.parts()),
    };
    let limit = limit.as_secs();
    let template = format!("{{msg:47}} {{wide_bar}} {unit} {{elapsed}} of {limit}s");
    let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
    ProgressBar::new(task.total()).with_style(style).with_message(title(task, way))
}

fn title(task: Task, way: &TrafficPath) -> String {
    format!("{}, {way}", task.short())
}

fn result(entry: &MeasurementEntry) -> String {
    let Some(figures) = entry.figures else {
        return format!("failed: {}", entry.failure.as_deref().unwrap_or("nothing came"));
    };
    let end = if figures.complete { "" } else { "not finished, " };
    let done = match entry.task.work() {
        TaskWork::Flow(_) => format!("{:.2} MB", figures.moved_bytes as f64 / 1e6),
        TaskWork::Pieces { .. } => format!("{} {}", figures.done, entry.task.parts()),
    };
    format!("{end}{done} in {:.2} s, {:.2} Mbit/s", figures.seconds, figures.goodput / 1e6)
}
