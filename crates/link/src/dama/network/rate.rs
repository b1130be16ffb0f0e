//! The rate of the carriers while a link runs: a fade, in which more robust coding leaves less.
//!
//! A superframe gets as many slots as the rate carries in a superframe's time from its decision on.
//! Plans that were decided before stay valid. A rate above that for which the frames were built is
//! not used.
//!
//! Not modelled: that slots are longer in a fade. The first ones of each frame are used, with the
//! duration that they always have, and the others stay empty. So the rate is right from frame to
//! frame, and not within one. The contention blocks stay as they are.

use units::{Instant, Machine};

use super::Dama;
use crate::dama::config::{DamaConfig, Grantable};
use crate::dama::frames::Frames;
use crate::rate::{WORK_PER_BIT, WorkCapacity};
use crate::{CarriedPacket, Rate};

/// The carriers of a return link, with their rate over time.
#[derive(Debug)]
pub(super) struct Carriers {
    /// The frames for which they were built.
    frames: Frames,
    grantable: Grantable,
    /// The rate of each carrier, unless it is the one for which they were built.
    rate: Option<WorkCapacity>,
}

/// The part of a superframe that is in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct InUse {
    /// The frames, with the number of slots in use, which may be 0.
    pub(super) frames: Frames,
    /// Slots of a superframe that can be granted.
    pub(super) capacity: u32,
}

impl Carriers {
    pub(super) fn new(config: &DamaConfig, origin: Instant) -> Self {
        let rate = config.rate.clone().map(|rate| WorkCapacity::new(rate, origin));
        Self { frames: config.frames, grantable: config.grantable(), rate }
    }

    /// Returns the part of a superframe that is in use if it is decided at this time.
    pub(super) fn in_use(&self, decided: Instant) -> InUse {
        let frames = self.frames;
        let slots = self.rate.as_ref().map_or(frames.slots, |rate| {
            let work = rate.work_between(decided, decided + frames.superframe());
            let slots = frames.slots_of(work / WORK_PER_BIT) / u128::from(frames.per_superframe);
            u32::try_from(slots).map_or(frames.slots, |slots| slots.min(frames.slots))
        });
        let capacity = self.grantable.in_superframe(&frames, slots);
        InUse { frames: Frames { slots, ..frames }, capacity }
    }
}

impl<P: CarriedPacket> Dama<P> {
    /// Changes the rate of each carrier, for the superframes that are decided from now on. A trace
    /// starts at `now`.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        self.handle_timeout(now);
        self.carriers.rate = Some(WorkCapacity::new(rate, now));
    }
}
