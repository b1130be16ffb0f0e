//! A UDP socket that takes several datagrams in a system call, and as one those that the kernel has coalesced
//! (`recvmmsg`, UDP GRO). It sends as [`quinn_udp`] does.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Receptions per system call. Each is of one datagram, or of several that the kernel has coalesced.
const RECEPTIONS: usize = 8;
/// Maximum number of bytes of a reception.
const LARGEST: usize = 1 << 16;

/// Memory for one receiving system call.
pub struct ReceiveMemory(Vec<u8>);

impl ReceiveMemory {
    /// Allocates as much as one call may need: 512 KiB.
    pub fn new() -> Self {
        Self(vec![0; RECEPTIONS * LARGEST])
    }
}

impl Default for ReceiveMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// A received datagram, in the memory of its reception.
pub struct ArrivedDatagram<'a> {
    /// The sender; an IPv4 address as such, also on an IPv6 socket.
    pub from: SocketAddr,
    /// The address it was sent to, if the kernel reports it.
    pub to: Option<IpAddr>,
    /// The ECN codepoint, if the kernel reports it. Datagrams are coalesced only if theirs are
    /// equal.
    pub ecn: Option<u8>,
    /// The payload, which may be changed in place.
    pub bytes: &'a mut [u8],
}

/// A UDP socket of the tokio runtime.
pub struct DatagramSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl DatagramSocket {
    /// Registers a bound socket with the calling thread's runtime.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // With the time of reception, the kernel's control messages about coalesced datagrams
        // exceed the 96 bytes that quinn-udp 0.6 has for them, and the ECN codepoint, which comes
        // last, is lost.
        setsockopt(&socket, sockopt::ReceiveTimestampns, &false)?;
        Ok(Self { socket: UdpSocket::from_std(socket)?, state })
    }

    /// Returns the socket, to send or to wait.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Returns the state with which `quinn_udp` sends several datagrams at once.
    pub fn sender(&self) -> &UdpSocketState {
        &self.state
    }

    /// Receives the datagrams that have arrived, in one system call; `WouldBlock` if there are
    /// none. Returns true if more may wait.
    ///
    /// # Errors
    /// The system's, such as `ConnectionRefused` on a connected socket.
    pub fn receive(
        &self,
        memory: &mut ReceiveMemory,
        mut datagram: impl FnMut(ArrivedDatagram<'_>),
    ) -> io::Result<bool> {
        let mut metas = [RecvMeta::default(); RECEPTIONS];
        let mut parts = memory.0.chunks_exact_mut(LARGEST);
        let mut slices: [_; RECEPTIONS] =
            std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
        let count = self.socket.try_io(Interest::READABLE, || {
            self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas)
        })?;
        for (slice, meta) in slices.iter_mut().zip(&metas).take(count) {
            let from = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            let ecn = meta.ecn.map(|ecn| ecn as u8);
            // Coalesced datagrams have the same length, except for the last one (UDP GRO).
            for bytes in slice[..meta.len].chunks_mut(meta.stride.max(1)) {
                datagram(ArrivedDatagram { from, to: meta.dst_ip, ecn, bytes });
            }
        }
        let is_full = count == RECEPTIONS;
        if !is_full {
            // The socket is empty, which tokio must know, or the next wait begins with a call in
            // vain.
            let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.socket.try_io(Interest::READABLE, nothing);
        }
        Ok(is_full)
    }
}
