//! Impairments of packets on their way: delay, losses, outages.

pub(crate) mod delay;
pub(crate) mod loss;
pub(crate) mod outage;
pub(crate) mod reception;
pub(crate) mod schedule;
