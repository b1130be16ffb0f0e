//! The carrier of a lane's packets: a link of its own, or a terminal's part of a shared one.

#[cfg(test)]
mod tests;

use link::dama::{Dama, SlotCounters};
use link::{Link, LinkConfig, Outage, PacketCounters, Tally};
use units::Instant;

/// The carrier of a lane's packets.
pub(crate) enum LinkCarrier {
    /// A link of its own.
    Own(Box<Link<Vec<u8>>>),
    /// The slots of this terminal on the shared return link.
    Shared(usize),
}

/// A link of a running lab, for changes.
pub(crate) enum ChangeableLink<'a> {
    /// A link of its own.
    Own(&'a mut Link<Vec<u8>>),
    /// A terminal's part of the shared return link.
    Shared(&'a mut Dama<Vec<u8>>, usize),
}

/// The state of a terminal on a shared return link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedGauge {
    /// Slots and requests since the start.
    pub slots: SlotCounters,
    /// Cells in its MAC buffers.
    pub mac_cells: u32,
}

impl LinkCarrier {
    /// Returns the queue and the counters, with the terminal's state on a shared link.
    pub(crate) fn read(
        &self,
        shared: Option<&Dama<Vec<u8>>>,
    ) -> (Tally, PacketCounters, Option<SharedGauge>) {
        match (self, shared) {
            (Self::Own(link), _) => (link.queued(), *link.counters(), None),
            (Self::Shared(terminal), Some(dama)) => {
                let slots = dama.slots(*terminal);
                let mac_cells = dama.mac_cells(*terminal);
                let gauge = SharedGauge { slots, mac_cells };
                (dama.queued(*terminal), *dama.counters(*terminal), Some(gauge))
            }
            (Self::Shared(_), None) => (Tally::default(), PacketCounters::default(), None),
        }
    }
}

impl ChangeableLink<'_> {
    /// Adds an outage, with times relative to `now`.
    pub(crate) fn add_outage(&mut self, now: Instant, outage: Outage) {
        match self {
            Self::Own(link) => link.add_outage(now, outage),
            Self::Shared(dama, terminal) => dama.add_outage(now, *terminal, outage),
        }
    }

    /// Ends the current outage, if any, and removes later ones.
    pub(crate) fn end_outages(&mut self, now: Instant) {
        match self {
            Self::Own(link) => link.end_outages(now),
            Self::Shared(dama, terminal) => dama.end_outages(now, *terminal),
        }
    }

    /// Applies the differences between two configurations. Of a shared link only rate and losses
    /// can change.
    pub(crate) fn reconfigure(&mut self, now: Instant, old: &LinkConfig, new: LinkConfig) {
        match self {
            Self::Own(link) => reconfigure(link, now, old, new),
            Self::Shared(dama, terminal) => {
                if old.loss != new.loss {
                    dama.set_loss(now, *terminal, new.loss);
                }
                // Unchanged settings are left alone: to set them again would start their models
                // anew.
                if old.rate != new.rate {
                    // All terminals have the same; each sets it at the same moment.
                    dama.set_rate(now, new.rate);
                }
            }
        }
    }
}

fn reconfigure(link: &mut Link<Vec<u8>>, now: Instant, old: &LinkConfig, new: LinkConfig) {
    if old.rate != new.rate {
        link.set_rate(now, new.rate);
    }
    if old.encapsulation != new.encapsulation {
        link.set_encapsulation(now, new.encapsulation);
    }
    if old.delay != new.delay {
        link.set_delay(now, new.delay);
    }
    if old.jitter != new.jitter {
        link.set_jitter(now, new.jitter);
    }
    if old.loss != new.loss {
        link.set_loss(now, new.loss);
    }
    if old.policer != new.policer {
        link.set_policer(now, new.policer);
    }
    if old.queue != new.queue {
        link.set_queue(now, new.queue);
    }
    if old.discipline != new.discipline {
        link.set_discipline(now, new.discipline);
    }
}
