//! Finds the bottleneck of a connection: the TCP connection here, or the stream.

use std::time::Duration;

use units::Instant;

/// Time constant of the moving average.
const MEMORY: Duration = Duration::from_secs(2);
/// A direction that has moved nothing for this long is idle.
const IDLE: Duration = Duration::from_secs(3);

/// Meter of one direction of a connection.
#[derive(Debug, Clone)]
pub struct DirectionMeter {
    /// Bytes moved since the connection began.
    pub bytes: u64,
    /// The end that it waits for, and since when.
    waits_for: DirectionEnd,
    since: Instant,
    moved: Instant,
    /// Recent share of the time spent waiting for the TCP connection, 0 to 1.
    for_socket: f64,
}

/// An end of a direction, for which it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectionEnd {
    /// The TCP connection here: for data, or for room.
    Socket,
    /// The stream: for room, or for data.
    Stream,
}

impl DirectionMeter {
    /// Starts a direction that has moved nothing and waits for this end.
    pub fn new(now: Instant, waits_for: DirectionEnd) -> Self {
        Self { bytes: 0, waits_for, since: now, moved: now, for_socket: 0.5 }
    }

    /// Records which end the direction waits for from now on.
    pub fn wait(&mut self, now: Instant, waits_for: DirectionEnd) {
        let past = now.saturating_since(self.since).as_secs_f64();
        // An exponential moving average over time, whatever the lengths of the waits.
        let kept = (-past / MEMORY.as_secs_f64()).exp();
        let now_for_socket = f64::from(u8::from(self.waits_for == DirectionEnd::Socket));
        self.for_socket = self.for_socket * kept + now_for_socket * (1.0 - kept);
        (self.waits_for, self.since) = (waits_for, now);
    }

    /// Time at which bytes were last moved; the start if there were none.
    pub fn last_moved(&self) -> Instant {
        self.moved
    }

    /// Records that bytes were moved.
    pub fn moved(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes as u64;
        self.moved = now;
    }

    /// The end that recently limited the direction; `None` if it is idle.
    pub fn bottleneck(&self, now: Instant) -> Option<DirectionEnd> {
        if self.bytes == 0 || now.saturating_since(self.moved) > IDLE {
            return None;
        }
        // Counts the present wait without ending it.
        let mut seen = self.clone();
        seen.wait(now, self.waits_for);
        Some(if seen.for_socket > 0.5 { DirectionEnd::Socket } else { DirectionEnd::Stream })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_bottleneck_is_the_end_it_recently_waited_for_most() {
        let mut direction = DirectionMeter::new(at(0), DirectionEnd::Socket);
        assert_eq!(direction.bottleneck(at(1000)), None);
        // A client that sends continuously is held up by the stream.
        for step in 0..200 {
            direction.wait(at(step * 50), DirectionEnd::Socket);
            direction.moved(at(step * 50), 1000);
            direction.wait(at(step * 50 + 5), DirectionEnd::Stream);
        }
        assert_eq!(direction.bottleneck(at(10_000)), Some(DirectionEnd::Stream));
        // Later it sends only now and then.
        for step in 200..400 {
            direction.wait(at(step * 50), DirectionEnd::Stream);
            direction.moved(at(step * 50), 1000);
            direction.wait(at(step * 50 + 5), DirectionEnd::Socket);
        }
        assert_eq!(direction.bottleneck(at(20_000)), Some(DirectionEnd::Socket));
        assert_eq!(direction.bottleneck(at(24_000)), None);
        assert_eq!(direction.bytes, 400_000);
    }
}
