//! Operating system services that several crates need: system calls behind safe functions.
//!
//! All `unsafe` code of the project is here, except for that of `slacp`'s secrets.

#![allow(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod clock;
pub mod descriptor;
pub mod device;
mod directory;
pub mod names;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod priority;
pub mod process;
pub mod socket;
pub mod station;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

pub use clock::timer::Timer;
pub use descriptor::watched::WatchedDescriptor;
pub use directory::places::{DirectoryError, PrivateDirectories, PrivateDirectory, RUN_VARIABLE};
pub use directory::{DirectoryWatch, create_directory, sync_directory};
pub use socket::ipv6::{any_address, has_ipv6};
