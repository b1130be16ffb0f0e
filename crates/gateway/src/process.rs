//! The process of a gateway: its threads and clock, its capabilities, and the errors that end it.

pub(crate) mod capability;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod refusal;
pub mod runtime;
