//! A tap captures every packet that a host's device sends and receives, with the kernel's time
//! stamps, and changes nothing.

use std::io;
use std::os::fd::OwnedFd;

/// A packet socket that only receives.
pub(crate) struct Tap {
    socket: OwnedFd,
    ring: Ring,
    missed: u64,
}

impl Tap {
    /// Opens it on `device`, with this MTU, in the calling thread's network namespace.
    pub(crate) fn open(device: &str, mtu: u16) -> io::Result<Self> {
        let (socket, ring, _) = open(device, mtu, RING_BYTES, Hears::Both, Layer::Ip)?;
        Ok(Self { socket, ring, missed: 0 })
    }

    /// Passes every waiting packet to `see`.
    pub(crate) fn drain(&mut self, mut see: impl FnMut(&Frame<'_>)) {
        while self.ring.take(|frame| see(&frame)) {}
    }

    /// Number of packets not seen because the ring was full.
    pub(crate) fn missed(&mut self) -> u64 {
        self.missed += dropped(&self.socket).unwrap_or(0);
        self.missed
    }
}
use os::port::{Hears, Layer, dropped, open};
use os::ring::{Frame, RING_BYTES, Ring};
