//! The settings of a link.

use crate::{
    Delay, Discipline, Encapsulation, Jitter, LossModel, Outage, Policer, QueueLimit, Rate,
};

/// The settings of one direction of a link. Every combination is valid: even impossible values
/// (rate 0, no delay, no queue) behave as the fields say. All settings except the seed can be
/// changed while the link runs.
///
/// Start from [`LinkConfig::new`] and set other fields as needed.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Serialisation rate. At 0 nothing is ever sent: one packet stays in the serialiser and the
    /// queue fills behind it.
    pub rate: Rate,
    /// The encapsulation of packets, which takes a part of the rate. Default none.
    pub encapsulation: Encapsulation,
    /// One-way delay, from the last bit sent to the last bit received. A GEO hop has 239 to 280 ms.
    pub delay: Delay,
    /// Variation of the delay. Default none.
    pub jitter: Jitter,
    /// The model by which packets are lost.
    pub loss: LossModel,
    /// Times without reception, counted from the link's start. Default none.
    pub outages: Vec<Outage>,
    /// Drops what exceeds a rate before it reaches the queue. Default none.
    pub policer: Option<Policer>,
    /// Limit of the queue for the serialiser.
    pub queue: QueueLimit,
    /// Drops before the queue is full. Default none.
    pub discipline: Discipline,
}

impl LinkConfig {
    /// A link with a drop-tail queue, without encapsulation, jitter, outages or
    /// policer.
    pub fn new(
        rate: impl Into<Rate>,
        delay: impl Into<Delay>,
        loss: LossModel,
        queue: QueueLimit,
    ) -> Self {
        Self {
            rate: rate.into(),
            encapsulation: Encapsulation::None,
            delay: delay.into(),
            jitter: Jitter::None,
            loss,
            outages: Vec::new(),
            policer: None,
            queue,
            discipline: Discipline::DropTail,
        }
    }
}
