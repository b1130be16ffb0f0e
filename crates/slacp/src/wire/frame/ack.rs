//! The frames ACK, TIMED ACK and LINK ACK (`docs/slacp.md`, Acknowledgements).

use core::ops::Range;
use core::time::Duration;

use super::{ACK, LINK_ACK, TIMED_ACK, take, write_numbers};
use crate::wire::varint;

/// A selective acknowledgement: a run-length coded bit vector from the largest received packet
/// downwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AckFrame<'a> {
    pub(crate) largest: u64,
    pub(crate) held: Duration,
    /// Arrival times of packets, if this side has asked for them.
    pub(crate) times: Option<ArrivalTimes<'a>>,
    /// Alternating runs of received and missing packets, each at least 1. Validated by the parser.
    runs: &'a [u8],
    /// Alternating runs of packets that FEC did not restore and that it restored. Validated by the
    /// parser.
    restored_runs: &'a [u8],
}

/// Arrival times by the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrivalTimes<'a> {
    /// The clock when the acknowledgement was sent, in microseconds modulo 2^32.
    pub(crate) clock: u32,
    /// Pairs of a distance from the largest number and an age in µs. Validated by the parser.
    marks: &'a [u8],
}

impl<'a> ArrivalTimes<'a> {
    /// Marked packets, each with the time from its arrival to the sending of the acknowledgement.
    pub(crate) fn marks(&self, largest: u64) -> impl Iterator<Item = (u64, Duration)> + use<'a> {
        let mut input = self.marks;
        core::iter::from_fn(move || {
            let distance = varint::read(&mut input)?;
            let age = varint::read(&mut input)?;
            Some((largest - distance, Duration::from_micros(age)))
        })
    }

    fn read(input: &mut &'a [u8], largest: u64) -> Option<Self> {
        let clock = u32::from_be_bytes(take::<4>(input)?);
        let length = usize::try_from(varint::read(input)?).ok()?;
        let (marks, rest) = input.split_at_checked(length)?;
        *input = rest;
        let mut check = marks;
        while !check.is_empty() {
            varint::read(&mut check).filter(|distance| *distance <= largest)?;
            varint::read(&mut check)?;
        }
        Some(Self { clock, marks })
    }
}

/// The contents of an acknowledgement besides its ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AckReport {
    pub(crate) held: Duration,
    pub(crate) times: Option<ReportedTimes>,
}

/// [`ArrivalTimes`] to write: the clock, and the marked packets with their ages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReportedTimes {
    pub(crate) clock: u32,
    pub(crate) marks: Vec<(u64, Duration)>,
}

/// Maximum size of the list of restored packets in an acknowledgement, in bytes.
const MAX_RESTORED_LEN: usize = 400;
/// Maximum size of one of its entries, in bytes: two varints.
const MAX_ENTRY_LEN: usize = 16;

impl<'a> AckFrame<'a> {
    /// The received ranges, highest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let mut input = self.runs;
        let mut end = self.largest + 1;
        core::iter::from_fn(move || {
            let run = varint::read(&mut input)?;
            let range = end - run..end;
            let gap = varint::read(&mut input).unwrap_or(0);
            end = range.start - gap;
            Some(range)
        })
    }

    /// The ranges restored by FEC, highest first.
    pub(crate) fn restored(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let mut input = self.restored_runs;
        let mut end = self.largest + 1;
        core::iter::from_fn(move || {
            end -= varint::read(&mut input)?;
            let range = end - varint::read(&mut input)?..end;
            end = range.start;
            Some(range)
        })
    }

    /// The number from which on [`Self::restored`] is complete.
    pub(crate) fn restored_from(&self) -> u64 {
        // A list that has room for another entry was not cut.
        let cut = self.restored_runs.len() + MAX_ENTRY_LEN > MAX_RESTORED_LEN;
        let lowest = if cut { self.restored().last() } else { None };
        lowest.map_or(0, |range| range.start)
    }

    pub(super) fn read(input: &mut &'a [u8], timed: bool) -> Option<Self> {
        let largest = varint::read(input)?;
        let held = Duration::from_micros(varint::read(input)?);
        let times = if timed { Some(ArrivalTimes::read(input, largest)?) } else { None };
        let runs = read_bytes(input)?;
        let marks = read_bytes(input)?;
        let valid = runs_are_valid(runs, largest) && marks_are_valid(marks, largest);
        valid.then_some(Self { largest, held, times, runs, restored_runs: marks })
    }

    pub(super) fn report(&self) -> AckReport {
        let times = self.times.map(|times| ReportedTimes {
            clock: times.clock,
            marks: times.marks(self.largest).collect(),
        });
        AckReport { held: self.held, times }
    }
}

