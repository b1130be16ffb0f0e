//! Values that change at known times: rates, delays, loss probabilities, signal-to-noise ratios.
//!
//! A trace is a step function of the time since it began. As text it has a line
//! for each step, with the time (no blank in it) and the value that holds from
//! then on; the first time is zero. After the last line the last value stays,
//! or with a line `loop` and a period everything repeats:
//!
//! ```text
//! # a rain fade, every twenty minutes
//! 0s    50 Mbit/s
//! 600s  20 Mbit/s   # MODCOD changes
//! 660s  50 Mbit/s
//! loop 1200s
//! ```
//!
//! Not modelled: slopes between the steps; write more steps.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use thiserror::Error;
use units::{BitRate, Decibels, ParseError, Probability, format_duration, parse_duration};

use crate::text::word;

/// A step function of time. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace<T> {
    /// At least one; times strictly increase from zero.
    points: Arc<[(Duration, T)]>,
    period: Option<Duration>,
}

/// The reason why a trace is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The trace has no steps.
    #[error("the trace is empty: expected lines of a time and a value, like \"0s {example}\"")]
    Empty {
        /// A value that would be accepted.
        example: &'static str,
    },
    /// A line has only one word.
    #[error(
        "line {line}: {text:?} has no value: expected a time and a value, like \"10s {example}\""
    )]
    NoValue {
        /// The line number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
        /// A value that would be accepted.
        example: &'static str,
    },
    /// A time or a value is invalid.
    #[error("line {line}: {cause}")]
    Unreadable {
        /// The line number, from 1.
        line: usize,
        /// The fault in it.
        cause: ParseError,
    },
    /// The first step is not at zero.
    #[error("line {line}: the first time is {}, expected 0s", format_duration(*.at))]
    NotFromZero {
        /// The line number, from 1.
        line: usize,
        /// The time on that line.
        at: Duration,
    },
    /// A time is not after the previous one.
    #[error(
        "line {line}: the time {} is not after {}, the one before it",
        format_duration(*.at), format_duration(*.previous)
    )]
    NotIncreasing {
        /// The line number, from 1.
        line: usize,
        /// The time on that line.
        at: Duration,
        /// The time of the step before.
        previous: Duration,
    },
    /// The period ends before the last step starts.
    #[error(
        "line {line}: the period {} is not after {}, the last time",
        format_duration(*.period), format_duration(*.last)
    )]
    ShortPeriod {
        /// The line number, from 1.
        line: usize,
        /// The period on that line.
        period: Duration,
        /// The time of the last step.
        last: Duration,
    },
    /// There is a line after `loop`.
    #[error("line {line}: {text:?} comes after the line \"loop\", which must be the last")]
    AfterLoop {
        /// The line number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
}

/// The type of a trace's values.
pub trait TraceValue: Sized {
    /// A value as text, for error messages.
    const EXAMPLE: &'static str;

    /// Parses a value.
    ///
    /// # Errors
    /// If the text is not valid.
    fn parse(text: &str) -> Result<Self, ParseError>;

    /// Writes the value so that it can be parsed.
    fn print(&self) -> String;
}

impl TraceValue for BitRate {
    const EXAMPLE: &'static str = "50 Mbit/s";

