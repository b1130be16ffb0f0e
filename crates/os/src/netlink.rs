//! Netlink (netlink(7)): devices, addresses, routes, rules and nftables of a network namespace.

mod link;
pub mod netfilter;
mod route;
mod socket;

pub use link::{Bridge, VethEnd};
pub use route::{RouteSocket, is_not_found, watch_changes};
