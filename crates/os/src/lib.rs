//! What several crates ask of the operating system beside sockets.

#![forbid(unsafe_code)]

mod places;

pub use places::{PlaceError, Places, PrivateDirectory, RUN_VARIABLE};