    fn parse(text: &str) -> Result<Self, ParseError> {
        text.parse()
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl TraceValue for Duration {
    const EXAMPLE: &'static str = "20 ms";

    fn parse(text: &str) -> Result<Self, ParseError> {
        parse_duration(text)
    }

    fn print(&self) -> String {
        format_duration(*self)
    }
}

impl TraceValue for Probability {
    const EXAMPLE: &'static str = "1 %";

    fn parse(text: &str) -> Result<Self, ParseError> {
        text.parse()
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl TraceValue for Decibels {
    const EXAMPLE: &'static str = "3 dB";

    fn parse(text: &str) -> Result<Self, ParseError> {
        text.parse()
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl<T: TraceValue> Trace<T> {
    /// A trace of these steps (time since its start, value from then on), repeated with the period
    /// if there is one.
    ///
    /// # Errors
    /// If there are no steps, or their times are not increasing. The lines in the error are the
    /// numbers of the steps.
    pub fn new(points: Vec<(Duration, T)>, period: Option<Duration>) -> Result<Self, TraceError> {
        let mut lines = TraceParser::default();
        let count = points.len();
        for (index, (at, value)) in points.into_iter().enumerate() {
            lines.add(index + 1, at, value)?;
        }
        if let Some(period) = period {
            lines.repeat(count + 1, period)?;
        }
        lines.finish()
    }

    /// Parses a trace in the format of this module.
    ///
    /// # Errors
    /// If it is not valid; the error gives the line and the reason.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut lines = TraceParser::default();
        for (index, line) in text.lines().enumerate() {
            // Comments are cut only here, so that errors have the file's line numbers.
            let content = line.split('#').next().unwrap_or_default().trim();
            if !content.is_empty() {
                lines.read(index + 1, content)?;
            }
        }
        lines.finish()
    }
}

impl<T> Trace<T> {
    /// Returns the value `elapsed` after the trace started.
    pub fn value_at(&self, elapsed: Duration) -> &T {
        let elapsed = match self.period {
            Some(period) => nanos(elapsed) % nanos(period),
            None => nanos(elapsed),
        };
        let begun = self.points.partition_point(|(at, _)| nanos(*at) <= elapsed);
        &self.points[begun.saturating_sub(1)].1
    }

    /// Returns its values in the order of their times.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.points.iter().map(|(_, value)| value)
    }

    /// Returns the time after which it repeats.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// Returns the same steps with other values.
    pub fn map<U>(&self, mut value: impl FnMut(&T) -> U) -> Trace<U> {
        let points = self.points.iter().map(|(at, old)| (*at, value(old))).collect();
        Trace { points, period: self.period }
    }

    /// A trace whose steps are known to begin at zero and to increase, below the period.
    pub(crate) fn of_steps(steps: Vec<(u64, T)>, period: Option<Duration>) -> Self {
        debug_assert!(steps.first().is_some_and(|(at, _)| *at == 0), "a trace begins at zero");
        debug_assert!(steps.is_sorted_by(|(a, _), (b, _)| a < b), "times increase");
        let points = steps.into_iter().map(|(at, value)| (Duration::from_nanos(at), value));
        Self { points: points.collect(), period }
    }

    /// Returns the steps, with their start times in nanoseconds.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (u64, &T)> {
        self.points.iter().map(|(at, value)| (nanos(*at), value))
    }
}

/// In the format of this module, without a trailing line break.
impl<T: TraceValue> fmt::Display for Trace<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (at, value)) in self.points.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{} {}", word(*at), value.print())?;
        }
        self.period.map_or(Ok(()), |period| write!(f, "\nloop {}", word(period)))
    }
}

/// Converts to nanoseconds; saturates after 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A trace while it is parsed, line by line.
struct TraceParser<T> {
    points: Vec<(Duration, T)>,
    period: Option<Duration>,
}

impl<T> Default for TraceParser<T> {
    fn default() -> Self {
        Self { points: Vec::new(), period: None }
    }
}

impl<T: TraceValue> TraceParser<T> {
    fn read(&mut self, line: usize, text: &str) -> Result<(), TraceError> {
        // Lines behind the end of the loop would never take effect.
        if self.period.is_some() {
            return Err(TraceError::AfterLoop { line, text: text.to_owned() });
        }
        let Some((time, value)) = text.split_once(char::is_whitespace) else {
            let text = text.to_owned();
            let example = T::EXAMPLE;
            return Err(TraceError::NoValue { line, text, example });
        };
        let unreadable = |cause| TraceError::Unreadable { line, cause };
        if time == "loop" {
            return self.repeat(line, parse_duration(value).map_err(unreadable)?);
        }
        let at = parse_duration(time).map_err(unreadable)?;
        self.add(line, at, T::parse(value).map_err(unreadable)?)
    }

