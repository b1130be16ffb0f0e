//! The demo's report: one self-contained HTML file.

mod bars;
mod chart;
mod svg;

use std::fmt::Write as _;

use stats::Spread;

use self::bars::{Bar, Group};
use self::chart::{Chart, Line};
use self::svg::{Drawing, escape};
use super::entry::{Entry, Record};
use super::figures::Figures;
use super::plan::{DOWNLOAD, REQUESTS, Task, Way};
use super::results::Results;
use super::summary;
use super::table::Row;

const COLOURS: &str = include_str!("colours.css");
const PAGE: &str = include_str!("page.css");
/// Number of distinct colours for plain TCP; the pair uses `c0`.
const PLAIN_COLOURS: usize = 3;

/// The whole page.
pub(crate) fn html(results: &Results) -> String {
    let mut body = head(results);
    body += &times(results);
    body += &over_time(results);
    body += &distribution(results);
    body += &tables(results);
    body += &setting(results);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>skyhop demo</title>\n<style>\n{COLOURS}{PAGE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// The bar chart of all times as a standalone SVG file.
pub(crate) fn picture(results: &Results) -> String {
    bars_of(results).standalone(COLOURS)
}

fn head(results: &Results) -> String {
    let link = escape(&results.setting.link);
    let mut text = format!("<h1>A satellite link, with and without skyhop</h1>\n<p>{link}</p>\n");
    if let Some(why) = &results.setting.simulated {
        let why = escape(why);
        let _ = writeln!(
            text,
            "<p class=\"notice\"><strong>Simulated.</strong> These figures come from models in \
             virtual time, not from this machine's network: {why}.</p>"
        );
    }
    text += "<ul class=\"lede\">\n";
    for &task in &results.plan.tasks {
        let _ = writeln!(text, "<li>{}</li>", escape(&in_short(results, task)));
    }
    text + "</ul>\n"
}

/// Summarises a task in one sentence.
fn in_short(results: &Results, task: Task) -> String {
    let ways = results.plan.ways.iter().rev();
    let each: Vec<String> = ways.map(|way| way_in_short(results, task, way)).collect();
    format!("{}: {}.", task.short(), each.join(", "))
}

fn way_in_short(results: &Results, task: Task, way: &Way) -> String {
    let figures = figures(results, task, way);
    match (median_seconds(&figures), figures.iter().find(|it| !it.complete)) {
        (None, _) => format!("{way} failed"),
        (Some(_), Some(it)) => format!("{way} not finished ({})", summary::done(task, it)),
        (Some(seconds), None) => format!("{seconds:.1} s with {way}"),
    }
}

fn times(results: &Results) -> String {
    section(
        "Time to finish",
        &bars_of(results).inline(),
        "How long a user behind the satellite waits. Shorter is better. Plain means that the \
         computers at both ends use ordinary TCP, with the congestion control named; with skyhop \
         they do the same, and a pair of gateways at the two ends of the satellite link carries \
         their data. A pale, dashed bar was stopped before it had finished.",
    )
}

fn bars_of(results: &Results) -> Drawing {
    let bar = |task: Task, way: &Way| {
        let figures = figures(results, task, way);
        Bar {
            name: way.to_string(),
            class: class(results, way),
            seconds: median_seconds(&figures),
            finished: figures.iter().all(|it| it.complete),
        }
    };
    let group = |&task: &Task| Group {
        title: task.short(),
        bars: results.plan.ways.iter().rev().map(|way| bar(task, way)).collect(),
    };
    let groups: Vec<Group> = results.plan.tasks.iter().map(group).collect();
    bars::draw("Time to finish, for each task and way", &groups)
}

fn over_time(results: &Results) -> String {
    let mut lines: Vec<Line> = first_round(results, Task::Download)
        .map(|record| {
            let mb = record.trail.iter().map(|&(at, bytes)| (at, bytes as f64 / 1e6));
            line(results, &record.entry.way, mb.collect())
        })
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let limit = &results.limits[0];
    let mb = DOWNLOAD.get() as f64 / 1e6;
    let points =
        vec![(0.0, 0.0), (limit.rtt.as_secs_f64(), 0.0), (limit.seconds(DOWNLOAD.get()), mb)];
    lines.push(Line {
        name: "maximum that the link can carry".into(),
        class: "limit".into(),
        points,
    });
    let x_end = lines.iter().flat_map(|line| &line.points).map(|&(x, _)| x).fold(0.0, f64::max);
    let chart = Chart {
        label: "Megabytes of the download that had arrived, over time",
        x_title: "seconds since the start",
        y_title: "megabytes received",
        x_end,
        y_end: mb,
        lines,
    };
    section(
        &of_first_round(results, "The download, second by second"),
        &chart.draw().inline(),
        "How much of the download had arrived. A steeper line is a faster download. The dashed \
         line is the best possible: one round trip over the satellite for the request and the \
         first byte of the reply, then the link's full rate, less losses.",
    )
}

fn distribution(results: &Results) -> String {
    let lines: Vec<Line> = first_round(results, Task::Requests)
        .map(|record| line(results, &record.entry.way, steps(&record.response_seconds)))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let x_end = lines.iter().flat_map(|line| &line.points).map(|&(x, _)| x).fold(0.0, f64::max);
    let chart = Chart {
        label: "Share of requests answered, over time",
        x_title: "milliseconds since a request was sent",
        y_title: "% of the requests answered",
        x_end,
        y_end: 100.0,
        lines,
    };
    section(
        &of_first_round(results, "How long a request waits for its reply"),
        &chart.draw().inline(),
        "Small requests, as applications and web pages make them all the time. Each line shows the \
         share of requests whose whole reply had arrived by then. The further left and the \
         steeper, the better: users notice a long tail to the right as hanging. Nothing can be \
         faster than one round trip over the satellite.",
    )
}

/// Cumulative distribution as steps: milliseconds, and the percentage of all requests answered by
/// then.
fn steps(seconds: &[f64]) -> Vec<(f64, f64)> {
    let mut times: Vec<f64> = seconds.iter().map(|seconds| seconds * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let mut points = vec![(0.0, 0.0)];
    let mut before = 0.0;
    for (index, &time) in times.iter().enumerate() {
        let share = (index + 1) as f64 * 100.0 / f64::from(REQUESTS);
        points.extend([(time, before), (time, share)]);
        before = share;
    }
    points
}

fn tables(results: &Results) -> String {
    let entries: Vec<&Entry> = results.entries();
    let source = results.source(&entries);
    let mut text = "<h2>All figures</h2>\n".to_owned();
    for &task in &results.plan.tasks {
        text += &table(&summary::section(task, &source));
    }
    text + "<p class=\"soft\">Time: from before the first connection until the last byte; every \
            byte is verified where it arrives. Goodput: useful bytes over that time. Limit: the \
            link's rate, less its packet loss. Share: the least possible time over the time taken. \
            Median, p99: half of the objects or replies, and 99 % of them, took no longer. Gain: \
            goodput over that of the better plain way.</p>\n"
}

fn table(rows: &[Row]) -> String {
    let mut text = "<div class=\"scroll\"><table>\n".to_owned();
    for (index, row) in rows.iter().enumerate() {
        match row {
            Row::Title(title) => {
                let _ = writeln!(text, "<caption>{}</caption>", escape(title));
            }
            Row::Cells { cells, remark } => {
                let tag = if index <= 2 { "th" } else { "td" };
                let mut cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
                cells.resize(7, String::new());
                cells.push(escape(remark));
                let cells = cells.iter().map(|cell| format!("<{tag}>{cell}</{tag}>"));
                let _ = writeln!(text, "<tr>{}</tr>", cells.collect::<String>());
            }
            Row::Blank => {}
        }
    }
    text + "</table></div>\n"
}

fn setting(results: &Results) -> String {
    let setting = &results.setting;
    let how = match &setting.simulated {
        Some(_) => "models in virtual time, exactly repeatable",
        None => {
            "real TCP and real packets between network namespaces of one machine; transfers run \
             one after the other, pages and requests in parallel, each over its own link"
        }
    };
    let mut rows = vec![
        ("Link", setting.link.clone()),
        ("How", how.to_owned()),
        ("Seed of the losses", setting.seed.to_string()),
        ("Rounds", setting.rounds.to_string()),
        ("Machine", setting.machine.to_string()),
        ("Version", format!("skyhop {}", setting.version)),
    ];
    let absent = results.unavailable.iter().map(|it| format!("{}: {}", it.way, it.reason));
    rows.extend(absent.map(|absent| ("Not run", absent)));
    let late = results.records.iter().filter_map(|record| record.lateness_seconds);
    if let Some(late) = late.reduce(f64::max) {
        let late = format!("99 % of packets at most {:.2} ms late", late * 1e3);
        rows.push(("Precision of the link", late));
    }
    let rows =
        rows.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value)));
    let command = escape(&setting.command);
    format!(
        "<h2>What was run</h2>\n<dl>\n{}<dt>To repeat \
         it</dt><dd><code>{command}</code></dd>\n</dl>\n",
        rows.collect::<String>()
    )
}

