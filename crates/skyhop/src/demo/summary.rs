//! From measurements to the table on the screen.

use super::entry::{Entry, Figures};
use super::figures::{Limit, Requests, Spread, Transfer, gain_of_less, gain_of_more};
use super::plan::{LIMIT, Task, Way};
use super::table::{Row, render};

/// The heads of the columns, in two lines.
type Head = [[&'static str; 7]; 2];
const TRANSFER_HEAD: Head = [
    ["", "time", "first byte", "goodput", "goodput", "share ¹", "gain ²"],
    ["", "s", "s", "Mbit/s", "/ limit", "", ""],
];
const REQUESTS_HEAD: Head =
    [["", "time", "median", "p99", "", "", "gain ³"], ["", "s", "ms", "ms", "", "", ""]];

/// A way that cannot be measured here, and why.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Unavailable {
    /// The way.
    pub(crate) way: Way,
    /// Why not.
    pub(crate) reason: String,
}

/// The whole table of what was measured, with its footnotes.
pub(crate) fn text(
    entries: &[Entry],
    tasks: &[Task],
    unavailable: &[Unavailable],
    limits: [&Limit; 2],
) -> String {
    let mut rows = Vec::new();
    for &task in tasks {
        let of_task: Vec<&Entry> = entries.iter().filter(|entry| entry.task == task).collect();
        rows.extend(section(task, &of_task, unavailable));
        rows.push(Row::Blank);
    }
    render(&rows) + &footnotes(tasks, limits)
}

fn section(task: Task, entries: &[&Entry], unavailable: &[Unavailable]) -> Vec<Row> {
    let head = if task == Task::Requests { REQUESTS_HEAD } else { TRANSFER_HEAD };
    let mut rows = vec![Row::Title(task.to_string())];
    rows.extend(head.iter().map(|line| Row::cells(line)));
    for way in Way::all() {
        let of_way: Vec<&Entry> = entries.iter().copied().filter(|e| e.way == way).collect();
        let absent = unavailable.iter().find(|absent| absent.way == way);
        match (of_way.is_empty(), absent) {
            (true, Some(_)) => rows.push(remark_only(&way, "not available here".to_owned())),
            (true, None) => {}
            (false, _) => rows.push(row(&way, &of_way, entries)),
        }
    }
    rows
}

fn remark_only(way: &Way, remark: String) -> Row {
    Row::Cells { cells: vec![name(way)], remark }
}

fn name(way: &Way) -> String {
    format!("  {way}")
}

/// One way's line of a section. `all` are the entries of the whole section.
fn row(way: &Way, entries: &[&Entry], all: &[&Entry]) -> Row {
    let figures: Vec<Figures> = entries.iter().filter_map(|entry| entry.figures).collect();
    let Some(time) = Spread::of(figures.iter().map(Figures::seconds)) else {
        return remark_only(way, remark(entries));
    };
    let unfinished = figures.iter().filter(|figures| !figures.is_complete()).count();
    let more = if unfinished * 2 >= figures.len() { ">" } else { "" };
    let mut cells = vec![name(way), format!("{more}{}", spread(time, 2))];
    cells.extend(match entries[0].task {
        Task::Requests => requests_cells(way, all),
        Task::Download | Task::Upload => transfer_cells(way, all),
    });
    Row::Cells { cells, remark: remark(entries) }
}

fn transfer_cells(way: &Way, all: &[&Entry]) -> Vec<String> {
    let of = |way: &Way, what: fn(&Transfer) -> f64| {
        Spread::of(transfers(all, way).map(|transfer| what(&transfer)))
    };
    let goodput = |way: &Way| of(way, |transfer| transfer.goodput);
    let plain = plain().filter_map(|way| Some(goodput(&way)?.median));
    let ours = goodput(way).filter(|_| *way == Way::Pair);
    let mbit = of(way, |transfer| transfer.goodput / 1e6);
    let first = Spread::of(transfers(all, way).filter_map(|it| it.first_byte_seconds));
    vec![
        first.map_or_else(String::new, |first| format!("{:.2}", first.median)),
        mbit.map_or_else(String::new, |mbit| spread(mbit, 2)),
        percent(of(way, |transfer| transfer.of_limit)),
        percent(of(way, |transfer| transfer.share)),
        gain(ours.and_then(|ours| gain_of_more(ours.median, plain))),
    ]
}

fn requests_cells(way: &Way, all: &[&Entry]) -> Vec<String> {
    let of = |way: &Way, what: fn(&Requests) -> f64| {
        Spread::of(requests(all, way).map(|requests| what(&requests)))
    };
    let median = |way: &Way| of(way, |requests| requests.median_seconds * 1e3);
    let p99 = of(way, |requests| requests.p99_seconds * 1e3);
    let plain = plain().filter_map(|way| Some(median(&way)?.median));
    let ours = median(way).filter(|_| *way == Way::Pair);
    vec![
        median(way).map_or_else(String::new, |median| spread(median, 0)),
        p99.map_or_else(String::new, |p99| spread(p99, 0)),
        String::new(),
        String::new(),
        gain(ours.and_then(|ours| gain_of_less(ours.median, plain))),
    ]
}

fn plain() -> impl Iterator<Item = Way> {
    Way::all().into_iter().filter(|way| *way != Way::Pair)
}

fn transfers<'a>(all: &'a [&Entry], way: &'a Way) -> impl Iterator<Item = Transfer> + 'a {
    all.iter().filter(move |entry| entry.way == *way).filter_map(|entry| match entry.figures {
        Some(Figures::Transfer(transfer)) => Some(transfer),
        _ => None,
    })
}

fn requests<'a>(all: &'a [&Entry], way: &'a Way) -> impl Iterator<Item = Requests> + 'a {
    all.iter().filter(move |entry| entry.way == *way).filter_map(|entry| match entry.figures {
        Some(Figures::Requests(requests)) => Some(requests),
        _ => None,
    })
}

/// What the figures do not say: how many did not finish, and what failed.
fn remark(entries: &[&Entry]) -> String {
    let unfinished: Vec<&Figures> =
        entries.iter().filter_map(|e| e.figures.as_ref()).filter(|f| !f.is_complete()).collect();
    let failures = entries.iter().filter_map(|entry| entry.failure.as_deref());
    let failed: Vec<&str> = failures.map(|why| why.lines().next().unwrap_or(why)).collect();
    let mut remarks = Vec::new();
    match (unfinished.as_slice(), entries.len()) {
        ([], _) => {}
        ([Figures::Transfer(one)], 1) => {
            remarks.push(format!("unfinished: {:.2} MB moved", one.moved_bytes as f64 / 1e6));
        }
        ([Figures::Requests(one)], 1) => {
            remarks.push(format!("unfinished: {} answered", one.answered));
        }
        (some, all) => remarks.push(format!("{}/{all} unfinished", some.len())),
    }
    match (failed.as_slice(), entries.len()) {
        ([], _) => {}
        ([one], 1) => remarks.push(format!("failed: {one}")),
        ([first, ..], all) => remarks.push(format!("{}/{all} failed: {first}", failed.len())),
    }
    remarks.join("; ")
}

/// The median, and the range if there is one.
fn spread(spread: Spread, digits: usize) -> String {
    let Spread { median, min, max } = spread;
    let [median, min, max] = [median, min, max].map(|figure| format!("{figure:.digits$}"));
    if min == max { median } else { format!("{median} ({min}–{max})") }
}

fn percent(share: Option<Spread>) -> String {
    share.map_or_else(String::new, |share| {
        let percent = share.median * 100.0;
        let digits = usize::from(percent < 10.0);
        format!("{percent:.digits$} %")
    })
}

fn gain(gain: Option<f64>) -> String {
    gain.map_or_else(String::new, |gain| {
        let digits = usize::from(gain < 10.0);
        format!("{gain:.digits$} ×")
    })
}

fn footnotes(tasks: &[Task], [down, up]: [&Limit; 2]) -> String {
    let mbit = |limit: &Limit| (limit.bits_per_second() / 1e4).round() / 100.0;
    let rtt = units::format_duration(down.rtt);
    let mut text = format!("A transfer gets {} s. ", LIMIT.as_secs());
    text += "All payload is verified at the receiver.\n";
    if tasks.iter().any(|&task| task != Task::Requests) {
        text += &format!(
            "limit    rate × (1 − PER): {} Mbit/s down, {} Mbit/s up; headers are not deducted\n",
            mbit(down),
            mbit(up)
        );
        text += &format!(
            "¹ share  time at the limit over time taken, both for the bytes that were moved;\n\
             \u{20}        time at the limit = 1 RTT ({rtt}: request up, first byte down) + bytes / limit.\n\
             \u{20}        goodput / limit stays lower: nothing can arrive in that first RTT\n"
        );
        text += "² gain   goodput over that of the better plain one\n";
    }
    if tasks.contains(&Task::Requests) {
        text += &format!(
            "³ gain   the better plain one's median response time over ours; 1 RTT = {rtt} is the least\n"
        );
    }
    text
}

#[cfg(test)]
mod tests;
