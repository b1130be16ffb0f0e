//! Operating system services that several crates need: system calls behind safe functions.
//!
//! All `unsafe` code of the project is here, except for that of `slacp`'s secrets.

pub mod clock;
pub mod descriptor;
mod ipv6;
pub mod namespace;
pub mod netlink;
pub mod offload;
mod option;
pub mod packet;
mod places;
pub mod priority;
pub mod process;
pub mod socket;
pub mod station;

pub use ipv6::{any_address, has_ipv6};
pub use places::{PlaceError, Places, PrivateDirectory, RUN_VARIABLE};
