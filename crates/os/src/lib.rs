//! Operating system services that several crates need: system calls behind safe functions.
//!
//! All `unsafe` code of the project is here, except for that of `slacp`'s secrets.

#![allow(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod clock;
pub mod datagrams;
pub mod descriptor;
pub mod device;
mod directory;
mod ipv6;
pub mod names;
pub mod namespace;
pub mod netlink;
mod option;
pub mod packet;
mod places;
pub mod priority;
pub mod process;
pub mod socket;
pub mod station;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod timer;
mod watched;

pub use directory::{DirectoryWatch, create_directory, sync_directory};
pub use ipv6::{any_address, has_ipv6};
pub use places::{DirectoryError, PrivateDirectories, PrivateDirectory, RUN_VARIABLE};
pub use timer::Timer;
pub use watched::WatchedDescriptor;
