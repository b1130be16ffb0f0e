//! A station on a device with its own IP addresses and hardware address, unknown to the kernel.
//!
//! Packets for it reach the device as they would reach a second machine on the same wire. The
//! kernel drops them because they are not for its hardware address, so it never answers with a
//! reset. The station answers ARP and neighbour solicitations itself. On a device without ARP
//! (IFF_NOARP), such as the end of a lab's link, packets have the kernel's hardware address; the
//! kernel drops them because they are not for its IP addresses, unless it is a router.
//!
//! Not modelled: fragments (dropped), ICMP, multicast listening. Programs on the same host cannot
//! be reached, as with macvlan.

mod wire;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use thiserror::Error;
use units::Instant;

use crate::clock;
use crate::netlink::RouteSocket;
use crate::packet::{
    CaptureDirection, ReceiveRing, RingFrame, SocketLayer, enable_promiscuous_mode, open,
};
use wire::StationWire;

pub use wire::StationDatagram;

/// The reason why a station could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StationError {
    /// The device could not be opened.
    #[error("cannot open a packet socket on {device}: {cause}")]
    Socket {
        /// Name of the device that was given.
        device: String,
        /// The error that the kernel returned.
        cause: io::Error,
    },
    /// The kernel has this address itself, and would answer for it.
    #[error("the kernel itself has the address {address}: expected an unused one")]
    Taken {
        /// The address of the kernel.
        address: IpAddr,
    },
    /// The device has no address to derive one from.
    #[error("{device} has no address")]
    NoAddress {
        /// Name of the device that was given.
        device: String,
    },
}

/// The kernel coalesces packets from a nearby host (GSO), so a frame needs room for the largest
/// possible packet.
const LONGEST: u16 = u16::MAX;
/// 256 frames: 20 ms at 150 Mbit/s.
const RING_BYTES: usize = 32 << 20;

/// A station on a device. Dropping it removes it.
pub struct Station {
    socket: OwnedFd,
    ring: ReceiveRing,
    wire: StationWire,
}

impl Station {
    /// Opens a station with these addresses on `device`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without `CAP_NET_RAW`, if the device does not exist, or if the kernel has one of the
    /// addresses.
    pub fn open(device: &str, addresses: &[IpAddr]) -> Result<Self, StationError> {
        let failed = |cause| StationError::Socket { device: device.to_owned(), cause };
        if let Some(address) = own_addresses(None).map_err(failed)?.find(|a| addresses.contains(a))
        {
            return Err(StationError::Taken { address });
        }
        let (socket, ring, index) =
            open(device, LONGEST, RING_BYTES, CaptureDirection::Incoming, SocketLayer::Ethernet)
                .map_err(failed)?;
        // The station's hardware address is not the device's.
        enable_promiscuous_mode(&socket, index).map_err(failed)?;
        let wire = StationWire::new(addresses);
        let wire = if is_direct(device).map_err(failed)? { wire.direct() } else { wire };
        Ok(Self { socket, ring, wire })
    }

    /// Passes every packet received for this station to `take`.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn receive(&mut self, mut take: impl FnMut(StationDatagram)) -> io::Result<()> {
        let wire = &mut self.wire;
        let mut hear = |frame: RingFrame<'_>| {
            if !frame.whole {
                return;
            }
            if let Some(mut datagram) = wire.handle_frame(frame.bytes) {
                if frame.unfinished {
                    finish(&mut datagram);
                }
                take(datagram);
            }
        };
        while self.ring.take(&mut hear) {}
        // Answers to ARP and neighbour solicitations leave at once.
        self.flush()
    }

    /// Sends a datagram whose `from` is an address of this station.
    ///
    /// # Errors
    /// If there is no route, or the device is gone.
    pub fn send(&mut self, datagram: &StationDatagram) -> io::Result<()> {
        let via = if self.wire.knows(datagram.to) {
            datagram.to
        } else {
            RouteSocket::open()?.next_hop(datagram.to)?
        };
        self.wire.send(datagram, via);
        self.flush()
    }

    /// Waits until something arrives or the time is `until`.
    ///
    /// # Errors
    /// Those of ppoll(2).
    pub fn wait(&self, until: Option<Instant>) -> io::Result<()> {
        let left = until.map(|at| TimeSpec::from(clock::until(at)));
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut fds, left, None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(frame) = self.wire.outbox.pop_front() {
            match nix::unistd::write(&self.socket, &frame) {
                // A full device loses packets, like a wire.
                Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR | Errno::EMSGSIZE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Returns addresses for a station on the subnets of `device`: the kernel's own with 100 added to
/// the last byte. They are unused in a lab.
///
/// # Errors
/// If the device has no address.
pub fn spare_addresses(device: &str) -> Result<Vec<IpAddr>, StationError> {
    let failed = |cause| StationError::Socket { device: device.to_owned(), cause };
    let spare: Vec<IpAddr> = own_addresses(Some(device)).map_err(failed)?.map(spare).collect();
    if spare.is_empty() {
        return Err(StationError::NoAddress { device: device.to_owned() });
    }
    Ok(spare)
}

/// Returns the address for a station beside `address`. IPv6 addresses look like the IPv4 ones:
/// `::2` becomes `::102`.
fn spare(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            Ipv4Addr::new(a, b, c, d.wrapping_add(100)).into()
        }
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits().wrapping_add(0x100)).into(),
    }
}

/// Returns true if a device does not resolve addresses (IFF_NOARP).
fn is_direct(device: &str) -> io::Result<bool> {
    let noarp = nix::net::if_::InterfaceFlags::IFF_NOARP;
    Ok(getifaddrs()?.any(|one| one.interface_name == device && one.flags.contains(noarp)))
}

/// Returns the kernel's addresses on one device or on all, except link-local ones.
fn own_addresses(device: Option<&str>) -> io::Result<impl Iterator<Item = IpAddr>> {
    let all: Vec<_> = getifaddrs()?.collect();
    let device = device.map(str::to_owned);
    let wanted = move |name: &str| device.as_ref().is_none_or(|device| device == name);
    let addresses = all.into_iter().filter(move |one| wanted(&one.interface_name));
    Ok(addresses.filter_map(|one| {
        let address = one.address?;
        if let Some(v4) = address.as_sockaddr_in() {
            return Some(v4.ip().into());
        }
        let v6 = address.as_sockaddr_in6()?.ip();
        (!v6.is_unicast_link_local()).then_some(v6.into())
    }))
}

/// Completes the checksum that the kernel leaves to a device (RFC 9293 §3.1). The field contains
/// the sum of the pseudo header.
fn finish(datagram: &mut StationDatagram) {
    if datagram.protocol != etherparse::IpNumber::TCP.0 {
        return;
    }
    let Ok(segment) = etherparse::TcpSlice::from_slice(&datagram.payload) else { return };
    let sum = match (datagram.from, datagram.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            segment.calc_checksum_ipv4(from.octets(), to.octets()).ok()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            segment.calc_checksum_ipv6(from.octets(), to.octets()).ok()
        }
        _ => None,
    };
    if let Some(sum) = sum {
        datagram.payload[16..18].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_addresses_read_alike() {
        let spare = |address: &str| spare(address.parse().unwrap()).to_string();
        assert_eq!([spare("10.1.0.2"), spare("fd00:1::2")], ["10.1.0.102", "fd00:1::102"]);
    }
}
