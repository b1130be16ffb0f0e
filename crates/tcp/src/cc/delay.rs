//! Controllers that react to the queueing delay.

pub(crate) mod compound;
pub(crate) mod illinois;
pub(crate) mod vegas;
