//! SLACP implemented from its specification, without the crate.

#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod crypto;
pub mod erasure;
pub mod frames;
pub mod peer;
