//! A loss-based TCP, as far as a competitor for a link is concerned: slow start,
//! CUBIC's growth (RFC 9438 §4.2, with C = 0.4 and β = 0.7; the region in which
//! Reno would be faster included), one reduction per round trip, every segment
//! acknowledged. Lost segments count as received after their loss is known:
//! there are always more bytes to send.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

const BETA: f64 = 0.7;
const C: f64 = 0.4;

#[derive(Debug)]
pub struct Tcp {
    start: Instant,
    window: f64,
    slow_start: bool,
    max_window: f64,
    reduced: Instant,
    reno: f64,
    rtt: Duration,
    next: u64,
    /// Sent and neither acknowledged nor lost.
    outstanding: VecDeque<(u64, Instant)>,
    last_ack: Instant,
}

impl Tcp {
    pub fn new(start: Instant) -> Self {
        Self {
            start,
            window: 10.0,
            slow_start: true,
            max_window: 0.0,
            reduced: Instant::ZERO,
            reno: 0.0,
            rtt: Duration::from_millis(600),
            next: 0,
            outstanding: VecDeque::new(),
            last_ack: Instant::ZERO,
        }
    }

    pub fn next(&self) -> Option<Instant> {
        if self.next == 0 {
            return Some(self.start);
        }
        Some(self.last_ack + self.rtt * 2)
    }

    pub fn wake(&mut self, now: Instant) {
        if self.next > 0 && now >= self.last_ack + self.rtt * 2 {
            self.outstanding.clear();
            self.last_ack = now;
            self.window = 10.0;
            self.slow_start = true;
        }
    }

    pub fn transmit(&mut self, now: Instant) -> Option<u64> {
        if now < self.start || self.outstanding.len() as f64 >= self.window {
            return None;
        }
        if self.next == 0 {
            self.last_ack = now;
        }
        self.outstanding.push_back((self.next, now));
        self.next += 1;
        Some(self.next - 1)
    }

    pub fn acknowledged(&mut self, now: Instant, number: u64) {
        self.last_ack = now;
        let Ok(index) = self.outstanding.binary_search_by_key(&number, |(n, _)| *n) else { return };
        let (_, sent) = self.outstanding[index];
        self.outstanding.remove(index);
        self.rtt = now.saturating_since(sent);
        let passed = |(n, _): &(u64, Instant)| *n + 3 < number;
        let mut lost_at = None;
        while let Some((_, sent)) = self.outstanding.front().copied().filter(|p| passed(p)) {
            self.outstanding.pop_front();
            lost_at = Some(sent);
        }
        match lost_at {
            Some(sent) if sent >= self.reduced => self.reduce(now),
            Some(_) => {}
            None => self.grow(now),
        }
    }

    fn reduce(&mut self, now: Instant) {
        self.max_window = self.window;
        self.window = (self.window * BETA).max(2.0);
        self.reno = self.window;
        self.reduced = now;
        self.slow_start = false;
    }

    fn grow(&mut self, now: Instant) {
        if self.slow_start {
            self.window += 1.0;
            return;
        }
        let t = (now.saturating_since(self.reduced) + self.rtt).as_secs_f64();
        let k = (self.max_window * (1.0 - BETA) / C).cbrt();
        let cubic = C * (t - k).powi(3) + self.max_window;
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        let target = cubic.max(self.reno).min(self.window * 1.5);
        if target > self.window {
            self.window += (target - self.window) / self.window;
        }
    }
}
