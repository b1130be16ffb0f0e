//! The typed configuration of a gateway.

mod terminals;

pub use terminals::PermittedTerminal;
