//! SLACP, the protocol of the satellite hop (`docs/slacp.md`).

mod api;

pub use api::{
    Config, Event, Open, PublicKey, Read, ResetReason, SessionId, StreamError, StreamId,
};
