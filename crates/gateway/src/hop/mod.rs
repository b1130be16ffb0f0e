//! The hop as seen by the rest of the gateway.
//!
//! The endpoint of `slacp` decides. [`Hop`] is a handle to it, which the driver's task and the relays
//! share, and a [`Stream`] is read and written through it. [`driver`] moves the datagrams between
//! endpoint and sockets ([`sockets`], [`udp`]); a hub may have several of each ([`exchange`]). [`peers`] follows the sessions and their rates, and [`path_store`]
//! keeps what was learnt about paths.

pub(crate) mod class;
mod compression;
#[cfg(test)]
mod compression_tests;
pub(crate) mod contact_store;
pub(crate) mod driver;
pub(crate) mod exchange;
mod handle;
pub(crate) mod knock;
pub(crate) mod path_store;
pub(crate) mod peers;
pub(crate) mod sockets;
mod stream;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod udp;

pub(crate) use driver::PacketSink;
pub(crate) use handle::{Demand, Hop, HopEvent};
pub(crate) use stream::Stream;
