//! The tables of a study.

use report::{TableColumn, TextTable, aligned};
use stats::SampleSpread;

use super::entry::MeasurementEntry;
use super::figures::{LinkLimit, ResponseTimes, TaskFigures, gain};
use crate::plan::{Task, TaskWork, TrafficPath};

/// Number of figures in the row of a way.
const FIGURES: usize = 6;

/// A way that this machine cannot measure.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Unavailable {
    /// Path of the traffic that cannot be measured.
    pub way: TrafficPath,
    /// The reason, in one line.
    pub reason: String,
}

/// The input of the tables.
#[derive(Debug, Clone, Copy)]
pub struct SummaryInput<'a> {
    /// The results of the measurements.
    pub entries: &'a [&'a MeasurementEntry],
    /// The tasks, a section each, in order.
    pub tasks: &'a [Task],
    /// The rows of each section, in order, including unavailable ways.
    pub ways: &'a [TrafficPath],
    /// The ways that could not be measured.
    pub unavailable: &'a [Unavailable],
    /// Upper bounds, forward then return.
    pub limits: [&'a LinkLimit; 2],
}

/// Returns the whole table with its footnotes.
pub fn text(source: &SummaryInput<'_>) -> String {
    let sections: Vec<TextTable> = source.tasks.iter().map(|&task| section(task, source)).collect();
    aligned(&sections) + &footnotes(source)
}

/// Returns the table of a task.
pub fn section(task: Task, source: &SummaryInput<'_>) -> TextTable {
    let entries: Vec<&MeasurementEntry> =
        source.entries.iter().copied().filter(|entry| entry.task == task).collect();
    let mut table = TextTable::new(columns(task)).title(task.to_string()).indent(2);
    for way in source.ways {
        let of_way: Vec<&MeasurementEntry> =
            entries.iter().copied().filter(|e| e.way == *way).collect();
        let absent = source.unavailable.iter().find(|absent| absent.way == *way);
        match (of_way.is_empty(), absent) {
            (true, Some(_)) => table.row(remark_only(way, "not available here".to_owned())),
            (true, None) => {}
            (false, _) => table.row(row(way, &of_way, &entries)),
        }
    }
    table
}

/// Returns the columns: the figures of a way, then a remark.
fn columns(task: Task) -> Vec<TableColumn> {
    let names = match is_flow(task) {
        true => ["time\ns", "first byte\ns", "goodput\nMbit/s", "goodput\n/ limit"],
        false => ["time\ns", "median\nms", "p99\nms", "goodput\nMbit/s"],
    };
    let figures = names.into_iter().chain(["share ¹", "gain ²"]).map(TableColumn::right);
    [TableColumn::left("")].into_iter().chain(figures).chain([TableColumn::left("")]).collect()
}

fn is_flow(task: Task) -> bool {
    matches!(task.work(), TaskWork::Flow(_))
}

fn remark_only(way: &TrafficPath, remark: String) -> Vec<String> {
    let mut cells = vec![String::new(); FIGURES];
    cells.insert(0, way.to_string());
    cells.push(remark);
    cells
}

/// Returns the row of one way. `all` are the entries of the whole section.
fn row(way: &TrafficPath, entries: &[&MeasurementEntry], all: &[&MeasurementEntry]) -> Vec<String> {
    let figures = figures_of(entries);
    let Some(time) = SampleSpread::of(figures.iter().map(|figures| figures.seconds)) else {
        return remark_only(way, remark(entries));
    };
    let unfinished = figures.iter().filter(|figures| !figures.complete).count();
    // The median may then be that of a run that did not finish.
    let more = if unfinished * 2 >= figures.len() { ">" } else { "" };
    let mut cells = vec![way.to_string(), format!("{more}{time:.2}")];
    let of = |what: fn(&TaskFigures) -> f64| SampleSpread::of(figures.iter().map(what));
    let mbit =
        of(|figures| figures.goodput / 1e6).map_or_else(String::new, |mbit| format!("{mbit:.2}"));
    if is_flow(entries[0].task) {
        let first =
            SampleSpread::of(figures.iter().filter_map(|figures| figures.first_byte_seconds));
        cells.push(first.map_or_else(String::new, |first| format!("{:.2}", first.median)));
        cells.extend([mbit, percent(of(|figures| figures.of_limit))]);
    } else {
        cells.extend(response_cells(&figures));
        cells.push(mbit);
    }
    cells.push(percent(of(|figures| figures.share)));
    cells.extend([gain_cell(way, all), remark(entries)]);
    cells
}

fn figures_of(entries: &[&MeasurementEntry]) -> Vec<TaskFigures> {
    entries.iter().filter_map(|entry| entry.figures).collect()
}