fn of_first_round(results: &Results, title: &str) -> String {
    match results.setting.rounds {
        1 => title.to_owned(),
        rounds => format!("{title} (the first of {rounds} rounds)"),
    }
}

fn section(title: &str, drawing: &str, caption: &str) -> String {
    let (title, caption) = (escape(title), escape(caption));
    format!("<h2>{title}</h2>\n<figure>\n{drawing}<figcaption>{caption}</figcaption>\n</figure>\n")
}

fn line(results: &Results, way: &Way, points: Vec<(f64, f64)>) -> Line {
    Line { name: way.to_string(), class: class(results, way), points }
}

/// CSS class of a way's colour.
fn class(results: &Results, way: &Way) -> String {
    let index = results.plan.ways.iter().position(|each| each == way).unwrap_or_default();
    match way {
        Way::Pair => "c0".to_owned(),
        Way::Plain { .. } => format!("c{}", 1 + index % PLAIN_COLOURS),
    }
}

/// First-round records of a task, the pair first.
fn first_round(results: &Results, task: Task) -> impl Iterator<Item = &Record> {
    let wanted = move |record: &&Record| record.entry.task == task && record.entry.round == 0;
    results.records.iter().filter(wanted).filter(|record| record.entry.figures.is_some())
}

fn figures(results: &Results, task: Task, way: &Way) -> Vec<Figures> {
    let entries = results.records.iter().map(|record| &record.entry);
    let wanted = entries.filter(|entry| entry.task == task && entry.way == *way);
    wanted.filter_map(|entry| entry.figures).collect()
}

fn median_seconds(figures: &[Figures]) -> Option<f64> {
    Some(Spread::of(figures.iter().map(|it| it.seconds))?.median)
}

#[cfg(test)]
mod tests;
