//! The page of a study: one self-contained HTML file.

use report::{
    Axis, BarGroup, Graph, GraphSeries, HtmlPage, SeriesColour, SvgPicture, TimeBar, bars,
};
use stats::SampleSpread;

use super::entry::{MeasurementEntry, MeasurementRecord};
use super::figures::TaskFigures;
use super::on_demand;
use super::results::Results;
use super::summary;
use crate::plan::{DOWNLOAD, REQUESTS, Task, TrafficPath};

/// Colours of plain TCP's congestion controls.
const PLAIN: [SeriesColour; 3] = [SeriesColour::Orange, SeriesColour::Green, SeriesColour::Purple];

impl Results {
    /// Returns the page with tables and graphs, as one HTML file.
    pub fn html(&self) -> String {
        html(self)
    }

    /// Returns the bar chart of all times, as an SVG file.
    pub fn picture(&self) -> String {
        times(self).file()
    }
}

fn html(results: &Results) -> String {
    let mut page = HtmlPage::new("skyhop demo", "A satellite link, with and without skyhop");
    head(&mut page, results);
    page.figure(
        "Time to finish",
        &times(results),
        "How long a user behind the satellite waits. Shorter is better. Plain means that the \
         computers at both ends use ordinary TCP, with the congestion control named; with skyhop \
         they do the same, and a pair of gateways at the two ends of the satellite link carries \
         their data. A pale, dashed bar was stopped before it had finished.",
    );
    over_time(&mut page, results);
    distribution(&mut page, results);
    granted(&mut page, results);
    tables(&mut page, results);
    setting(&mut page, results);
    page.into_html()
}

fn head(page: &mut HtmlPage, results: &Results) {
    page.paragraph(&results.setting.link);
    if let Some(why) = &results.setting.simulated {
        let text = format!(
            "These figures come from models in virtual time, not from this machine's network: {why}."
        );
        page.notice("Simulated.", &text);
    }
    let tasks = results.plan.tasks.iter().map(|&task| in_short(results, task));
    let on_demand =
        (!results.on_demand.is_empty()).then(|| on_demand::in_short(&results.on_demand));
    page.summary(tasks.chain(on_demand));
}

/// Summarises a task in one sentence.
fn in_short(results: &Results, task: Task) -> String {
    let ways = results.plan.ways.iter().rev();
    let each: Vec<String> = ways.map(|way| way_in_short(results, task, way)).collect();
    format!("{}: {}.", task.short(), each.join(", "))
}

fn way_in_short(results: &Results, task: Task, way: &TrafficPath) -> String {
    let figures = figures(results, task, way);
    match (median_seconds(&figures), figures.iter().find(|figures| !figures.complete)) {
        (None, _) => format!("{way} failed"),
        (Some(_), Some(unfinished)) => {
            format!("{way} not finished ({})", summary::done(task, unfinished))
        }
        (Some(seconds), None) => format!("{seconds:.1} s with {way}"),
    }
}

/// Draws the times of all tasks and ways as bars.
fn times(results: &Results) -> SvgPicture {
    let bar = |task: Task, way: &TrafficPath| {
        let figures = figures(results, task, way);
        TimeBar {
            name: way.to_string(),
            colour: colour(results, way),
            seconds: median_seconds(&figures),
            is_finished: figures.iter().all(|figures| figures.complete),
        }
    };
    let group = |&task: &Task| BarGroup {
        title: task.short(),
        bars: results.plan.ways.iter().rev().map(|way| bar(task, way)).collect(),
    };
    let groups: Vec<BarGroup> = results.plan.tasks.iter().map(group).collect();
    bars("Time to finish, for each task and way", &groups)
}

fn over_time(page: &mut HtmlPage, results: &Results) {
    let mut records = first_round(results, Task::Download).peekable();
    if records.peek().is_none() {
        return;
    }
    let limit = &results.limits[0];
    let mb = DOWNLOAD.get() as f64 / 1e6;
    let title = "Megabytes of the download that had arrived, over time";
    let x = Axis::new("seconds since the start").from_zero();
    let y = Axis::new("megabytes received").range(0.0..mb * 1.02);
    let mut graph = Graph::new(title, x, y).narrow();
    for record in records {
        let arrived = record.trail.iter().map(|&(at, bytes)| (at, bytes as f64 / 1e6));
        graph.add(line(results, &record.entry.way, arrived.collect()));
    }
    // A round trip for the request and the first byte, then the link's full rate.
    let best =
        vec![(0.0, 0.0), (limit.rtt.as_secs_f64(), 0.0), (limit.seconds(DOWNLOAD.get()), mb)];
    graph.add(GraphSeries::dashed("maximum that the link can carry", SeriesColour::Grey, best));
    page.figure(
        &of_first_round(results, "The download, second by second"),
        &graph.picture(),
        "How much of the download had arrived. A steeper line is a faster download. The dashed \
         line is the best possible: one round trip over the satellite for the request and the \
         first byte of the reply, then the link's full rate, less losses.",
    );
}