    fn add(&mut self, line: usize, at: Duration, value: T) -> Result<(), TraceError> {
        match self.points.last() {
            None if at > Duration::ZERO => return Err(TraceError::NotFromZero { line, at }),
            Some(&(previous, _)) if at <= previous => {
                return Err(TraceError::NotIncreasing { line, at, previous });
            }
            _ => self.points.push((at, value)),
        }
        Ok(())
    }

    fn repeat(&mut self, line: usize, period: Duration) -> Result<(), TraceError> {
        let last = self.points.last().map_or(Duration::ZERO, |(at, _)| *at);
        if period <= last {
            return Err(TraceError::ShortPeriod { line, period, last });
        }
        self.period = Some(period);
        Ok(())
    }

    fn finish(self) -> Result<Trace<T>, TraceError> {
        if self.points.is_empty() {
            return Err(TraceError::Empty { example: T::EXAMPLE });
        }
        Ok(Trace { points: self.points.into(), period: self.period })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delays(text: &str) -> Trace<Duration> {
        Trace::parse(text).unwrap()
    }

    fn ms(trace: &Trace<Duration>, seconds: u64) -> u128 {
        trace.value_at(Duration::from_secs(seconds)).as_millis()
    }

    #[test]
    fn a_value_holds_until_the_next() {
        let trace = delays("# pass\n0s 10 ms\n\n10s 125 ms # near\n 24s 125 ms\n38s\t10 ms\n");
        let values: Vec<_> = [0, 9, 10, 37, 38, 10_000].map(|s| ms(&trace, s)).into();
        assert_eq!(values, [10, 10, 125, 125, 10, 10]);
    }

    #[test]
    fn a_loop_repeats() {
        let trace = delays("0s 10ms\n4s 20ms\nloop 5s");
        let values: Vec<_> = [3, 4, 5, 8, 9, 10, 504].map(|s| ms(&trace, s)).into();
        assert_eq!(values, [10, 20, 10, 10, 20, 10, 20]);
    }

    #[test]
    fn printed_traces_read_back() {
        let trace = delays("0s 10ms\n4s 20.5 ms\nloop 5s");
        assert_eq!(trace.to_string(), "0s 10 ms\n4s 20.5 ms\nloop 5s");
        assert_eq!(delays(&trace.to_string()), trace);
        assert_eq!(trace.values().map(Duration::as_micros).collect::<Vec<_>>(), [10_000, 20_500]);
    }

    #[test]
    fn errors_name_the_line_and_the_fault() {
        let error = |text: &str| Trace::<BitRate>::parse(text).unwrap_err().to_string();
        for (text, expected) in [
            ("", "the trace is empty: expected lines of a time and a value, like \"0s 50 Mbit/s\""),
            ("0s 1 Mbit/s\n5s", "line 2: \"5s\" has no value"),
            ("\n#\n0 1 Mbit/s", "line 3: \"0\" is not a duration"),
            ("0s 50 Mbps", "line 1: \"50 Mbps\" is not a rate"),
            ("1s 1 Mbit/s", "line 1: the first time is 1 s, expected 0s"),
            ("0s 1 Mbit/s\n0s 2 Mbit/s", "line 2: the time 0 s is not after 0 s"),
            ("0s 1 Mbit/s\n5s 2 Mbit/s\nloop 5s", "line 3: the period 5 s is not after 5 s"),
            ("0s 1 Mbit/s\nloop 5s\n7s 1 Mbit/s", "line 3: \"7s 1 Mbit/s\" comes after"),
            ("loop 5s", "the trace is empty"),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn steps_in_disorder_are_no_trace() {
        let points = vec![(Duration::ZERO, Probability::ONE), (Duration::ZERO, Probability::ZERO)];
        let at = Duration::ZERO;
        let previous = Duration::ZERO;
        let error = TraceError::NotIncreasing { line: 2, at, previous };
        assert_eq!(Trace::new(points, None), Err(error));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([0-9a-z#. \n]|0s |loop )*", at: u64) {
            if let Ok(trace) = Trace::<Duration>::parse(&text) {
                trace.value_at(Duration::from_nanos(at));
            }
        }
    }
}
