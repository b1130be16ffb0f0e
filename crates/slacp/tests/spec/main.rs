//! The specification (`docs/slacp.md`), programmed a second time without the crate, against the crate.

mod by_hand;

mod erasure_code;
mod other_peer;
mod vectors;
