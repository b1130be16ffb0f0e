//! What several crates ask of the operating system beside sockets.

#![forbid(unsafe_code)]

mod ipv6;
mod places;

pub use ipv6::{any_address, has_ipv6};
pub use places::{PlaceError, Places, PrivateDirectory, RUN_VARIABLE};
