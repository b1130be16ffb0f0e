//! How far a session has used its share of the link of a hub.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::SessionShare;
use crate::pacer::{BURST, Pacer};

/// Maximum guarantee a session saves up while it has nothing to send, like a class.
const SAVED: Duration = Duration::from_millis(20);
/// Maximum guarantee a session is owed while it has something to send. A packet of each other
/// session with a guarantee may go first; what it misses meanwhile is not left to the others.
const OWED: Duration = Duration::from_secs(1);

/// How far a session has used its share.
#[derive(Debug)]
pub(super) struct Limits {
    share: SessionShare,
    guaranteed: Option<Pacer>,
    maximum: Option<Pacer>,
    /// What is guaranteed to its classes, in bit/s, and how far they have used it.
    class_bits: u64,
    classes: Option<Pacer>,
}

fn bucket(rate: Option<BitRate>, burst: Duration) -> Option<Pacer> {
    rate.filter(|rate| rate.bits_per_second() > 0).map(|rate| Pacer::new(rate, burst))
}

impl Limits {
    /// Limits of which nothing is used. Rates of 0 count as none.
    pub(super) fn new(share: SessionShare) -> Self {
        Self {
            guaranteed: bucket(share.guaranteed, OWED),
            maximum: bucket(share.maximum, BURST),
            class_bits: 0,
            classes: None,
            share: SessionShare { weight: share.weight.max(1), ..share },
        }
    }

    /// What is guaranteed to its classes together, in bit/s.
    pub(super) fn class_bits(&self) -> u64 {
        self.class_bits
    }

    /// Sets what is guaranteed to its classes together, in bit/s.
    pub(super) fn set_classes(&mut self, bits: u64) {
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

    /// The guarantee in bit/s, the greater of its own and its classes'; 0 for none.
    pub(super) fn guaranteed(&self) -> u64 {
        self.share.guaranteed.map_or(0, BitRate::bits_per_second).max(self.class_bits)
    }

    /// Whether nothing limits what it sends, and nothing is guaranteed to it.
    pub(super) fn is_plain(&self) -> bool {
        self.maximum.is_none() && self.guaranteed.is_none() && self.classes.is_none()
    }

    /// The earliest time at which its maximum lets it send.
    pub(super) fn open_at(&self) -> Instant {
        self.maximum.as_ref().map_or(Instant::ZERO, Pacer::ready_at)
    }

    /// From when on a guarantee lets it go first, if it has one. `class` is when that of a class with
    /// data does.
    pub(super) fn claims_at(&self, class: Option<Instant>) -> Option<Instant> {
        let own = self.guaranteed.as_ref().map(Pacer::ready_at);
        let classes = self.classes.as_ref().zip(class).map(|(all, at)| all.ready_at().max(at));
        [own, classes].into_iter().flatten().min()
    }

    /// The session begins to have something to send.
    pub(super) fn begin(&mut self, now: Instant) {
        for guaranteed in [&mut self.guaranteed, &mut self.classes].into_iter().flatten() {
            guaranteed.forget(now, SAVED);
        }
    }

    /// Charges an IP packet; `claimed` if it went first by a guarantee. A packet counts for both: what
    /// classes have is part of what the session has.
    pub(super) fn sent(&mut self, now: Instant, size: ByteCount, claimed: bool) {
        if let Some(maximum) = &mut self.maximum {
            maximum.sent(now, size);
        }
        let both = [&mut self.guaranteed, &mut self.classes].into_iter().flatten();
        for guaranteed in both.filter(|it| claimed && it.ready_at() <= now) {
            guaranteed.sent(now, size);
        }
    }
}
