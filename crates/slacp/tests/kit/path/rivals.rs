//! One session beside those who know nothing of it: downloads over TCP, and UDP.

use super::sharing::{MBIT, START, path, session};
use super::tcp::Control;
use super::{Path, at, ms};
use crate::path::cases::rate;

/// When the TCP connections are opened, one after the other, in seconds.
const OPEN: f64 = 1.0;
const APART: f64 = 0.13;
/// When a run ends, and from when on counts, in seconds.
const END: f64 = 120.0;
const COUNTS: f64 = 30.0;

/// A session beside so many downloads over TCP.
#[derive(Debug, Clone, Copy)]
pub struct Rivals {
    pub control: Control,
    pub count: usize,
}

/// What each got of its fair share.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    pub session: f64,
    /// The TCP that got the least.
    pub least: f64,
    /// Of all TCP.
    pub mean: f64,
    /// The share of the link that all used.
    pub used: f64,
}

impl Rivals {
    pub fn run(&self, seed: u64) -> Shares {
        let mut path = path(ms(300), seed);
        let session = session(&mut path, START + seed as f64 * 0.077, seed);
        let open = |n: usize| at(OPEN + n as f64 * APART);
        let tcp: Vec<usize> =
            (0..self.count).map(|n| path.add_tcp(self.control, open(n))).collect();
        path.run(at(END));
        let fair = MBIT / (self.count + 1) as f64;
        let share = |flow: usize| path.arrived(flow, at(COUNTS), at(END)) / fair;
        let tcp: Vec<f64> = tcp.into_iter().map(share).collect();
        let (session, all) = (share(session), tcp.iter().sum::<f64>());
        Shares {
            session,
            least: tcp.iter().copied().fold(f64::INFINITY, f64::min),
            mean: all / self.count as f64,
            used: (session + all) / (self.count + 1) as f64,
        }
    }
}

/// What a session that had the link to itself keeps of it when a download over TCP joins at 20 s: in
/// the first 20 s, the next 40 s and the 40 s after those.
pub fn joined(control: Control, seed: u64) -> [f64; 3] {
    let joins = 20.0;
    let mut path = path(ms(300), seed);
    let session = session(&mut path, START + seed as f64 * 0.077, seed);
    path.add_tcp(control, at(joins));
    path.run(at(joins + 100.0));
    [(0.0, 20.0), (20.0, 60.0), (60.0, 100.0)]
        .map(|(from, to)| path.arrived(session, at(joins + from), at(joins + to)) / MBIT)
}

/// Beside UDP of this share of the link: the share of UDP that is lost from the session's begin on,
/// and the share of the rest that the session gets in the time that counts.
pub fn udp(part: f64, seed: u64) -> (f64, f64) {
    let mut path: Path = path(ms(300), seed);
    let udp = path.add_udp(rate(MBIT * part), at(OPEN));
    let session = session(&mut path, START + seed as f64 * 0.077, seed);
    path.run(at(END));
    let got = path.arrived(session, at(COUNTS), at(END));
    (path.loss(udp, at(START), at(END - 2.0)), got / (MBIT * (1.0 - part)))
}