/// Formats median and 99th percentile of the response times, in milliseconds.
fn response_cells(figures: &[TaskFigures]) -> [String; 2] {
    let of = |what: fn(&ResponseTimes) -> f64| {
        let responses = figures.iter().filter_map(|figures| figures.response);
        let times = SampleSpread::of(responses.map(|response| what(&response) * 1e3));
        times.map_or_else(String::new, |times| format!("{times:.0}"))
    };
    [of(|response| response.median_seconds), of(|response| response.p99_seconds)]
}

/// Formats the pair's gain; empty for other ways.
fn gain_cell(way: &TrafficPath, all: &[&MeasurementEntry]) -> String {
    if *way != TrafficPath::Pair {
        return String::new();
    }
    gain_of_pair(all).map_or_else(String::new, |gain| {
        let digits = usize::from(gain < 10.0);
        format!("{gain:.digits$} ×")
    })
}

/// Returns the pair's median goodput over that of the best plain way, from the entries of one task.
pub fn gain_of_pair(all: &[&MeasurementEntry]) -> Option<f64> {
    let goodput = |way: &TrafficPath| {
        let of_way: Vec<&MeasurementEntry> =
            all.iter().copied().filter(|entry| entry.way == *way).collect();
        Some(SampleSpread::of(figures_of(&of_way).iter().map(|figures| figures.goodput))?.median)
    };
    let plain = all.iter().map(|entry| &entry.way).filter(|way| **way != TrafficPath::Pair);
    gain(goodput(&TrafficPath::Pair)?, plain.filter_map(goodput))
}

/// Describes what the figures leave out: the number of runs that did not finish, and failures.
fn remark(entries: &[&MeasurementEntry]) -> String {
    let figures = figures_of(entries);
    let unfinished: Vec<&TaskFigures> =
        figures.iter().filter(|figures| !figures.complete).collect();
    let failures = entries.iter().filter_map(|entry| entry.failure.as_deref());
    // Only the first line: the end of a gateway's stderr may follow.
    let failed: Vec<&str> = failures.map(|why| why.lines().next().unwrap_or(why)).collect();
    let mut remarks = Vec::new();
    match (unfinished.as_slice(), entries.len()) {
        ([], _) => {}
        ([one], 1) => remarks.push(format!("not finished: {}", done(entries[0].task, one))),
        (some, all) => remarks.push(format!("{}/{all} not finished", some.len())),
    }
    match (failed.as_slice(), entries.len()) {
        ([], _) => {}
        ([one], 1) => remarks.push(format!("failed: {one}")),
        ([first, ..], all) => remarks.push(format!("{}/{all} failed: {first}", failed.len())),
    }
    remarks.join("; ")
}

/// Describes the amount that arrived, and the time it took.
pub fn done(task: Task, figures: &TaskFigures) -> String {
    let TaskFigures { done, seconds, .. } = figures;
    match task.work() {
        TaskWork::Flow(_) => format!("{:.2} MB in {seconds:.1} s", *done as f64 / 1e6),
        TaskWork::Pieces { .. } => format!("{done} {} in {seconds:.1} s", task.parts()),
    }
}

fn percent(share: Option<SampleSpread>) -> String {
    share.map_or_else(String::new, |share| {
        let percent = share.median * 100.0;
        let digits = usize::from(percent < 10.0);
        format!("{percent:.digits$} %")
    })
}

fn footnotes(source: &SummaryInput<'_>) -> String {
    let mbit = |limit: &LinkLimit| (limit.bits_per_second() / 1e4).round() / 100.0;
    let [down, up] = source.limits.map(mbit);
    let rtt = units::format_duration(source.limits[0].rtt);
    let mut text = String::from("All payload is verified at the receiver.\n");
    text += &format!(
        "limit    rate × (1 − PER): {down} Mbit/s down, {up} Mbit/s up; headers are not deducted\n\
         ¹ share  least time over time taken, both for the data moved;\n\
         \u{20}        least time = 1 RTT ({rtt}: request up, first byte down) + bytes / limit.\n"
    );
    let in_a_row = |task: &Task| match task.work() {
        TaskWork::Flow(_) => None,
        TaskWork::Pieces { count, at_a_time, .. } => {
            Some(format!("{} {} in a row", count.div_ceil(at_a_time), task.parts()))
        }
    };
    let mut rows: Vec<String> = source.tasks.iter().filter_map(in_a_row).collect();
    rows.dedup();
    if !rows.is_empty() {
        let rows = rows.join(", ");
        text += &format!("         Each request waits for the previous reply: {rows}\n");
    }
    text + "² gain   goodput over that of the better plain one\n"
}

#[cfg(test)]
mod tests;
