//! The data of a time-sequence graph: points in time, thinned out so that a capture of any length
//! takes bounded memory.

use units::Instant;

/// Maximum number of marks of one kind. A graph has a tenth as many columns.
const MARKS_MAX: usize = 16_384;

/// A range of stream bytes at a time, in 64-bit sequence numbers; or a value of another quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlotMark {
    /// Time of the mark, as of the capture.
    pub time: Instant,
    /// The first byte of the range, or the lowest value.
    pub start: u64,
    /// The byte after the last, or the highest value; equal to `start` for a single one.
    pub end: u64,
}

/// Marks in order of time.
#[derive(Debug, Clone, Default)]
pub struct PlotMarks {
    marks: Vec<PlotMark>,
    /// Number of marks that are merged into one; zero before the first.
    every: u32,
    /// Number of marks that are merged in the last one.
    gathered: u32,
}

/// The contents of a direction's graph.
#[derive(Debug, Clone, Default)]
pub struct Plot {
    /// The sequence number of the first byte of payload.
    pub origin: u64,
    /// Payload sent for the first time, or late because of reordering.
    pub data: PlotMarks,
    /// Retransmitted payload, and repairs of losses before the capture point.
    pub retransmissions: PlotMarks,
    /// Payload that arrived late because it was overtaken.
    pub reordered: PlotMarks,
    /// The acknowledgement, as a level.
    pub acks: PlotMarks,
    /// The right edge of the receiver's window, as a level.
    pub window: PlotMarks,
    /// Ranges that the receiver acknowledged selectively.
    pub sacks: PlotMarks,
    /// Outstanding bytes, from minimum to maximum.
    pub outstanding: PlotMarks,
}

impl PlotMarks {
    /// Adds a mark. When there are too many, neighbours are merged: two that touch are joined,
    /// otherwise the earlier is kept.
    pub(super) fn push(&mut self, mark: PlotMark) {
        self.gather(mark, |last, next| {
            if next.start <= last.end && next.end >= last.start {
                last.start = last.start.min(next.start);
                last.end = last.end.max(next.end);
            }
        });
    }

    /// Adds a value of a quantity whose extremes must be kept.
    pub(super) fn level(&mut self, time: Instant, value: u64) {
        self.gather(PlotMark { time, start: value, end: value }, |last, next| {
            last.start = last.start.min(next.start);
            last.end = last.end.max(next.end);
        });
    }

    /// The marks in order of time.
    pub fn iter(&self) -> impl Iterator<Item = &PlotMark> {
        self.marks.iter()
    }

    /// Returns true if there are no marks.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    fn gather(&mut self, mark: PlotMark, join: impl Fn(&mut PlotMark, PlotMark)) {
        if self.gathered < self.every
            && let Some(last) = self.marks.last_mut()
        {
            join(last, mark);
            self.gathered += 1;
            return;
        }
        // Neighbours are joined: the plot keeps its extent with half the marks.
        if self.marks.len() == MARKS_MAX {
            let pairs = self.marks.chunks(2).map(|pair| {
                let mut first = pair[0];
                pair[1..].iter().for_each(|&next| join(&mut first, next));
                first
            });
            self.marks = pairs.collect();
            self.every *= 2;
        }
        self.every = self.every.max(1);
        self.marks.push(mark);
        self.gathered = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_marks_become_few_and_none_is_invented() {
        let mut marks = PlotMarks::default();
        let mut levels = PlotMarks::default();
        for index in 0..1_000_000u64 {
            let time = Instant::from_nanos(index);
            marks.push(PlotMark { time, start: index * 10, end: index * 10 + 10 });
            levels.level(time, if index == 777_777 { 5_000 } else { index % 100 });
        }
        assert!((MARKS_MAX / 2..=MARKS_MAX).contains(&marks.marks.len()));
        let whole = marks.iter().try_fold(0, |end, mark| (mark.start == end).then_some(mark.end));
        assert_eq!(whole, Some(10_000_000));
        assert_eq!(levels.iter().map(|mark| mark.end).max(), Some(5_000));
        assert!(marks.iter().is_sorted_by_key(|mark| mark.time));
    }

    #[test]
    fn marks_that_do_not_touch_are_not_joined() {
        let mut marks = PlotMarks::default();
        for index in 0..2 * MARKS_MAX as u64 {
            let start = index * 100;
            marks.push(PlotMark { time: Instant::from_nanos(index), start, end: start + 10 });
        }
        assert!(marks.iter().all(|mark| mark.end - mark.start == 10));
    }
}
