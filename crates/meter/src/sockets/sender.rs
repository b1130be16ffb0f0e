//! The kernel's figures about a sending TCP socket (`TCP_INFO`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use os::socket::TcpInfo;
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which the round-trip time is sampled for its mean.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The sending kernel's figures about a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderReport {
    /// Payload bytes passed to the kernel.
    pub sent_bytes: u64,
    /// Data segments sent, including retransmissions (`tcpi_data_segs_out`).
    pub segments: u64,
    /// Data segments that the kernel retransmitted (`tcpi_total_retrans`).
    pub retransmitted_segments: u64,
    /// Payload bytes that the kernel retransmitted (`tcpi_bytes_retrans`).
    pub retransmitted_bytes: u64,
    /// Minimum round-trip time seen by the kernel (`tcpi_min_rtt`).
    #[serde(rename = "min_rtt_seconds", with = "crate::json::maybe_seconds")]
    pub min_rtt: Option<Duration>,
    /// Mean over time of the kernel's smoothed round-trip time (`tcpi_rtt`, RFC 6298), sampled
    /// every 50 ms.
    #[serde(rename = "mean_rtt_seconds", with = "crate::json::maybe_seconds")]
    pub mean_rtt: Option<Duration>,
}

/// Duplicates the descriptor of a socket.
pub(crate) fn duplicate_descriptor(socket: &impl AsFd) -> io::Result<OwnedFd> {
    socket.as_fd().try_clone_to_owned()
}

/// The mean of the sampled round-trip times.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RttMean {
    sum: Duration,
    count: u32,
}

impl RttMean {
    /// Samples `socket` while it is polled; never completes. The descriptor is a copy,
    /// because the stream itself is in use.
    pub(crate) async fn watch(&mut self, socket: &OwnedFd) -> ! {
        let mut ticks = interval(SAMPLE_INTERVAL);
        // After a pause there is no burst of samples of one moment.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Ok(info) = TcpInfo::of(socket) {
                self.add(info.rtt());
            }
        }
    }

    fn add(&mut self, rtt: Option<Duration>) {
        let Some(rtt) = rtt else { return };
        self.sum += rtt;
        self.count += 1;
    }

    fn get(self) -> Option<Duration> {
        self.sum.checked_div(self.count)
    }
}

impl SenderReport {
    /// Reads the kernel's figures of `socket`, which has sent `bytes` of payload.
    ///
    /// # Errors
    /// If the kernel does not provide them.
    pub(crate) fn of(socket: &impl AsFd, bytes: u64, mut mean: RttMean) -> io::Result<Self> {
        let info = TcpInfo::of(socket)?;
        // A transfer shorter than the sampling interval has at least this sample.
        mean.add(info.rtt());
        Ok(Self {
            sent_bytes: bytes,
            segments: info.segments_sent().into(),
            retransmitted_segments: info.retransmitted_segments().into(),
            retransmitted_bytes: info.retransmitted_bytes(),
            min_rtt: info.min_rtt(),
            mean_rtt: mean.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_tells_about_a_sender() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 5000]).unwrap();
        receiver.read_exact(&mut [0; 5000]).unwrap();
        let report = SenderReport::of(&sender, 5000, RttMean::default()).unwrap();
        assert!(report.segments >= 1, "{report:?}");
        assert_eq!((report.sent_bytes, report.retransmitted_segments), (5000, 0));
        let min = report.min_rtt.unwrap();
        let mean = report.mean_rtt.unwrap();
        assert!(min <= mean && mean < Duration::from_secs(1), "{report:?}");
    }

    #[test]
    fn the_mean_is_of_what_was_seen() {
        let mut mean = RttMean::default();
        assert_eq!(mean.get(), None);
        for ms in [Some(10), None, Some(30)] {
            mean.add(ms.map(Duration::from_millis));
        }
        assert_eq!(mean.get(), Some(Duration::from_millis(20)));
    }
}
