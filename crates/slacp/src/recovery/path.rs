//! A session's knowledge of its path: address, round-trip time, MTU, loss, reordering, fades.

pub(crate) mod fade;
pub(crate) mod loss;
pub(crate) mod migration;
pub(crate) mod pmtu;
pub(crate) mod reordering;
pub(crate) mod rtt;
