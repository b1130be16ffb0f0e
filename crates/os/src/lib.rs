//! Operating system services, other than sockets, that several crates need.

#![forbid(unsafe_code)]

mod ipv6;
mod places;

pub use ipv6::{any_address, has_ipv6};
pub use places::{PlaceError, Places, PrivateDirectory, RUN_VARIABLE};
