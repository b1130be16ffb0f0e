//! Rate limits of the log, for each place in the code. Bytes from the network make gateways and their
//! libraries log errors, and must not fill the operator's disk.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;
use units::Instant;

use crate::process::clock;

/// Burst of lines from one place, and the interval at which one more is allowed: about 9,000 a day at
/// most. Two hundred terminals that come up together are all named.
const BURST: u32 = 200;
const REFILL: Duration = Duration::from_secs(10);
/// Minimum interval between two reports of a place's suppressed lines.
const REPORT: Duration = Duration::from_secs(60);
/// Maximum characters of a suppressed message that the report quotes.
const SAMPLE: usize = 160;

/// Token buckets of the places that log. Memory is bounded by the number of places in the code.
#[derive(Debug, Default)]
struct LineLimits {
    places: BTreeMap<usize, PlaceBucket>,
}

/// The bucket of a place in the code.
#[derive(Debug)]
struct PlaceBucket {
    /// Lines written and not refilled yet.
    written: u32,
    /// Start of the current refill interval.
    since: Instant,
    left_out: Option<SuppressedLines>,
}

/// Suppressed lines of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SuppressedLines {
    count: u64,
    since: Instant,
    /// Level and beginning of the first suppressed line.
    sample: String,
}

impl PlaceBucket {
    fn new(now: Instant) -> Self {
        Self { written: 0, since: now, left_out: None }
    }

    /// Takes a token; false if the line must be suppressed.
    fn take_token(&mut self, now: Instant) -> bool {
        while self.written > 0 && now >= self.since + REFILL {
            self.written -= 1;
            self.since += REFILL;
        }
        if self.written == 0 {
            // A full bucket does not save up time for a larger burst.
            self.since = now;
        }
        let taken = self.written < BURST;
        self.written += u32::from(taken);
        taken
    }
}

impl LineLimits {
    /// Returns whether a line of a place may be written. A suppressed line is counted, and the first one is
    /// described by `sample`.
    fn admits(&mut self, now: Instant, place: usize, sample: impl FnOnce() -> String) -> bool {
        let place = self.places.entry(place).or_insert_with(|| PlaceBucket::new(now));
        let taken = place.take_token(now);
        if !taken {
            let first = || SuppressedLines { count: 0, since: now, sample: sample() };
            place.left_out.get_or_insert_with(first).count += 1;
        }
        taken
    }

    /// Takes the suppressed lines that are due for a report.
    fn due(&mut self, now: Instant) -> Vec<SuppressedLines> {
        let is_due = |left_out: &mut SuppressedLines| now >= left_out.since + REPORT;
        let each = self.places.values_mut();
        each.filter_map(|place| place.left_out.take_if(is_due)).collect()
    }
}

/// Formats events with `inner`, within the limits. The levels `debug` and `trace` are not limited.
pub(crate) struct Limited<F> {
    inner: F,
    limits: Mutex<LineLimits>,
}

impl<F> Limited<F> {
    pub(crate) fn new(inner: F) -> Self {
        Self { inner, limits: Mutex::default() }
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let now = clock::now();
        // The metadata of each call site is a static of its own, so its address identifies the place.
        let place = core::ptr::from_ref(event.metadata()).addr();
        let (due, taken) = {
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            let is_limited = *event.metadata().level() <= Level::INFO;
            let taken = !is_limited || limits.admits(now, place, || sample(event));
            (limits.due(now), taken)
        };
        for SuppressedLines { count, since, sample } in due {
            let seconds = now.saturating_since(since).as_secs();
            writeln!(
                writer,
                "suppressed {count} lines in the last {seconds} s, such as: {sample}"
            )?;
        }
        if taken { self.inner.format_event(context, writer, event) } else { Ok(()) }
    }
}

/// Returns the level and the beginning of an event's message.
fn sample(event: &Event<'_>) -> String {
    let mut sample = SampleVisitor(format!("{} ", event.metadata().level()));
    event.record(&mut sample);
    sample.0
}

struct SampleVisitor(String);

impl Visit for SampleVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let message = format!("{value:?}");
            // Bytes from the network may be in it; the operator's terminal must not interpret them.
            let shown = message.chars().filter(|char| !char.is_control());
            self.0.extend(shown.take(SAMPLE));
        }
    }
}

#[cfg(test)]
mod tests;
