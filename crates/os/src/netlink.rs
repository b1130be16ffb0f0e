//! Netlink (netlink(7)): devices, addresses, routes and rules of a network namespace.

mod link;
mod route;
mod socket;

pub use link::End;
pub use route::RouteSocket;
