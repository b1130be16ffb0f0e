//! The control socket: a Unix socket on which a running gateway answers.
//!
//! A request is a line of JSON, and so is the reply; a connection carries any
//! number of them, one after the other. Whoever may open the socket (its owner
//! and group) may ask anything.

mod client;
mod path;
mod protocol;
mod server;

pub use client::{Control, ControlError};
pub(crate) use path::check_usual;
pub use path::{ControlPath, default_directories};
pub use protocol::{Answer, PROTOCOL, Request};
pub(crate) use server::{Call, Server};
