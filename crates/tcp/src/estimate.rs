//! Estimates from acknowledgements: the round-trip time with its time-out, and the delivery rate.

pub(crate) mod rate;
pub(crate) mod rtt;
