//! Operating system services that several crates need.
//!
//! System calls for which `nix` has no safe wrapper belong here.

pub mod clock;
mod ipv6;
pub mod offload;
mod places;
pub mod port;
pub mod priority;
pub mod ring;

pub use ipv6::{any_address, has_ipv6};
pub use places::{PlaceError, Places, PrivateDirectory, RUN_VARIABLE};
