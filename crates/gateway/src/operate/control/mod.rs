//! The control socket: a Unix socket on which a running gateway answers requests.
//!
//! Requests and replies are lines of JSON. A connection carries any number of requests, one after
//! the other. Every process that may open the socket (its owner and group) may send any request.

mod client;
mod path;
mod protocol;
mod server;

pub use client::{Control, ControlError, Running};
pub use path::default_directories;
pub(crate) use path::{check_usual, path_of};
pub use protocol::{
    Answer, BundleAsked, BundleOffer, BundleRequest, Carried, HandOver, PROTOCOL, Request,
    from_base64, to_base64,
};
#[cfg(feature = "fuzzing")]
pub(crate) use protocol::{read, write};
pub(crate) use server::{Call, Server};
