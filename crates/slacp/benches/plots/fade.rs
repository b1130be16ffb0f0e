//! One session on a link whose rate falls to a tenth and rises again.

use report::{GraphSeries, SeriesColour, SvgPicture};

use super::timeline::{self, bins};
use crate::path::fades::{DELAY, Fade};
use crate::path::{Path, at, ms};

const SEED: u64 = 1;
/// Goodput is counted over so many seconds.
const BIN: f64 = 0.5;
/// The link's rate before it changes, in Mbit/s.
const BEFORE: f64 = 50.0;

pub(super) fn draw() -> SvgPicture {
    let fade = Fade::step("", ms(600));
    let mut path = fade.path(SEED);
    let goodput = goodput(&mut path, fade.end);
    let rates = vec![
        GraphSeries::dashed("the link", SeriesColour::Grey, link(&fade)),
        GraphSeries::line("goodput at the receiver", SeriesColour::Blue, goodput),
    ];
    let title = "A session on a link of 50, 5 and again 50 Mbit/s, 600 ms";
    timeline::draw(title, rates, timeline::queue(&path, DELAY, fade.end), fade.end)
}

/// Runs the path, and counts what the receiver can read, in Mbit/s.
fn goodput(path: &mut Path, end: f64) -> Vec<(f64, f64)> {
    let mut before = 0;
    let mut read = |(from, to): (f64, f64)| {
        path.run_on(at(to));
        let received = path.transfer(0).received;
        let bytes = received - before;
        before = received;
        (f64::midpoint(from, to), bytes as f64 * 8e-6 / (to - from))
    };
    bins(BIN, end).map(&mut read).collect()
}

/// The corners of the link's rate.
fn link(fade: &Fade) -> Vec<(f64, f64)> {
    let mut corners = vec![(0.0, BEFORE)];
    let mut mbit = BEFORE;
    for &(time, next) in &fade.steps {
        corners.extend([(time, mbit), (time, next)]);
        mbit = next;
    }
    corners.push((fade.end, mbit));
    corners
}