/// Reads a length and that many bytes.
fn read_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint::read(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

/// Checks the list of restored packets: pairs of runs, together no longer than the packet numbers.
fn marks_are_valid(mut marks: &[u8], largest: u64) -> bool {
    let mut left = largest + 1;
    while !marks.is_empty() {
        let Some(skip) = varint::read(&mut marks) else { return false };
        let Some(run) = varint::read(&mut marks) else { return false };
        let Some(rest) = left.checked_sub(skip).and_then(|left| left.checked_sub(run)) else {
            return false;
        };
        left = rest;
    }
    true
}

/// Checks the runs of an acknowledgement: an odd number, none empty, together no longer than the
/// packet numbers.
fn runs_are_valid(mut runs: &[u8], largest: u64) -> bool {
    let mut left = largest + 1;
    let mut count = 0usize;
    while !runs.is_empty() {
        let Some(run) = varint::read(&mut runs) else { return false };
        if run == 0 || run > left {
            return false;
        }
        left -= run;
        count += 1;
    }
    count % 2 == 1
}

/// Appends an acknowledgement of as many `ranges` (highest first, not empty) as fit in `room`
/// bytes. `restored` (highest first) are the packets that FEC restored. Returns `false`, with
/// nothing appended, if not even one range fits.
pub(crate) fn write_ack(
    out: &mut Vec<u8>,
    ranges: impl Iterator<Item = Range<u64>>,
    restored: impl Iterator<Item = Range<u64>>,
    report: &AckReport,
    room: usize,
) -> bool {
    // The clock, a length, and two numbers per mark.
    let times = report.times.as_ref().map_or(0, |times| 6 + 16 * times.marks.len());
    let Some((largest, runs)) = encode_ranges(ranges, room.saturating_sub(times)) else {
        return false;
    };
    out.push(if report.times.is_some() { TIMED_ACK } else { ACK });
    varint::write(out, largest);
    varint::write(out, micros(report.held));
    if let Some(times) = &report.times {
        write_times(out, times, largest);
    }
    varint::write(out, runs.len() as u64);
    out.extend_from_slice(&runs);
    let marks = encode_restored(largest, restored);
    varint::write(out, marks.len() as u64);
    out.extend_from_slice(&marks);
    true
}

/// Encodes as many `ranges` as fit in `room` bytes together with the other fields; returns the
/// largest number and the encoded runs, or `None` if not even one fits.
fn encode_ranges(ranges: impl Iterator<Item = Range<u64>>, room: usize) -> Option<(u64, Vec<u8>)> {
    let mut runs = Vec::new();
    let mut largest = 0;
    let mut lowest = None;
    for range in ranges {
        let mut next = Vec::new();
        match lowest {
            None => largest = range.end - 1,
            Some(lowest) => varint::write(&mut next, lowest - range.end),
        }
        varint::write(&mut next, range.end - range.start);
        // The other fields take at most 1 + 8 + 8 + 2 + 2 bytes, plus the list of restored packets.
        if 21 + MAX_RESTORED_LEN + runs.len() + next.len() > room {
            break;
        }
        runs.extend_from_slice(&next);
        lowest = Some(range.start);
    }
    lowest.map(|_| (largest, runs))
}

/// Appends an acknowledgement of packets of link number `link`, as [`write_ack`] does; nothing if
/// not even one range fits.
pub(crate) fn write_link_ack(
    out: &mut Vec<u8>,
    link: u8,
    ranges: impl Iterator<Item = Range<u64>>,
    room: usize,
) {
    let mut body = Vec::new();
    if write_ack(&mut body, ranges, core::iter::empty(), &AckReport::default(), room) {
        write_numbers(out, LINK_ACK, &[link.into()]);
        out.extend_from_slice(&body);
    }
}

/// Encodes the packets that were restored: as many of the highest as fit in [`MAX_RESTORED_LEN`] bytes.
fn encode_restored(largest: u64, restored: impl Iterator<Item = Range<u64>>) -> Vec<u8> {
    let mut marks = Vec::new();
    let mut end = largest + 1;
    for range in restored {
        let before = marks.len();
        varint::write(&mut marks, end - range.end);
        varint::write(&mut marks, range.end - range.start);
        if marks.len() > MAX_RESTORED_LEN {
            marks.truncate(before);
            break;
        }
        end = range.start;
    }
    marks
}

fn write_times(out: &mut Vec<u8>, times: &ReportedTimes, largest: u64) {
    let mut marks = Vec::new();
    for (number, age) in times.marks.iter().filter(|(number, _)| *number <= largest) {
        varint::write(&mut marks, largest - number);
        varint::write(&mut marks, micros(*age));
    }
    out.extend_from_slice(&times.clock.to_be_bytes());
    varint::write(out, marks.len() as u64);
    out.extend_from_slice(&marks);
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(varint::MAX).min(varint::MAX)
}
