//! Reports of transfers, as text and JSON.

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;

use lab::TestObject;
use serde::Serialize;
use tcp::{AbortReason, ConnectionStats};
use units::{BitRate, ByteCount};

/// The report on a served connection.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ServedConnection {
    /// Address and port of the client.
    pub peer: SocketAddr,
    /// Size of the object; `None` if none was requested.
    pub object_bytes: Option<u64>,
    /// Time from the SYN to the end of the connection.
    pub seconds: f64,
    /// The reason for an early end.
    pub error: Option<String>,
    /// Bytes that the peer acknowledged.
    pub acked_bytes: u64,
    /// Number of segments sent.
    pub segments: u64,
    /// Number of these that were retransmissions.
    pub retransmissions: u64,
    /// Number of loss recoveries.
    pub recoveries: u64,
    /// Number of retransmission time-outs.
    pub timeouts: u64,
    /// Congestion responses undone, because no packet had been lost.
    pub undone: u64,
    /// Tail loss probes (RFC 8985 §7).
    pub tail_probes: u64,
    /// Congestion responses to marks (RFC 3168).
    pub ecn_reductions: u64,
    /// The last congestion window, in bytes.
    pub cwnd_bytes: u64,
    /// The last smoothed round-trip time.
    pub smoothed_rtt_seconds: Option<f64>,
}

impl ServedConnection {
    pub(super) fn new(
        peer: SocketAddr,
        object: Option<TestObject>,
        time: Duration,
        error: Option<AbortReason>,
        stats: &ConnectionStats,
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

impl fmt::Display for ServedConnection {
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
#[non_exhaustive]
pub struct ReceivedObject {
    /// Size of the object in bytes.
    pub bytes: u64,
    /// Time from the SYN to the end of the stream.
    pub seconds: f64,
    /// Time from the SYN to the first byte of the reply.
    pub first_byte_seconds: Option<f64>,
    /// Bytes of the object over the time.
    pub goodput_bits_per_second: Option<u64>,
}

impl ReceivedObject {
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

impl fmt::Display for ReceivedObject {
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
