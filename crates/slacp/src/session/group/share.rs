//! Use that a session makes of its share of a hub's link.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::SessionShare;
use crate::scheduler::pacer::{BURST, Pacer};

/// Maximum guarantee that an idle session saves up, like a class.
const SAVED: Duration = Duration::from_millis(20);
/// Maximum guarantee that a session with data is owed. A packet of each other session with a
/// guarantee may go first; the service missed meanwhile is not left to the others.
const OWED: Duration = Duration::from_secs(1);

/// A session's share, and token buckets of its use.
#[derive(Debug)]
pub(super) struct ShareLimits {
    share: SessionShare,
    guaranteed: Option<Pacer>,
    maximum: Option<Pacer>,
    /// Sum of its classes' guarantees in bit/s, and their use.
    class_bits: u64,
    classes: Option<Pacer>,
}

fn bucket(rate: Option<BitRate>, burst: Duration) -> Option<Pacer> {
    rate.filter(|rate| rate.bits_per_second() > 0).map(|rate| Pacer::new(rate, burst))
}

impl ShareLimits {
    /// Creates unused limits. Rates of 0 count as none, and a weight of 0 as 1.
    pub(super) fn new(share: SessionShare) -> Self {
        Self {
            guaranteed: bucket(share.guaranteed, OWED),
            maximum: bucket(share.maximum, BURST),
            class_bits: 0,
            classes: None,
            share: SessionShare { weight: share.weight.max(1), ..share },
        }
    }

    /// Sum of its classes' guarantees, in bit/s.
    pub(super) fn class_bits(&self) -> u64 {
        self.class_bits
    }

    /// Sets the sum of its classes' guarantees, in bit/s.
    pub(super) fn set_classes(&mut self, bits: u64) {
        // Called after every input: the bucket must keep what was saved up.
        if self.class_bits != bits {
            self.class_bits = bits;
            self.classes = bucket(Some(BitRate::from_bits_per_second(bits)), OWED);
        }
    }

    pub(super) fn share(&self) -> SessionShare {
        self.share
    }

    pub(super) fn weight(&self) -> u32 {
        self.share.weight
    }

    /// The larger of its own and its classes' guarantees, in bit/s; 0 for none.
    pub(super) fn guaranteed(&self) -> u64 {
        self.share.guaranteed.map_or(0, BitRate::bits_per_second).max(self.class_bits)
    }

    /// Returns whether it has neither a maximum nor a guarantee.
    pub(super) fn is_plain(&self) -> bool {
        self.maximum.is_none() && self.guaranteed.is_none() && self.classes.is_none()
    }

    /// The earliest time at which its maximum permits a packet.
    pub(super) fn open_at(&self) -> Instant {
        self.maximum.as_ref().map_or(Instant::ZERO, Pacer::ready_at)
    }

    /// The time from which a guarantee puts it before others, if it has one. `class` is that time
    /// for the guarantees of its classes with data.
    pub(super) fn claims_at(&self, class: Option<Instant>) -> Option<Instant> {
        let own = self.guaranteed.as_ref().map(Pacer::ready_at);
        let classes = self.classes.as_ref().zip(class).map(|(all, at)| all.ready_at().max(at));
        [own, classes].into_iter().flatten().min()
    }

    /// Caps the saved-up guarantees when the session begins to have data.
    pub(super) fn start_backlog(&mut self, now: Instant) {
        for guaranteed in [&mut self.guaranteed, &mut self.classes].into_iter().flatten() {
            guaranteed.limit_burst(now, SAVED);
        }
    }

    /// Charges an IP packet; `claimed` if a guarantee put it first. It counts for both guarantees:
    /// the classes' guarantees are part of their session's.
    pub(super) fn sent(&mut self, now: Instant, size: ByteCount, claimed: bool) {
        if let Some(maximum) = &mut self.maximum {
            maximum.charge(now, size);
        }
        let both = [&mut self.guaranteed, &mut self.classes].into_iter().flatten();
        for guaranteed in both.filter(|rate| claimed && rate.ready_at() <= now) {
            guaranteed.charge(now, size);
        }
    }
}
