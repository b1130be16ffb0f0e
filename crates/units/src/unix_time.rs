//! Moments of the calendar.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// Whole seconds since 1970-01-01T00:00:00Z, without leap seconds. Reads and writes RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

/// The text is no date with a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected a date and a time in UTC, like \"2027-01-31T12:00:00Z\", or a date")]
pub struct UnixTimeError;

const DAY: u64 = 86_400;
/// The last year that RFC 3339 can write.
const LAST_YEAR: u64 = 9999;

impl UnixTime {
    /// So many seconds after the beginning of 1970.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Seconds since the beginning of 1970.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// Year, month (1 to 12) and day (1 to 31).
    pub fn date(self) -> (u64, u64, u64) {
        // Counted from 0000-03-01, so that the leap day is the last of its year.
        let days = self.0 / DAY + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let date = of_year - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        (era * 400 + year + next, month, date)
    }

    /// The beginning of a day; `None` if there is none, or it is before 1970 or after 9999.
    pub fn of_date(year: u64, month: u64, day: u64) -> Option<Self> {
        if !(1970..=LAST_YEAR).contains(&year) || !(1..=12).contains(&month) || day == 0 {
            return None;
        }
        let (shifted, of) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, within) = (shifted / 400, shifted % 400);
        let of_year = (153 * of + 2) / 5 + day - 1;
        let days = era * 146_097 + within * 365 + within / 4 - within / 100 + of_year;
        let begin = Self((days - 719_468) * DAY);
        (begin.date() == (year, month, day)).then_some(begin)
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((year, month, day), time) = (self.date(), self.0 % DAY);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl FromStr for UnixTime {
    type Err = UnixTimeError;

    fn from_str(text: &str) -> Result<Self, UnixTimeError> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, time.strip_suffix('Z').ok_or(UnixTimeError)?),
            None => (text, "00:00:00"),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let begin = Self::of_date(year, month, day).ok_or(UnixTimeError)?;
        if hour > 23 || minute > 59 || second > 59 {
            return Err(UnixTimeError);
        }
        Ok(Self(begin.0 + hour * 3600 + minute * 60 + second))
    }
}

/// Three numbers of exactly these lengths.
fn numbers(text: &str, between: char, lengths: [usize; 3]) -> Result<[u64; 3], UnixTimeError> {
    let mut parts = text.split(between);
    let mut number = |length| {
        let part = parts.next().filter(|part| part.len() == length).ok_or(UnixTimeError)?;
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        if digits { part.parse().map_err(|_| UnixTimeError) } else { Err(UnixTimeError) }
    };
    let found = [number(lengths[0])?, number(lengths[1])?, number(lengths[2])?];
    if parts.next().is_some() { Err(UnixTimeError) } else { Ok(found) }
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
    fn every_day_of_a_cycle_reads_back_and_follows_the_one_before() {
        let mut before = None;
        for day in 0..146_097 {
            let at = UnixTime(day * DAY);
            let (year, month, date) = at.date();
            assert_eq!(UnixTime::of_date(year, month, date), Some(at));
            assert!(before < Some((year, month, date)));
            before = Some((year, month, date));
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "tomorrow",
            "2026-11-25T09:50:19",
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
