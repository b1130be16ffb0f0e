//! The settings of a link.

use crate::{Delay, Discipline, Encapsulation, Jitter, Loss, Outage, QueueLimit, Rate};

/// The settings of one direction of a link. Every combination is a link: what
/// is impossible in space (rate 0, no delay, a queue for nothing) behaves as
/// the fields say. All but the seed can be changed while the link runs.
///
/// Begin with [`LinkConfig::new`] and set the other fields as needed.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// The rate at which packets are serialised. At 0 nothing is ever sent: one
    /// packet sits in the serialiser and the queue fills behind it.
    pub rate: Rate,
    /// What packets become on the link, and what they take of the rate; at
    /// first nothing is added.
    pub encapsulation: Encapsulation,
    /// One way, from the last bit sent to the last bit received; a GEO hop has
    /// 239 to 280 ms.
    pub delay: Delay,
    /// What the delay varies by; at first nothing.
    pub jitter: Jitter,
    /// What is lost on the way.
    pub loss: Loss,
    /// When nothing is received, counted from the link's beginning; at first
    /// never.
    pub outages: Vec<Outage>,
    /// How much may wait for the serialiser.
    pub queue: QueueLimit,
    /// What is dropped although there is room; at first nothing.
    pub discipline: Discipline,
}

impl LinkConfig {
    /// A link with a drop-tail queue, no encapsulation, jitter or outages.
    pub fn new(
        rate: impl Into<Rate>,
        delay: impl Into<Delay>,
        loss: Loss,
        queue: QueueLimit,
    ) -> Self {
        Self {
            rate: rate.into(),
            encapsulation: Encapsulation::None,
            delay: delay.into(),
            jitter: Jitter::None,
            loss,
            outages: Vec::new(),
            queue,
            discipline: Discipline::DropTail,
        }
    }
}
