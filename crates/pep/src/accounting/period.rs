//! Periods of volume quotas.

use core::fmt;
use core::str::FromStr;
use std::time::Duration;

use units::{UnixTime, format_duration, parse_duration};

const DAY: u64 = 86_400;

/// Period of a quota, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalPeriod {
    /// Renewed each day at 0:00.
    Day,
    /// Renewed on the first of each month at 0:00.
    Month,
    /// Renewed at this interval, counted from 1970-01-01; whole seconds, at least a minute.
    Every(Duration),
}

/// Shortest interval that is accepted.
const SHORTEST: Duration = Duration::from_secs(60);

impl RenewalPeriod {
    /// Number of the period that contains this time. Later periods have higher numbers, but no month begins
    /// after the year 9999.
    pub fn number(self, unix_seconds: u64) -> u64 {
        match self {
            Self::Day => unix_seconds / DAY,
            Self::Month => UnixTime::from_seconds(unix_seconds).months(),
            Self::Every(time) => unix_seconds / time.as_secs().max(1),
        }
    }
}

impl FromStr for RenewalPeriod {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "day" => Ok(Self::Day),
            "month" => Ok(Self::Month),
            _ => {
                let whole = |time: &Duration| *time >= SHORTEST && time.subsec_nanos() == 0;
                let time = parse_duration(text).ok().filter(whole).map(Self::Every);
                time.ok_or(
                    "expected \"month\", \"day\", or a time of a minute or more, like \"168 h\"",
                )
            }
        }
    }
}

impl fmt::Display for RenewalPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day => f.write_str("day"),
            Self::Month => f.write_str("month"),
            Self::Every(time) => f.write_str(&format_duration(*time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_where_the_calendar_says() {
        // From `date -u -d DATE +%s`.
        for (unix, year, month) in [
            (0, 1970, 1),
            (951_782_400, 2000, 2),    // 2000-02-29
            (951_868_800, 2000, 3),    // 2000-03-01
            (1_795_651_199, 2026, 11), // 2026-11-25 23:59:59
            (1_796_083_199, 2026, 11), // 2026-11-30 23:59:59
            (1_796_083_200, 2026, 12), // 2026-12-01
            (4_107_542_399, 2100, 2),  // 2100-02-28 23:59:59
            (4_107_542_400, 2100, 3),  // 2100-03-01
            (13_574_563_200, 2400, 2), // 2400-02-29
        ] {
            assert_eq!(RenewalPeriod::Month.number(unix), (year - 1970) * 12 + month - 1, "{unix}");
        }
    }

    #[test]
    fn periods_read_back() {
        for text in ["day", "month", "168 h", "90 s"] {
            let period: RenewalPeriod = text.parse().unwrap();
            assert_eq!(period.to_string().parse(), Ok(period), "{text}");
        }
        for bad in ["", "week", "59 s", "61.5 s", "0 s", "7"] {
            assert!(bad.parse::<RenewalPeriod>().is_err(), "{bad:?}");
        }
        assert_eq!(RenewalPeriod::Day.number(86_399), 0);
        assert_eq!(RenewalPeriod::Every(Duration::from_secs(600)).number(1200), 2);
    }
}
