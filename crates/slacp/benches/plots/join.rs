//! Four sessions that do not know of each other, and begin one after the other.

use report::{GraphSeries, SeriesColour, SvgPicture};

use super::timeline::{self, bins};
use crate::path::sharing::{MBIT, path, session};
use crate::path::{Path, at, ms};

const SEED: u64 = 1;
/// When they begin, and when the picture ends, in seconds.
const STARTS: [f64; 4] = [2.0, 12.0, 22.0, 32.0];
const END: f64 = 80.0;
/// Rates are counted over so many seconds.
const BIN: f64 = 1.0;

pub(super) fn draw() -> SvgPicture {
    let delay = ms(300);
    let mut path = path(delay, SEED);
    let flows = STARTS.iter().zip(SEED * 1000..).map(|(start, seed)| {
        let flow = session(&mut path, *start, seed);
        (flow, *start)
    });
    let flows: Vec<(usize, f64)> = flows.collect();
    path.run_on(at(END));
    let rate = |(flow, start): (usize, f64)| {
        let name = format!("from {start:.0} s on");
        GraphSeries::line(name, SeriesColour::cycle(flow), rates(&path, flow))
    };
    let mut series = vec![GraphSeries::dashed("fair share", SeriesColour::Grey, fair())];
    series.extend(flows.into_iter().map(rate));
    let title = "Four sessions that do not know of each other on 50 Mbit/s, 600 ms";
    timeline::draw(title, series, timeline::queue(&path, delay, END), END)
}

/// What arrived, in Mbit/s.
fn rates(path: &Path, flow: usize) -> Vec<(f64, f64)> {
    let rate = |(from, to)| (f64::midpoint(from, to), path.arrived(flow, at(from), at(to)));
    bins(BIN, END).map(rate).collect()
}

/// The corners of what each should get.
fn fair() -> Vec<(f64, f64)> {
    let ends = STARTS.into_iter().skip(1).chain([END]);
    let share = |((from, to), count): ((f64, f64), u32)| {
        [from, to].map(|time| (time, MBIT / f64::from(count)))
    };
    STARTS.into_iter().zip(ends).zip(1..).flat_map(share).collect()
}
