//! What two links are worth, beside each alone, in virtual time:
//! `cargo bench -p skyhop-slacp --bench links`.
//!
//! GEO has 50/10 Mbit/s and 600 ms of round-trip time, LEO 20/10 Mbit/s and 40 ms. A download is timed
//! from its opening; the goodput is that between a quarter and three quarters of it. A stall is the longest
//! time without a byte of the download after a link is cut in its middle.

#[path = "../tests/kit/hop.rs"]
mod hop;
#[path = "../tests/kit/links.rs"]
mod links;

use core::time::Duration;

use hop::{Plan, TERMINAL};
use links::{Kind, Net};
use slacp::Event;

const MB: u64 = 1_000_000;
const BYTES: u64 = 100 * MB;
/// Numbers of the links.
const GEO: usize = 0;
const LEO: usize = 1;

/// A download that has begun.
fn begun(kinds: &[Kind], seed: u64) -> Net {
    let mut net = Net::connected(kinds, &[Plan::new(100, BYTES)], seed);
    net.open_all();
    net
}

/// Goodput in Mbit/s, and the time to the first byte in ms.
fn download(kinds: &[Kind]) -> [f64; 2] {
    let mut net = begun(kinds, 1);
    let start = net.now;
    net.run_until(300.0, |net| net.received() >= BYTES / 4);
    let (from, before) = (net.now, net.received());
    net.run_until(300.0, |net| net.received() >= BYTES * 3 / 4);
    let (seconds, bytes) = (net.now.saturating_since(from), net.received() - before);
    net.run_until(300.0, Net::is_over);
    let first = net.flow().first_byte.expect("it is over").saturating_since(start);
    [bytes as f64 * 8.0 / 1e6 / seconds.as_secs_f64(), first.as_secs_f64() * 1e3]
}

/// The longest stall, in ms, and whether a connection was lost, if a link is cut.
fn cut(link: usize, seed: u64) -> (f64, bool) {
    let mut net = begun(&[Kind::geo(), Kind::leo()], seed);
    net.run_until(300.0, |net| net.received() > BYTES / 2);
    net.restart_clock();
    net.cut(link, Duration::from_secs(10_000));
    net.run_until(300.0, Net::is_over);
    let ends = |event: &Event| matches!(event, Event::Down(_));
    let lost = net.hosts.iter().any(|host| host.log.iter().any(|(_, event)| ends(event)));
    let whole = net.hosts[TERMINAL].lost_flows == 0 && net.flow().received == BYTES;
    (net.stall.as_secs_f64() * 1e3, lost || !whole)
}

/// Prints a row of the table; returns whether it was missed.
fn row(what: &str, found: &str, bound: &str, good: bool) -> usize {
    println!("| {what} | {found} | {bound} | {} |", if good { "reached" } else { "missed" });
    usize::from(!good)
}

fn main() {
    let (geo, leo) = (Kind::geo(), Kind::leo());
    let [alone_geo, alone_leo] = [[geo], [leo]].map(|kinds| download(&kinds));
    let both = download(&[geo, leo]);
    println!("alone: GEO {:.1} Mbit/s, LEO {:.1} Mbit/s\n", alone_geo[0], alone_leo[0]);
    println!("| | | bound | |\n|---|---|---|---|");
    let sum = 70.0;
    let share = both[0] / sum;
    let goodput = format!("{:.1} Mbit/s, {share:.3} of the sum", both[0]);
    let mut missed = row("download", &goodput, "0.9 of the sum", share >= 0.9);
    let first = format!("{:.0} ms", both[1]);
    missed += row("first byte", &first, "LEO's RTT + 20 ms = 60 ms", both[1] <= 60.0);
    for (link, name) in [(GEO, "GEO"), (LEO, "LEO")] {
        let cuts: Vec<(f64, bool)> = (1..=9).map(|seed| cut(link, seed)).collect();
        let most = cuts.iter().map(|(stall, _)| *stall).fold(0.0, f64::max);
        let lost = cuts.iter().filter(|(_, lost)| *lost).count();
        let what = format!("longest stall of 9, {name} cut");
        let found = format!("{most:.0} ms, {lost} connections lost");
        let bound = "GEO's RTT + 100 ms = 700 ms, none";
        missed += row(&what, &found, bound, most <= 700.0 && lost == 0);
    }
    println!("\n{missed} missed");
}
