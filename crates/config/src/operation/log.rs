//! Filter of a gateway's log.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A log filter: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or a comma-separated
/// list of levels and of levels for single modules (`gateway::hop=debug`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

/// The text is not a valid filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{}", LogFilter::EXPECTED)]
pub struct LogFilterError;

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        let of_path = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
        let is_module = |part: &str| !part.is_empty() && part.chars().all(of_path);
        let is_known = |part: &str| match part.trim().split_once('=') {
            Some((module, level)) => is_module(module) && is_level(level),
            None => is_level(part.trim()),
        };
        text.split(',').all(is_known).then(|| Self(text.to_owned())).ok_or(LogFilterError)
    }
}

/// A level by its name, in any case, or by its number from 0 (`off`).
fn is_level(text: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text))
        || text.parse::<usize>().is_ok_and(|number| number < LEVELS.len())
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LogFilter {
    /// The accepted values, for error messages.
    pub const EXPECTED: &str = "expected a level (off, error, warn, info, debug or \
        trace), or several parts such as \"info,gateway::hop=debug\"";

    /// The parts of the list.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split(',').map(str::trim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_modules_are_filters_and_other_words_are_not() {
        for text in ["off", "warn", "DEBUG", "5", "info,gateway::hop=debug", "warn, gateway=trace"]
        {
            let filter: LogFilter = text.parse().unwrap();
            assert_eq!(filter.to_string(), text);
            assert_eq!(filter.parts().count(), text.split(',').count());
        }
        for text in [
            "",
            "loud",
            "6",
            "gateway",
            "gateway=loud",
            "=debug",
            "info,",
            "info;debug",
            "a b=info",
        ] {
            assert_eq!(text.parse::<LogFilter>(), Err(LogFilterError), "{text}");
        }
    }
}
