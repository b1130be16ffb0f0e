//! Packet sockets (AF_PACKET, packet(7)): all packets of a device, past the kernel's protocols.

mod port;
mod ring;
mod socket;
mod tap;

pub(crate) use port::is_ipv6;
pub use port::{PacketPort, is_ip};
pub use ring::{RING_BYTES, ReceiveRing, RingFrame};
pub(crate) use socket::{
    CaptureDirection, SocketLayer, address, bind, enable_promiscuous_mode, open, send_to, unbound,
};
pub use tap::Tap;
