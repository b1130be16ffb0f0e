//! The control socket: a Unix socket on which a running gateway answers requests (`control::protocol`).
//!
//! Every process that may open the socket (its owner and group) may send any request.

mod client;
mod path;
mod server;

pub use client::{ControlClient, ControlError, RunningGateway};
pub use path::default_directories;
pub(crate) use path::{check_default, path_of};
pub(crate) use server::{ControlCall, ControlServer};
