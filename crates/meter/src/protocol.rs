//! The protocol between client and server: requests, answers, framing and the payload.

pub mod amount;
pub mod answer;
pub(crate) mod direction;
pub mod frame;
pub mod payload;
pub mod request;
pub(crate) mod udp_plan;
