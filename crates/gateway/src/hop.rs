//! The hop as seen by the rest of the gateway.
//!
//! The protocol decisions are made by the endpoint of `slacp`. [`Hop`] is a handle to it, shared by the
//! driver's task and the relays; a [`SessionStream`] is read and written through the handle. [`driver`] moves
//! datagrams between the endpoint and its sockets ([`sockets`], [`udp`]); a hub with workers has several
//! of each ([`exchange`]). [`peers`] tracks the sessions and their rates, and [`path_store`] persists
//! path measurements.

pub(crate) mod class;
mod compression;
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
pub(crate) mod udp;

pub(crate) use driver::PacketSink;
pub(crate) use handle::{CapacityDemand, Hop, HopEvent};
pub(crate) use stream::SessionStream;
