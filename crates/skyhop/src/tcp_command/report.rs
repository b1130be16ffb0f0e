//! Reports of transfers.

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;

use lab::TestObject;
use serde::Serialize;
use tcp::{Abort, Stats};
use units::{BitRate, ByteCount};

/// A served connection.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Served {
    pub(super) peer: SocketAddr,
    /// Size of the object; `None` if none was requested.
    pub(super) object_bytes: Option<u64>,
    /// Time from the SYN to the end of the connection.
    pub(super) seconds: f64,
    /// Why it ended early.
    pub(super) error: Option<String>,
    pub(super) acked_bytes: u64,
    pub(super) segments: u64,
    pub(super) retransmissions: u64,
    pub(super) recoveries: u64,
    pub(super) timeouts: u64,
    pub(super) undone: u64,
    pub(super) tail_probes: u64,
    pub(super) ecn_reductions: u64,
    pub(super) cwnd_bytes: u64,
    pub(super) smoothed_rtt_seconds: Option<f64>,
}

impl Served {
    pub(super) fn new(
        peer: SocketAddr,
        object: Option<TestObject>,
        time: Duration,
        error: Option<Abort>,
        stats: &Stats,
    ) -> Self {
        Self {
            peer,
            object_bytes: object.map(|object| object.size().get()),
            seconds: time.as_secs_f64(),
            error: error.map(|why| format!("{why:?}")),
            acked_bytes: stats.acked.get(),
            segments: stats.segments,
            retransmissions: stats.retransmissions,
            recoveries: stats.recoveries,
            timeouts: stats.timeouts,
            undone: stats.undone,
            tail_probes: stats.tail_probes,
            ecn_reductions: stats.ecn_reductions,
            cwnd_bytes: stats.cwnd.get(),
            smoothed_rtt_seconds: stats.smoothed_rtt.map(|rtt| rtt.as_secs_f64()),
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = ByteCount::new(self.object_bytes.unwrap_or(0));
        write!(f, "{}: {bytes} in {:.3} s", self.peer, self.seconds)?;
        write!(f, ", {} segments, {} retransmitted", self.segments, self.retransmissions)?;
        write!(f, ", {} recoveries, {} time-outs", self.recoveries, self.timeouts)?;
        if let Some(rtt) = self.smoothed_rtt_seconds {
            write!(f, ", RTT {:.0} ms", rtt * 1e3)?;
        }
        match &self.error {
            Some(error) => write!(f, ", ended early: {error}"),
            None => Ok(()),
        }
    }
}

/// An object received in full.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Got {
    pub(super) bytes: u64,
    /// Time from the SYN to the end of the stream.
    pub(super) seconds: f64,
    pub(super) first_byte_seconds: Option<f64>,
    pub(super) goodput_bits_per_second: Option<u64>,
}

impl Got {
    pub(super) fn new(bytes: u64, time: Duration, first: Option<Duration>) -> Self {
        let goodput = BitRate::average(ByteCount::new(bytes), time);
        Self {
            bytes,
            seconds: time.as_secs_f64(),
            first_byte_seconds: first.map(|first| first.as_secs_f64()),
            goodput_bits_per_second: goodput.map(BitRate::bits_per_second),
        }
    }
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, verified, in {:.3} s", ByteCount::new(self.bytes), self.seconds)?;
        if let Some(goodput) = self.goodput_bits_per_second {
            write!(f, ": {:.2} Mbit/s", goodput as f64 / 1e6)?;
        }
        if let Some(first) = self.first_byte_seconds {
            write!(f, "; first byte after {first:.3} s")?;
        }
        Ok(())
    }
}
