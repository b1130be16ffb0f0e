//! The gateway's log filter, which can change while it runs.

use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::sync::OnceLock;

use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Environment variable that overrides the configuration.
pub const VARIABLE: &str = "SKYHOP_LOG";
/// The default filter.
const USUAL: &str = "info";
/// Replaces the filter of this process's log; unset before [`start`].
static CHANGE: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// A log filter: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or a comma-separated
/// list of levels and of levels for single modules (`gateway::tunnel=debug`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

/// The variable's text is not a valid filter.
#[derive(Debug, Error)]
#[error("{VARIABLE} = {text:?}: {expected}", expected = LogFilter::EXPECTED)]
pub struct LogFilterError {
    text: String,
}

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        let refused = || LogFilterError { text: text.to_owned() };
        // The parser takes an unknown word for a module, and an empty one for a level.
        let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
        let of_path = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
        let is_module = |part: &str| !part.is_empty() && part.chars().all(of_path);
        let is_known = |part: &str| match part.trim().split_once('=') {
            Some((module, level)) => is_module(module) && is_level(level),
            None => is_level(part.trim()),
        };
        if !text.split(',').all(is_known) {
            return Err(refused());
        }
        let filter = Self(text.to_owned());
        filter.compile().map(|_| filter.clone()).ok_or_else(refused)
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LogFilter {
    /// The accepted values, for error messages.
    pub(crate) const EXPECTED: &str = "expected a level (off, error, warn, info, debug or \
        trace), or several parts such as \"info,gateway::tunnel=debug\"";

    fn compile(&self) -> Option<EnvFilter> {
        let parts: Vec<&str> = self.0.split(',').map(str::trim).collect();
        EnvFilter::try_new(parts.join(",")).ok()
    }
}

/// Starts logging to standard error with the filter in the variable [`VARIABLE`], otherwise
/// `configured`, otherwise the default.
///
/// # Errors
/// If the variable is not a valid filter.
///
/// # Panics
/// If this process already has a log.
pub fn start(configured: Option<&LogFilter>) -> Result<(), LogFilterError> {
    let filter = chosen(configured)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    builder.init();
    // Fails only if the log is gone.
    let change = move |filter| drop(handle.reload(filter));
    assert!(CHANGE.set(Box::new(change)).is_ok(), "the log was begun before");
    Ok(())
}

/// Applies a reloaded filter, with the same precedence as [`start`].
pub(crate) fn configure(configured: Option<&LogFilter>) {
    if let (Some(change), Ok(filter)) = (CHANGE.get(), chosen(configured)) {
        change(filter);
    }
}

fn chosen(configured: Option<&LogFilter>) -> Result<EnvFilter, LogFilterError> {
    let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let variable = variable.map(|text| text.parse::<LogFilter>()).transpose()?;
    let filter = variable.as_ref().or(configured).and_then(LogFilter::compile);
    Ok(filter.unwrap_or_else(|| EnvFilter::new(USUAL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_modules_are_filters_and_other_words_are_not() {
        for text in ["off", "warn", "DEBUG", "info,gateway::tunnel=debug", "warn, gateway=trace"] {
            let filter: LogFilter = text.parse().unwrap();
            assert_eq!(filter.to_string(), text);
            let compiled = filter.compile().unwrap().to_string();
            assert_eq!(compiled.split(',').count(), text.split(',').count(), "{compiled}");
        }
        for text in
            ["", "loud", "gateway", "gateway=loud", "=debug", "info,", "info;debug", "a b=info"]
        {
            let error = text.parse::<LogFilter>().unwrap_err().to_string();
            assert!(error.contains("off, error, warn") && error.contains(text), "{error}");
        }
    }
}
