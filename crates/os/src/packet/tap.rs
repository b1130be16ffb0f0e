//! A tap captures every IP packet that a device sends and receives, with the kernel's time stamps,
//! and changes nothing.

use std::io;
use std::os::fd::OwnedFd;

use super::ring::{RING_BYTES, ReceiveRing, RingFrame};
use super::socket::{CaptureDirection, SocketLayer, dropped, open};

/// A packet socket that only receives.
pub struct Tap {
    socket: OwnedFd,
    ring: ReceiveRing,
    missed: u64,
}

impl Tap {
    /// Opens a tap on `device`, with this MTU, in the calling thread's network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`; if there is no such device, or no memory.
    pub fn open(device: &str, mtu: u16) -> io::Result<Self> {
        let (socket, ring, _) =
            open(device, mtu, RING_BYTES, CaptureDirection::Both, SocketLayer::Ip)?;
        Ok(Self { socket, ring, missed: 0 })
    }

    /// Passes every waiting packet to `see`.
    pub fn drain(&mut self, mut see: impl FnMut(&RingFrame<'_>)) {
        while self.ring.take(|frame| see(&frame)) {}
    }

    /// Number of packets not seen because the ring was full.
    pub fn missed(&mut self) -> u64 {
        self.missed += dropped(&self.socket).unwrap_or(0);
        self.missed
    }
}
