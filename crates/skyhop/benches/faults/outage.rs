//! The hop fails for a minute during transfers in both directions.

use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::gateways::Keys;
use crate::inside::{Mirror, exchange, payload};
use crate::transfer::{Arrivals, Transfer};
use crate::{AWAY, fail_the_hop, tell};

const DOWNLOADS: u16 = 8;
const UPLOADS: u16 = 2;
const IDLE: usize = 5;
const DOWN_BYTES: usize = 12_000_000;
const UP_BYTES: usize = 6_000_000;
/// Bytes per download, on average, after which the hop fails.
const BEFORE: usize = DOWN_BYTES * 2 / 5;
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn run() {
    let keys = Keys::new(1);
    let _hub = keys.hub("rate = \"50 Mbit/s\"\ncontrol = \"none\"", "");
    let _terminal = keys.terminal(1, "rate = \"10 Mbit/s\"\ncontrol = \"none\"", "");
    let mirror = Mirror::start(7000);
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| mirror.connect_carried()).collect();
    let begin = |port, bytes, down| Transfer::begin(port, content(port, bytes), down);
    let downs: Vec<_> = (0..DOWNLOADS).map(|i| begin(7100 + i, DOWN_BYTES, true)).collect();
    let ups: Vec<_> = (0..UPLOADS).map(|i| begin(7200 + i, UP_BYTES, false)).collect();
    let come = || downs.iter().map(|it| it.arrivals.bytes()).sum::<usize>();
    while come() < BEFORE * usize::from(DOWNLOADS) {
        thread::sleep(LOOK);
    }

    let failed = Instant::now();
    fail_the_hop();
    let back = Instant::now() + AWAY;
    thread::sleep(AWAY);
    let answers = idle.into_iter().map(|mut socket| {
        thread::spawn(move || {
            exchange(&mut socket);
            back.elapsed()
        })
    });
    let answers: Vec<_> = answers.collect();
    let arrivals = |all: &[Transfer]| all.iter().map(|it| it.arrivals.clone()).collect::<Vec<_>>();
    let noted = [("downloads", arrivals(&downs)), ("uploads", arrivals(&ups))];
    downs.into_iter().chain(ups).for_each(Transfer::finish);
    noted.iter().for_each(|(what, arrivals)| report(what, arrivals, failed, back));
    let answered = answers.into_iter().map(|answer| answer.join().expect("it goes on"));
    tell("idle connections: the last has its answer", answered.max().expect("some"));
}

/// Content of a transfer, different for each.
fn content(port: u16, bytes: usize) -> Arc<[u8]> {
    payload(bytes + usize::from(port))[usize::from(port)..].into()
}

fn report(what: &str, all: &[Arrivals], failed: Instant, back: Instant) {
    let firsts = all.iter().map(|arrivals| arrivals.first_after(back).expect("it goes on"));
    let firsts: Vec<Duration> = firsts.collect();
    tell(&format!("{what}: first byte of the first"), *firsts.iter().min().expect("some"));
    tell(&format!("{what}: first byte of the last"), *firsts.iter().max().expect("some"));
    let full = Arrivals::together(all).full_after(failed, back).expect("a full rate");
    tell(&format!("{what}: back at the previous rate"), full);
}
