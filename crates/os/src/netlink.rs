//! Netlink (netlink(7)): devices, addresses, routes, rules and nftables of a network namespace.

mod link;
pub mod netfilter;
mod route;
mod socket;

pub use link::{Bridge, End};
pub use route::{RouteSocket, is_absence, watch_changes};
