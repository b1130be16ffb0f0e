//! Session set-up on both sides, and the hub's protection against load from strangers.

pub(crate) mod association;
pub(crate) mod dispatch;
pub(crate) mod foreign;
pub(crate) mod gate;
pub(crate) mod hub;
mod joining;
mod own;
pub(crate) mod replacement;
pub(crate) mod sibling;
pub(crate) mod strangers;
pub(crate) mod terminal;
