//! The kernel's figures about a TCP connection (`TCP_INFO`, tcp(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use super::option;

/// Number of bytes read of `struct tcp_info`: up to `tcpi_bytes_retrans`.
const LENGTH: usize = 216;

/// The beginning of `struct tcp_info` (`linux/tcp.h`). libc's own struct lacks some of its fields.
/// Fields that an older kernel does not have are zero.
#[derive(Debug, Clone)]
pub struct TcpInfo([u8; LENGTH]);

impl TcpInfo {
    /// Reads the kernel's figures about a socket.
    ///
    /// # Errors
    /// ENOPROTOOPT or EOPNOTSUPP if it is not a TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        Self::of_number(socket.as_fd().as_raw_fd())
    }

    /// Reads the figures about the socket that has this descriptor number now.
    ///
    /// # Errors
    /// As for [`Self::of`], and EBADF.
    pub fn of_number(socket: RawFd) -> io::Result<Self> {
        let mut bytes = [0; LENGTH];
        option::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns true if the connection has failed, or is closed on both sides (`tcpi_state`).
    pub fn is_closed(&self) -> bool {
        /// `TCP_CLOSE` of `net/tcp_states.h`.
        const CLOSE: u8 = 7;
        self.0[0] == CLOSE
    }

    /// Returns true if data in the SYN was sent or accepted, and acknowledged with it
    /// (`tcpi_options`; TCP Fast Open, RFC 7413).
    pub fn has_syn_data(&self) -> bool {
        /// `TCPI_OPT_SYN_DATA` of `linux/tcp.h`.
        const SYN_DATA: u8 = 32;
        self.0[5] & SYN_DATA != 0
    }

    /// Returns the smoothed round-trip time (`tcpi_rtt`, RFC 6298); `None` if not yet known.
    pub fn rtt(&self) -> Option<Duration> {
        Some(self.u32_at(68)).filter(|micros| *micros > 0).map(micros)
    }

    /// Returns the congestion window in segments (`tcpi_snd_cwnd`).
    pub fn congestion_window(&self) -> u32 {
        self.u32_at(80)
    }

    /// Returns the number of retransmitted segments (`tcpi_total_retrans`).
    pub fn retransmitted_segments(&self) -> u32 {
        self.u32_at(100)
    }

    /// Returns the smallest round-trip time measured (`tcpi_min_rtt`); `None` if not yet known.
    pub fn min_rtt(&self) -> Option<Duration> {
        // All ones means not yet known.
        Some(self.u32_at(148)).filter(|micros| (1..u32::MAX).contains(micros)).map(micros)
    }

    /// Returns the number of data segments sent, including retransmissions (`tcpi_data_segs_out`).
    pub fn segments_sent(&self) -> u32 {
        self.u32_at(156)
    }

    /// Returns the number of retransmitted bytes (`tcpi_bytes_retrans`).
    pub fn retransmitted_bytes(&self) -> u64 {
        let bytes = self.0[208..].first_chunk().expect("the last field read");
        u64::from_ne_bytes(*bytes)
    }

    fn u32_at(&self, at: usize) -> u32 {
        let bytes = self.0[at..].first_chunk().expect("fields end before the structure");
        u32::from_ne_bytes(*bytes)
    }
}

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn the_kernel_knows_about_a_sender() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 5000]).unwrap();
        receiver.read_exact(&mut [0; 5000]).unwrap();
        let info = TcpInfo::of(&sender).unwrap();
        assert!(info.segments_sent() >= 1 && info.congestion_window() >= 1, "{info:?}");
        assert_eq!((info.retransmitted_segments(), info.retransmitted_bytes()), (0, 0));
        assert!(info.min_rtt().unwrap() <= info.rtt().unwrap());
    }

    #[test]
    fn other_sockets_have_no_such_figures() {
        assert!(TcpInfo::of(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).is_err());
    }
}
