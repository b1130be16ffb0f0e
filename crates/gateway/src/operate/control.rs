//! The control socket: a Unix socket on which a running gateway answers requests.
//!
//! Requests and replies are lines of JSON. A connection carries any number of requests, one after
//! the other. Every process that may open the socket (its owner and group) may send any request.

mod client;
mod path;
mod protocol;
mod server;

pub use client::{ControlClient, ControlError, RunningGateway};
pub use path::default_directories;
pub(crate) use path::{check_default, path_of};
pub use protocol::{
    BundleAnswer, BundleOffer, BundleRequest, CarriedUsage, ControlAnswer, ControlRequest,
    HandOverState, PROTOCOL, from_base64, to_base64,
};
#[cfg(feature = "fuzzing")]
pub(crate) use protocol::{read, write};
pub(crate) use server::{ControlCall, ControlServer};
