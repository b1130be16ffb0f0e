//! The kernel's figures about a sending TCP socket (`TCP_INFO`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

/// How often the round-trip time is sampled for its mean.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Number of bytes read of Linux's `struct tcp_info`: up to `tcpi_bytes_retrans`.
const INFO_LEN: usize = 216;

/// The sending kernel's figures about a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderReport {
    /// Payload bytes passed to the kernel.
    pub sent_bytes: u64,
    /// Data segments sent, including retransmissions (`tcpi_data_segs_out`).
    pub segments: u64,
    /// Retransmitted segments (`tcpi_total_retrans`).
    pub retransmitted_segments: u64,
    /// Retransmitted bytes (`tcpi_bytes_retrans`).
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
pub(crate) fn copy(socket: &impl AsFd) -> io::Result<OwnedFd> {
    socket.as_fd().try_clone_to_owned()
}

/// The mean of the sampled round-trip times.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RttMean {
    sum: Duration,
    count: u32,
}

impl RttMean {
    /// Samples `socket` for as long as it is polled. The descriptor is a copy ([`copy`]), because
    /// the stream itself is in use.
    pub(crate) async fn watch(&mut self, socket: &OwnedFd) -> ! {
        let mut ticks = interval(SAMPLE_INTERVAL);
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
    /// The kernel's figures of `socket`, which has sent `bytes` of payload.
    ///
    /// # Errors
    /// If the kernel does not provide them.
    pub(crate) fn of(socket: &impl AsFd, bytes: u64, mut mean: RttMean) -> io::Result<Self> {
        let info = TcpInfo::of(socket)?;
        mean.add(info.rtt());
        Ok(Self {
            sent_bytes: bytes,
            segments: info.u32_at(156).into(),
            retransmitted_segments: info.u32_at(100).into(),
            retransmitted_bytes: info.u64_at(208),
            min_rtt: info.min_rtt(),
            mean_rtt: mean.get(),
        })
    }
}

/// The bytes of `struct tcp_info` (`linux/tcp.h`). libc's own struct lacks the last fields needed
/// here.
struct TcpInfo([u8; INFO_LEN]);

impl TcpInfo {
    fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; INFO_LEN];
        let mut length = INFO_LEN as libc::socklen_t;
        // SAFETY: the descriptor is open for the call; the kernel writes at most
        // `length` bytes, which is the size of the array. A kernel with a shorter
        // struct leaves the rest zero.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(bytes))
    }

    /// The smoothed round-trip time; the kernel's zero means not yet known.
    fn rtt(&self) -> Option<Duration> {
        Some(self.u32_at(68)).filter(|&us| us > 0).map(|us| Duration::from_micros(us.into()))
    }

    /// All ones means not yet known; a kernel without the field returns zero.
    fn min_rtt(&self) -> Option<Duration> {
        let us = Some(self.u32_at(148)).filter(|&us| us > 0 && us < u32::MAX);
        us.map(|us| Duration::from_micros(us.into()))
    }

    fn u32_at(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_ne_bytes(bytes)
    }

    fn u64_at(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

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
        let (min, mean) = (report.min_rtt.unwrap(), report.mean_rtt.unwrap());
        assert!(min <= mean && mean < Duration::from_secs(1), "{report:?}");
    }

    #[test]
    fn other_sockets_have_no_such_figures() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(SenderReport::of(&socket, 0, RttMean::default()).is_err());
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
