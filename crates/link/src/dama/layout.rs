//! Places grants into the frames and on the carriers of a superframe: the burst time plan.
//!
//! A grant is spread evenly over the frames. Within a frame terminals follow each other on the first
//! carrier, then on the next; one whose slots do not fit at a carrier's end has the rest at the
//! beginning of the next carrier (McNaughton's wrap-around rule, *Management Science* 6, 1959). As
//! no terminal has more slots than a carrier, its slots never overlap in time.

use super::frames::Frames;

/// Consecutive slots of one carrier in one frame, for one terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRun {
    /// The frame's number since the start.
    pub frame: u64,
    /// The number of the carrier, from 0.
    pub carrier: u32,
    /// The first slot in the frame.
    pub slot: u32,
    /// Number of consecutive slots.
    pub count: u32,
}

/// The plan of a superframe as it is filled.
#[derive(Debug)]
pub(super) struct Layout {
    frames: Frames,
    first_frame: u64,
    /// Slots taken in each frame.
    taken: Vec<u32>,
}

impl Layout {
    /// An empty superframe that begins with frame number `first_frame`.
    pub(super) fn new(frames: Frames, first_frame: u64) -> Self {
        Self { frames, first_frame, taken: vec![0; frames.per_superframe as usize] }
    }

    /// Places a grant and adds its runs to `runs`, in order of time. All grants together must fit
    /// into the superframe, and each into the slots that one terminal can use.
    pub(super) fn place(&mut self, slots: u32, runs: &mut impl Extend<SlotRun>) {
        let count = self.frames.per_superframe;
        let each = slots / count;
        let rest = slots % count;
        // The remainder goes into the emptiest frames, which keeps the frames evenly full.
        let mut order: Vec<usize> = (0..self.taken.len()).collect();
        order.sort_by_key(|frame| self.taken[*frame]);
        let mut in_frame = vec![each; self.taken.len()];
        order.iter().take(rest as usize).for_each(|frame| in_frame[*frame] += 1);
        for (frame, slots) in in_frame.into_iter().enumerate() {
            if slots > 0 {
                self.place_in_frame(frame, slots, runs);
            }
        }
    }

    fn place_in_frame(&mut self, frame: usize, slots: u32, runs: &mut impl Extend<SlotRun>) {
        let per_carrier = self.frames.slots;
        let begin = self.taken[frame];
        self.taken[frame] += slots;
        debug_assert!(slots <= per_carrier, "one terminal has more than a carrier");
        debug_assert!(self.taken[frame] <= self.frames.per_frame(), "a frame is overfull");
        let carrier = begin / per_carrier;
        let slot = begin % per_carrier;
        let before_end = slots.min(per_carrier - slot);
        let frame = self.first_frame + frame as u64;
        let run = SlotRun { frame, carrier, slot, count: before_end };
        let wrapped = SlotRun { carrier: carrier + 1, slot: 0, count: slots - before_end, ..run };
        if wrapped.count > 0 {
            // The wrapped part is at the beginning of the frame, so it comes first in time.
            runs.extend([wrapped, run]);
        } else {
            runs.extend([run]);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::dama::Cell;

    fn frames(per_superframe: u32, carriers: u32, slots: u32) -> Frames {
        let duration = Duration::from_millis(10);
        Frames { duration, per_superframe, carriers, slots, cell: Cell::ATM }
    }

    #[test]
    fn a_grant_that_meets_a_carriers_end_goes_on_at_the_next_ones_beginning() {
        let mut layout = Layout::new(frames(1, 2, 10), 7);
        let mut runs = Vec::new();
        [6, 7].iter().for_each(|slots| layout.place(*slots, &mut runs));
        let run = |carrier, slot, count| SlotRun { frame: 7, carrier, slot, count };
        assert_eq!(runs, [run(0, 0, 6), run(1, 0, 3), run(0, 6, 4)]);
    }

    #[test]
    fn an_odd_slot_goes_into_the_emptier_frame() {
        let mut layout = Layout::new(frames(2, 1, 10), 0);
        let mut runs = Vec::new();
        [3, 3].iter().for_each(|slots| layout.place(*slots, &mut runs));
        let counts: Vec<_> = runs.iter().map(|run| (run.frame, run.slot, run.count)).collect();
        assert_eq!(counts, [(0, 0, 2), (1, 0, 1), (0, 2, 1), (1, 1, 2)]);
    }

    proptest! {
        /// Whatever fits into the superframe and its carriers finds a place of its own, in which no
        /// two slots of a terminal are at the same time.
        #[test]
        fn every_slot_is_used_once(
            per_superframe in 1u32..5, carriers in 1u32..6, slots in 1u32..9,
            wanted in prop::collection::vec(0u32..40, 0..60),
        ) {
            let frames = frames(per_superframe, carriers, slots);
            let mut layout = Layout::new(frames, 100);
            let mut room = frames.capacity();
            let mut used = std::collections::BTreeSet::new();
            for wanted in wanted {
                let granted = wanted.min(frames.slots_per_terminal()).min(room);
                room -= granted;
                let mut runs = Vec::new();
                layout.place(granted, &mut runs);
                prop_assert_eq!(runs.iter().map(|run| run.count).sum::<u32>(), granted);
                let mut last = None;
                for run in runs {
                    prop_assert!(run.carrier < carriers && run.slot + run.count <= slots);
                    prop_assert!(last.is_none_or(|last| last < (run.frame, run.slot)));
                    last = Some((run.frame, run.slot + run.count - 1));
                    for slot in run.slot..run.slot + run.count {
                        prop_assert!(used.insert((run.frame, run.carrier, slot)));
                    }
                }
            }
        }
    }
}
