//! A test kit for state machines that talk to each other over links: a virtual
//! clock and a driver. Behind the cargo feature `testkit`.
//!
//! A test wraps its machine in a [`Peer`], puts two or more of them into a
//! [`Net`], connects them by links, and runs until a condition holds:
//!
//! ```
//! use core::time::Duration;
//! use link::testkit::{Net, Peer};
//! use link::{LinkConfig, LossModel, QueueLimit};
//! use units::{BitRate, Instant, Machine};
//!
//! /// Says something once, and hears.
//! #[derive(Default)]
//! struct Talker { to_say: Option<Vec<u8>>, heard: Option<Vec<u8>> }
//!
//! impl Machine for Talker {
//!     type Wake = ();
//!     fn poll_timeout(&self) -> Option<(Instant, ())> { None }
//!     fn handle_timeout(&mut self, _now: Instant) {}
//! }
//!
//! impl Peer for Talker {
//!     fn receive(&mut self, _now: Instant, _from: usize, datagram: Vec<u8>) {
//!         self.heard = Some(datagram);
//!     }
//!     fn transmit(&mut self, _now: Instant) -> Option<(usize, Vec<u8>)> {
//!         self.to_say.take().map(|datagram| (1, datagram))
//!     }
//! }
//!
//! let alice = Talker { to_say: Some(b"hello".to_vec()), heard: None };
//! let mut net = Net::new(vec![alice, Talker::default()], 1);
//! let (rate, delay) = (BitRate::from_mbit(8), Duration::from_millis(300));
//! net.join(0, 1, LinkConfig::new(rate, delay, LossModel::None, QueueLimit::Packets(10)));
//! let deadline = Instant::ZERO + Duration::from_secs(1);
//! let at = net.run_until(|peers| peers[1].heard.is_some(), deadline).unwrap();
//! // 5 bytes and 28 of headers at 8 Mbit/s, and the delay.
//! assert_eq!(at, Instant::ZERO + Duration::from_micros(300_033));
//! ```
//!
//! [`Mangle`] adds, per direction, what real networks do and links do not: duplicate, reorder,
//! damage, fall silent.
//!
//! Not modelled: addresses and ports (a peer is an index), fragmentation, computing time.

mod clock;
mod lane;
mod mangle;
mod net;
mod stalled;

pub use clock::Clock;
pub use mangle::{Mangle, Mangled};
pub use net::{Net, Peer, UDP_IPV4_OVERHEAD, UDP_IPV6_OVERHEAD};
pub use stalled::{Reason, Stalled, Waiting};
