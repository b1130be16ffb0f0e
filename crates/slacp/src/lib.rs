//! SLACP, the protocol of the satellite hop (`docs/slacp.md`).

mod api;
mod crypto;
mod fec;
mod flow;
mod frame;
mod handshake;
mod key;
mod loss;
mod pacer;
mod packet;
mod ranges;
mod received;
mod recv_buffer;
mod rtt;
mod send_buffer;
mod sent;
mod streams;
mod varint;

pub use api::{
    Config, Event, Open, PublicKey, Read, ResetReason, SessionId, StreamError, StreamId,
};
pub use key::KeyPair;
