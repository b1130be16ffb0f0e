//! Moments of the calendar, in whole seconds.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use thiserror::Error;

/// Whole seconds since 1970-01-01T00:00:00Z, without leap seconds. Reads and writes RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

/// The error for a text that is not a date, with or without a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected a date and a time in UTC, like \"2027-01-31T12:00:00Z\", or a date")]
pub struct UnixTimeError;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The last moment that RFC 3339 can represent.
const LAST: DateTime = DateTime::constant(9999, 12, 31, 23, 59, 59, 0);

impl UnixTime {
    /// Creates the moment `seconds` after the beginning of 1970.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Returns the seconds since the beginning of 1970.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// Returns the whole months since the beginning of 1970, at most those of the year 9999.
    pub fn months(self) -> u64 {
        let at = self.civil();
        (at.year() - EPOCH.year()) as u64 * 12 + (at.month() - EPOCH.month()) as u64
    }

    /// Converts to date and time in UTC, at most [`LAST`].
    fn civil(self) -> DateTime {
        let since = i64::try_from(self.0).ok().map(SignedDuration::from_secs);
        since.and_then(|since| EPOCH.checked_add(since).ok()).map_or(LAST, |at| at.min(LAST))
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Z", self.civil())
    }
}

impl FromStr for UnixTime {
    type Err = UnixTimeError;

    fn from_str(text: &str) -> Result<Self, UnixTimeError> {
        let text = match text.contains('T') {
            true => Cow::Borrowed(text),
            false => Cow::Owned(format!("{text}T00:00:00Z")),
        };
        let civil = text.strip_suffix('Z').and_then(|civil| civil.parse::<DateTime>().ok());
        let since = civil.ok_or(UnixTimeError)?.duration_since(EPOCH);
        let at = Self(u64::try_from(since.as_secs()).map_err(|_| UnixTimeError)?);
        // jiff reads more than RFC 3339: fractions, other separators, times without seconds.
        if at.to_string() == text { Ok(at) } else { Err(UnixTimeError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_read_and_written() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2026-11-25T09:50:19Z", 1_795_600_219),
            ("2100-02-28T00:00:00Z", 4_107_456_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(text.parse(), Ok(UnixTime(seconds)), "{text}");
            assert_eq!(UnixTime(seconds).to_string(), text);
        }
        assert_eq!("2026-11-25".parse(), Ok(UnixTime(1_795_564_800)));
    }

    #[test]
    fn every_day_of_a_cycle_reads_back() {
        for day in 0..146_097 {
            let at = UnixTime(day * 86_400);
            assert_eq!(at.to_string().parse(), Ok(at));
        }
    }

    #[test]
    fn what_is_after_the_last_year_is_written_as_its_end() {
        for seconds in [253_402_300_800, u64::MAX / 2, u64::MAX] {
            let at = UnixTime(seconds);
            assert_eq!(
                (at.to_string().as_str(), at.months()),
                ("9999-12-31T23:59:59Z", 8029 * 12 + 11)
            );
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "tomorrow",
            "2026-11-25T09:50:19",
            "2026-11-25T09:50Z",
            "2026-11-25T09:50:19.5Z",
            "2026-11-25T09:50:19+00:00",
            "2026-11-25T09:50:60Z",
            "20261125T095019Z",
            "2026-11-25 09:50:19Z",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-1-1",
            "+026-01-01",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01-01",
            "1969-12-31",
        ] {
            assert_eq!(text.parse::<UnixTime>(), Err(UnixTimeError), "{text:?}");
        }
    }
}