fn distribution(page: &mut HtmlPage, results: &Results) {
    let mut records = first_round(results, Task::Requests).peekable();
    if records.peek().is_none() {
        return;
    }
    let title = "Share of requests answered, over time";
    let x = Axis::new("milliseconds since a request was sent").from_zero();
    let y = Axis::new("% of the requests answered").range(0.0..102.0);
    let mut graph = Graph::new(title, x, y).narrow();
    for record in records {
        graph.add(line(results, &record.entry.way, steps(&record.response_seconds)));
    }
    page.figure(
        &of_first_round(results, "How long a request waits for its reply"),
        &graph.picture(),
        "Small requests, as applications and web pages make them all the time. Each line shows the \
         share of requests whose whole reply had arrived by then. The further left and the \
         steeper, the better: users notice a long tail to the right as hanging. Nothing can be \
         faster than one round trip over the satellite.",
    );
}

/// Adds pictures of the slots that a terminal was granted, by each way.
fn granted(page: &mut HtmlPage, results: &Results) {
    if results.on_demand.is_empty() {
        return;
    }
    page.heading("Capacity on demand");
    page.paragraph(
        "On many networks a terminal has no capacity of its own for what it sends: it asks, and is \
         granted slots about 1.3 seconds later. This is an upload of 50 kB over such a link of 128 \
         kbit/s.",
    );
    for crossing in &results.on_demand {
        page.figure(
            &format!("Granted slots: {}", crossing.in_short()),
            &crossing.allocation,
            "Above: the slots of each superframe of 106 ms that the terminal was granted. Below: \
             the cells that waited at the modem, and as crosses the capacity it asked for. Plain \
             TCP asks for what it sends in each round trip; the gateway asks for all that waits, \
             and keeps it out of the modem's queue.",
        );
    }
}

/// Computes the cumulative distribution as steps: milliseconds, and the percentage of all requests
/// answered by then.
fn steps(seconds: &[f64]) -> Vec<(f64, f64)> {
    let mut times: Vec<f64> = seconds.iter().map(|seconds| seconds * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let mut points = vec![(0.0, 0.0)];
    let mut before = 0.0;
    for (index, &time) in times.iter().enumerate() {
        // Of all requests, so that unanswered ones keep the line below 100 %.
        let share = (index + 1) as f64 * 100.0 / f64::from(REQUESTS);
        points.extend([(time, before), (time, share)]);
        before = share;
    }
    points
}

fn tables(page: &mut HtmlPage, results: &Results) {
    let entries: Vec<&MeasurementEntry> = results.entries();
    let source = results.source(&entries);
    page.heading("All figures");
    for &task in &results.plan.tasks {
        page.table(&summary::section(task, &source));
    }
    page.remark(
        "Time: from before the first connection until the last byte; every byte is verified where \
         it arrives. Goodput: useful bytes over that time. Limit: the link's rate, less its packet \
         loss. Share: the least possible time over the time taken. Median, p99: half of the \
         objects or replies, and 99 % of them, took no longer. \
         Gain: goodput over that of the better plain way.",
    );
}

fn setting(page: &mut HtmlPage, results: &Results) {
    let setting = &results.setting;
    let how = match &setting.simulated {
        Some(_) => "models in virtual time, exactly repeatable",
        None => {
            "real TCP and real packets between network namespaces of one machine; transfers run \
             one after the other, pages and requests in parallel, each over its own link"
        }
    };
    let mut terms = vec![
        ("Link", setting.link.clone()),
        ("How", how.to_owned()),
        ("Seed of the losses", setting.seed.to_string()),
        ("Rounds", setting.rounds.to_string()),
        ("Machine", setting.machine.to_string()),
        ("Version", format!("skyhop {}", setting.version)),
    ];
    let absent =
        results.unavailable.iter().map(|absent| format!("{}: {}", absent.way, absent.reason));
    terms.extend(absent.map(|absent| ("Not run", absent)));
    let late = results.records.iter().filter_map(|record| record.lateness_seconds);
    if let Some(late) = late.reduce(f64::max) {
        let late = format!("99 % of packets at most {:.2} ms late", late * 1e3);
        terms.push(("Precision of the link", late));
    }
    page.heading("What was run");
    page.terms(&terms, "To repeat it", &setting.command);
}

fn of_first_round(results: &Results, title: &str) -> String {
    match results.setting.rounds {
        1 => title.to_owned(),
        rounds => format!("{title} (the first of {rounds} rounds)"),
    }
}

fn line(results: &Results, way: &TrafficPath, points: Vec<(f64, f64)>) -> GraphSeries {
    GraphSeries::line(way.to_string(), colour(results, way), points)
}

fn colour(results: &Results, way: &TrafficPath) -> SeriesColour {
    let index = results.plan.ways.iter().position(|each| each == way).unwrap_or_default();
    match way {
        TrafficPath::Pair => SeriesColour::Blue,
        TrafficPath::Plain { .. } => PLAIN[index % PLAIN.len()],
    }
}

/// Returns the first-round records of a task, the pair first.
fn first_round(results: &Results, task: Task) -> impl Iterator<Item = &MeasurementRecord> {
    let wanted =
        move |record: &&MeasurementRecord| record.entry.task == task && record.entry.round == 0;
    results.records.iter().filter(wanted).filter(|record| record.entry.figures.is_some())
}

fn figures(results: &Results, task: Task, way: &TrafficPath) -> Vec<TaskFigures> {
    let entries = results.records.iter().map(|record| &record.entry);
    let wanted = entries.filter(|entry| entry.task == task && entry.way == *way);
    wanted.filter_map(|entry| entry.figures).collect()
}

fn median_seconds(figures: &[TaskFigures]) -> Option<f64> {
    Some(SampleSpread::of(figures.iter().map(|figures| figures.seconds))?.median)
}

#[cfg(test)]
mod tests;
