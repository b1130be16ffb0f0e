//! Graphs over time: rates, and below them the queue.

use core::time::Duration;

use report::{Axis, Graph, GraphSeries, SeriesColour, SvgPicture, stacked};

use crate::path::{Path, at};

/// The queue is shown by its longest in so many seconds.
const QUEUE_BIN: f64 = 0.2;
const RATES_HEIGHT: u32 = 360;
const QUEUE_HEIGHT: u32 = 240;

/// Graphs of rates and of the queue, from 0 to `end` seconds.
pub(super) fn draw(
    title: &str,
    rates: Vec<GraphSeries>,
    queue: Vec<(f64, f64)>,
    end: f64,
) -> SvgPicture {
    let time = |name: &str| Axis::new(name).range(0.0..end);
    let mut above = Graph::new(title, time(""), Axis::new("rate (Mbit/s)").from_zero());
    for series in rates {
        above.add(series);
    }
    let delay = Axis::new("queueing delay (ms), the longest in each 0.2 s").from_zero();
    let mut below = Graph::new("", time("time (s)"), delay);
    below.add(GraphSeries::line("", SeriesColour::Blue, queue));
    stacked(&[above.height(RATES_HEIGHT), below.height(QUEUE_HEIGHT)])
}

/// Begin and end of each `bin` seconds.
pub(super) fn bins(bin: f64, end: f64) -> impl Iterator<Item = (f64, f64)> {
    let count = (end / bin).round() as u32;
    (0..count).map(move |n| (f64::from(n) * bin, f64::from(n + 1) * bin))
}

/// The longest queueing delays in ms, by the time of sending, on a path of this delay; none for
/// times without packets that arrive.
pub(super) fn queue(path: &Path, delay: Duration, end: f64) -> Vec<(f64, f64)> {
    let mut longest = vec![None; bins(QUEUE_BIN, end).count()];
    for record in &path.records {
        let index = (record.sent.saturating_since(at(0.0)).as_secs_f64() / QUEUE_BIN) as usize;
        if let (Some(longest), Some(queued)) = (longest.get_mut(index), record.queued(delay)) {
            *longest = (*longest).max(Some(queued));
        }
    }
    let middles = bins(QUEUE_BIN, end).map(|(from, to)| f64::midpoint(from, to));
    let known = middles.zip(longest).filter_map(|(time, queued)| Some((time, queued?)));
    known.map(|(time, queued)| (time, queued.as_secs_f64() * 1e3)).collect()
}
