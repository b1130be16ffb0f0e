//! Packet sockets (AF_PACKET, packet(7)): all packets of a device, past the kernel's protocols.

mod port;
mod ring;
mod socket;
mod tap;

pub(crate) use port::is_ipv6;
pub use port::{Port, is_ip};
pub use ring::{Frame, RING_BYTES, Ring};
pub(crate) use socket::{Hears, Layer, address, bind, hear_everything, open, send_to, unbound};
pub use tap::Tap;
