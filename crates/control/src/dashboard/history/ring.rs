//! A series of samples at two resolutions, in bounded memory.

use std::collections::VecDeque;

/// Samples kept at one-second resolution.
pub(crate) const FINE: usize = 600;
/// Samples kept of [`COARSE_S`] seconds each: an hour.
pub(crate) const COARSE: usize = 360;
/// Seconds that a coarse sample averages.
pub(crate) const COARSE_S: u64 = 10;

/// Figures of one moment; NaN where nothing was measured.
pub(crate) type FigureSample<const N: usize> = [f32; N];

/// A time series: the last ten minutes by the second, and the last hour in means of ten seconds. At
/// most 960 · 2 · `N` bytes.
#[derive(Debug, Clone)]
pub(crate) struct FigureSeries<const N: usize> {
    fine: SampleRing<N>,
    coarse: SampleRing<N>,
    mean: SlotMean<N>,
    latest: FigureSample<N>,
}

impl<const N: usize> FigureSeries<N> {
    pub(crate) fn new() -> Self {
        Self {
            fine: SampleRing::new(FINE),
            coarse: SampleRing::new(COARSE),
            mean: SlotMean::default(),
            latest: [f32::NAN; N],
        }
    }

    /// Records the sample of a second. Seconds must not decrease: a repeated one overwrites its
    /// sample, and skipped ones have no figures.
    pub(crate) fn record(&mut self, second: u64, sample: FigureSample<N>) {
        self.fine.put(second, sample);
        self.latest = sample;
        let slot = second / COARSE_S;
        if self.mean.slot != slot {
            self.mean = SlotMean { slot, ..SlotMean::default() };
        }
        self.mean.add(sample);
        // The sample of the present slot is overwritten each second, as its mean changes.
        self.coarse.put(slot, self.mean.sample());
    }

    /// The last sample, as it was recorded: not rounded to 16 bits.
    pub(crate) fn latest(&self) -> &FigureSample<N> {
        &self.latest
    }

    /// Samples of the last ten minutes, one a second.
    pub(crate) fn fine(&self) -> &SampleRing<N> {
        &self.fine
    }

    /// Means of ten seconds; the last one may still change.
    pub(crate) fn coarse(&self) -> &SampleRing<N> {
        &self.coarse
    }
}

/// Mean of the samples of a slot, for each figure over the samples that have it.
#[derive(Debug, Clone)]
struct SlotMean<const N: usize> {
    slot: u64,
    sums: [(f32, f32); N],
}

impl<const N: usize> Default for SlotMean<N> {
    fn default() -> Self {
        Self { slot: 0, sums: [(0.0, 0.0); N] }
    }
}

impl<const N: usize> SlotMean<N> {
    fn add(&mut self, sample: FigureSample<N>) {
        for ((sum, count), figure) in self.sums.iter_mut().zip(sample) {
            if !figure.is_nan() {
                (*sum, *count) = (*sum + figure, *count + 1.0);
            }
        }
    }

    /// A figure that no sample has is 0 / 0, NaN.
    fn sample(&self) -> FigureSample<N> {
        self.sums.map(|(sum, count)| sum / count)
    }
}

/// The last samples of consecutive slots.
#[derive(Debug, Clone)]
pub(crate) struct SampleRing<const N: usize> {
    samples: VecDeque<[u16; N]>,
    /// Slot of the last sample.
    last: u64,
    most: usize,
}

impl<const N: usize> SampleRing<N> {
    fn new(most: usize) -> Self {
        Self { samples: VecDeque::new(), last: 0, most }
    }

    fn put(&mut self, slot: u64, sample: FigureSample<N>) {
        let gap = slot.saturating_sub(self.last);
        if self.samples.is_empty() || gap > self.most as u64 {
            self.samples.clear();
        } else if gap == 0 {
            self.samples.pop_back();
        } else {
            (1..gap).for_each(|_| self.push([f32::NAN; N]));
        }
        self.push(sample);
        self.last = self.last.max(slot);
        debug_assert!(self.samples.len() <= self.most);
    }

    fn push(&mut self, sample: FigureSample<N>) {
        if self.samples.len() == self.most {
            self.samples.pop_front();
        }
        self.samples.push_back(sample.map(pack));
    }

    /// Slot of the last sample.
    pub(crate) fn last_slot(&self) -> u64 {
        self.last
    }

    /// One figure of all samples, the oldest first.
    pub(crate) fn figure(&self, number: usize) -> impl Iterator<Item = f32> {
        self.samples.iter().map(move |sample| unpack(sample[number]))
    }
}

/// Packs a figure into 16 bits (bfloat16): the range of an `f32` with 8 bits of precision, enough
/// for a graph.
fn pack(figure: f32) -> u16 {
    if figure.is_nan() {
        return (f32::NAN.to_bits() >> 16) as u16;
    }
    // Rounds to the nearest; an overflow becomes infinity.
    (figure.to_bits().saturating_add(0x8000) >> 16) as u16
}

fn unpack(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(ring: &SampleRing<1>) -> Vec<f32> {
        ring.figure(0).collect()
    }

    #[test]
    fn ten_minutes_are_kept_by_the_second_and_an_hour_in_means() {
        let mut series = FigureSeries::<1>::new();
        for second in 0..10_000 {
            series.record(second, [if second % 2 == 0 { 1.0 } else { 3.0 }]);
        }
        assert_eq!((series.fine().samples.len(), series.fine().last_slot()), (FINE, 9999));
        assert_eq!((series.coarse().samples.len(), series.coarse().last_slot()), (COARSE, 999));
        assert!(all(series.coarse()).iter().all(|mean| *mean == 2.0));
    }

    #[test]
    fn seconds_left_out_have_no_figures_and_do_not_count_in_the_mean() {
        let mut series = FigureSeries::<1>::new();
        series.record(3, [4.0]);
        series.record(6, [8.0]);
        series.record(6, [6.0]);
        let fine = all(series.fine());
        assert_eq!((fine.len(), fine[0], fine[3]), (4, 4.0, 6.0));
        assert!(fine[1].is_nan() && fine[2].is_nan());
        assert_eq!(all(series.coarse()), [6.0]);
        series.record(25, [f32::NAN]);
        let coarse = all(series.coarse());
        assert!(coarse[1].is_nan() && coarse[2].is_nan(), "{coarse:?}");
    }

    #[test]
    fn after_a_gap_longer_than_it_keeps_nothing_old_is_left() {
        let mut series = FigureSeries::<1>::new();
        series.record(0, [1.0]);
        series.record(1_000_000, [2.0]);
        assert_eq!((all(series.fine()), series.fine().last_slot()), (vec![2.0], 1_000_000));
    }

    proptest! {
        #[test]
        fn a_figure_is_kept_to_half_a_percent(figure in 0.0f32..1e12) {
            prop_assert!((unpack(pack(figure)) - figure).abs() <= figure * 0.004);
        }

        #[test]
        fn memory_is_bounded_whatever_the_seconds(steps in prop::collection::vec(0u64..2000, 0..50)) {
            let (mut series, mut second) = (FigureSeries::<1>::new(), 0);
            for step in steps {
                second += step;
                series.record(second, [1.0]);
                prop_assert!(series.fine.samples.len() <= FINE);
                prop_assert!(series.coarse.samples.len() <= COARSE);
                prop_assert_eq!(series.fine.figure(0).last(), Some(1.0));
            }
        }
    }
}
