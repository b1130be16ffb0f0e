//! Packet sockets (AF_PACKET, packet(7)): all packets of a device, past the kernel's protocols.

mod port;
mod ring;
mod socket;
mod tap;

pub use port::{Port, is_ip};
pub use ring::{Frame, RING_BYTES, Ring};
pub(crate) use socket::{Hears, Layer, hear_everything, open};
pub use tap::Tap;
