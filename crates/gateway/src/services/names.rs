//! DNS: a terminal answers its clients' questions ([`NameService`]), a hub its terminals' ([`hub`]).
//!
//! The crate [`names`] decides; this module has the sockets. Questions arrive by [`udp`] and
//! [`tcp`], at addresses of this machine or redirected by interception, and within TLS by
//! [`secure`] and [`https`]. Those for the hub cross the hop on a stream each ([`exchange`]);
//! others go to resolvers by [`lookup`].

pub(crate) mod carry;
mod driver;
mod exchange;
mod https;
pub(crate) mod hub;
mod lookup;
mod question_slots;
pub(crate) mod secure;
mod servers;
mod sockets;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

pub(crate) use self::driver::NameService;
pub(crate) use self::sockets::{ResolverSockets, printed_rules};
