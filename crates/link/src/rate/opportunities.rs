//! Rates in mahimahi's trace format: the times of delivery opportunities.
//!
//! R. Netravali et al., "Mahimahi: accurate record-and-replay for HTTP" (USENIX ATC 2015), and
//! mm-link(1). Each line of a trace is a whole number of milliseconds since its start, at which
//! 1500 bytes can be delivered: a long packet, a part of one, or several short ones. Repeated
//! numbers multiply the amount. Unused opportunities are wasted. After the last time the trace
//! starts again.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use thiserror::Error;
use units::{BitRate, ByteCount};

/// A packet-delivery trace. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opportunities {
    /// Times in nanoseconds, never decreasing. The last one is above zero and also the period.
    times: Arc<[u64]>,
}

/// The reason why a text is not a valid packet-delivery trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpportunitiesError {
    /// The trace has no lines.
    #[error("the trace is empty: expected lines with a number of milliseconds")]
    Empty,
    /// A line is not a number of milliseconds.
    #[error(
        "line {line}: {text:?} is not a whole number of milliseconds, at which 1500 bytes can be \
         delivered"
    )]
    NoNumber {
        /// The line number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// A time is before that of the previous line.
    #[error(
        "line {line}: {at} ms is before {previous} ms, the line before: a mahimahi trace has the \
         times at which 1500 bytes can be delivered, not rates or delays"
    )]
    Decreasing {
        /// The line number, from 1.
        line: usize,
        /// The given time, in milliseconds.
        at: u64,
        /// The previous time, in milliseconds.
        previous: u64,
    },
    /// All times are zero, so the trace would repeat at once.
    #[error("line {line}: the last time is 0 ms, expected a later one")]
    NoTime {
        /// The number of the last line.
        line: usize,
    },
}

/// Bytes that can be delivered per opportunity.
pub(crate) const BYTES: u64 = 1500;

const NANOS_PER_MILLI: u64 = 1_000_000;

impl Opportunities {
    /// Parses a trace.
    ///
    /// # Errors
    /// If the text is not valid; the error gives the line and the reason.
    pub fn parse(text: &str) -> Result<Self, OpportunitiesError> {
        let mut times: Vec<u64> = Vec::new();
        // Recorders leave blank lines at the end.
        for (index, text) in text.trim_end().lines().enumerate() {
            let line = index + 1;
            let number = text.trim().parse::<u64>().ok();
            let at = number.and_then(|millis| millis.checked_mul(NANOS_PER_MILLI));
            let at =
                at.ok_or_else(|| OpportunitiesError::NoNumber { line, text: text.to_owned() })?;
            if let Some(&previous) = times.last().filter(|&&previous| previous > at) {
                let [at, previous] = [at, previous].map(|nanos| nanos / NANOS_PER_MILLI);
                return Err(OpportunitiesError::Decreasing { line, at, previous });
            }
            times.push(at);
        }
        match times.last() {
            None => Err(OpportunitiesError::Empty),
            // All at the same moment: a cycle without duration has no rate.
            Some(0) => Err(OpportunitiesError::NoTime { line: times.len() }),
            Some(_) => Ok(Self { times: times.into() }),
        }
    }

    /// Returns the long-run mean rate, in opportunities of 1500 bytes.
    pub fn mean_rate(&self) -> BitRate {
        let bytes = ByteCount::new(self.times.len() as u64 * BYTES);
        let period = Duration::from_nanos(self.period());
        BitRate::average(bytes, period).unwrap_or(BitRate::from_bits_per_second(0))
    }

    /// Returns the number of opportunities up to and including `elapsed` nanoseconds after the
    /// start.
    pub(crate) fn count_by(&self, elapsed: u64) -> u128 {
        let cycles = elapsed / self.period();
        let rest = elapsed % self.period();
        let in_this = self.times.partition_point(|&at| at <= rest);
        u128::from(cycles) * self.times.len() as u128 + in_this as u128
    }

    /// Returns the time of the `number`-th opportunity, counted from 1, in nanoseconds after the
    /// start.
    pub(crate) fn time_of(&self, number: u128) -> u128 {
        let number = number.saturating_sub(1);
        let len = self.times.len() as u128;
        let at = self.times[(number % len) as usize];
        (number / len).saturating_mul(self.period().into()).saturating_add(at.into())
    }

    fn period(&self) -> u64 {
        self.times.last().copied().unwrap_or(1)
    }
}

/// In mahimahi's format, without a trailing line break.
impl fmt::Display for Opportunities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, at) in self.times.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{}", at / NANOS_PER_MILLI)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_trace_begins_again_at_its_last_time() {
        let trace = Opportunities::parse("0\n3\n3\n5\n").unwrap();
        let times: Vec<_> = (1..=9).map(|n| trace.time_of(n) / 1_000_000).collect();
        assert_eq!(times, [0, 3, 3, 5, 5, 8, 8, 10, 10]);
        let counts = [0, 2, 3, 5, 10].map(|ms| trace.count_by(ms * 1_000_000));
        assert_eq!(counts, [1, 1, 3, 5, 9]);
        assert_eq!(trace.to_string(), "0\n3\n3\n5");
    }

    #[test]
    fn blank_lines_at_the_end_are_no_times() {
        let trace = Opportunities::parse("0\r\n3\r\n\r\n \n").unwrap();
        assert_eq!(trace.to_string(), "0\n3");
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| Opportunities::parse(text).unwrap_err().to_string();
        assert!(error("").starts_with("the trace is empty"));
        assert!(error("1\n2.5").starts_with("line 2: \"2.5\" is not a whole number of millisec"));
        assert!(error("1\n\n2").starts_with("line 2: \"\" is not a whole number of milliseconds"));
        assert!(error("1\n5\n4").starts_with("line 3: 4 ms is before 5 ms, the line before: a "));
        assert!(error("\n \n").starts_with("the trace is empty"));
        assert_eq!(error("0\n0"), "line 2: the last time is 0 ms, expected a later one");
        assert!(error("99999999999999999").starts_with("line 1: "));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9 \n]*|.*") {
            if let Ok(trace) = Opportunities::parse(&text) {
                prop_assert!(trace.count_by(u64::MAX) >= 1);
            }
        }

        #[test]
        fn counting_undoes_timing(mut millis in prop::collection::vec(0u64..50, 1..20), n in 1u128..500) {
            millis.sort_unstable();
            millis.push(50);
            let text: Vec<_> = millis.iter().map(u64::to_string).collect();
            let trace = Opportunities::parse(&text.join("\n")).unwrap();
            let at = trace.time_of(n) as u64;
            prop_assert!(trace.count_by(at) >= n);
            prop_assert!(at == 0 || trace.count_by(at - 1) < n);
        }
    }
}
