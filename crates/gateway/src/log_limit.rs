//! How many lines a place in the code may log. Others' bytes make gateways and their libraries log
//! what is wrong with them, and the disk is the operator's.

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

use crate::clock;

/// How many lines of one place are written at once, and how long each takes to be allowed again: at
/// most some 9,000 a day. Two hundred terminals that come up together are all named.
const BURST: u32 = 200;
const REFILL: Duration = Duration::from_secs(10);
/// How often is said how many lines of a place were left out.
const REPORT: Duration = Duration::from_secs(60);
/// The most of a message that is kept to say which lines these were, in bytes.
const SAMPLE: usize = 160;

/// Lets through what may be logged. Its memory is bounded by the number of places in the code.
#[derive(Debug, Default)]
struct LineLimits {
    places: BTreeMap<usize, Place>,
}

/// A place in the code.
#[derive(Debug)]
struct Place {
    /// Lines written in advance of what time allows.
    written: u32,
    /// Since when the next one has been becoming allowed.
    since: Instant,
    left_out: Option<LeftOut>,
}

/// Lines that were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeftOut {
    count: u64,
    since: Instant,
    /// The level and beginning of the first.
    sample: String,
}

impl Place {
    fn new(now: Instant) -> Self {
        Self { written: 0, since: now, left_out: None }
    }

    /// Whether a line may be written now.
    fn takes(&mut self, now: Instant) -> bool {
        while self.written > 0 && now >= self.since + REFILL {
            self.written -= 1;
            self.since += REFILL;
        }
        if self.written == 0 {
            self.since = now;
        }
        let taken = self.written < BURST;
        self.written += u32::from(taken);
        taken
    }
}

impl LineLimits {
    /// Whether a line of a place may be written. If not, it is counted, and `sample` says which it was.
    fn takes(&mut self, now: Instant, place: usize, sample: impl FnOnce() -> String) -> bool {
        let place = self.places.entry(place).or_insert_with(|| Place::new(now));
        let taken = place.takes(now);
        if !taken {
            let first = || LeftOut { count: 0, since: now, sample: sample() };
            place.left_out.get_or_insert_with(first).count += 1;
        }
        taken
    }

    /// What was left out and is to be reported now.
    fn due(&mut self, now: Instant) -> Vec<LeftOut> {
        let is_due = |left_out: &mut LeftOut| now >= left_out.since + REPORT;
        let each = self.places.values_mut();
        each.filter_map(|place| place.left_out.take_if(is_due)).collect()
    }
}

/// Writes events as `inner` does, within the limits. What somebody asked for with `debug` or `trace` is not
/// limited.
pub(super) struct Limited<F> {
    inner: F,
    limits: Mutex<LineLimits>,
}

impl<F> Limited<F> {
    pub(super) fn new(inner: F) -> Self {
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
        let place = core::ptr::from_ref(event.metadata()).addr();
        let (due, taken) = {
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            let is_limited = *event.metadata().level() <= Level::INFO;
            let taken = !is_limited || limits.takes(now, place, || sample(event));
            (limits.due(now), taken)
        };
        for LeftOut { count, since, sample } in due {
            let seconds = now.saturating_since(since).as_secs();
            writeln!(
                writer,
                "{count} lines of the last {seconds} s were left out, like: {sample}"
            )?;
        }
        if taken { self.inner.format_event(context, writer, event) } else { Ok(()) }
    }
}

/// The level and the beginning of an event's message.
fn sample(event: &Event<'_>) -> String {
    let mut sample = Sample(format!("{} ", event.metadata().level()));
    event.record(&mut sample);
    sample.0
}

struct Sample(String);

impl Visit for Sample {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let message = format!("{value:?}");
            let shown = message.chars().filter(|char| !char.is_control());
            self.0.extend(shown.take(SAMPLE));
        }
    }
}

#[cfg(test)]
mod tests;
