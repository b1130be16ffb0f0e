//! The gateway's log: a filter that can change while it runs, and a thread that writes the lines.

mod writer;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use config::{LogFilter, LogFilterError};
use thiserror::Error;
use tracing_subscriber::EnvFilter;

use self::writer::LineQueue;
use crate::figures::status::LogLoss;
use crate::log_limit::Limited;

/// Environment variable that overrides the configuration.
pub const VARIABLE: &str = "SKYHOP_LOG";
const DEFAULT_LEVEL: &str = "info";
/// The crates that `warn` and `info` apply to. Libraries warn of whatever peers send them, so they
/// log only errors.
const OWN_CRATES: [&str; 11] =
    ["gateway", "lab", "link", "meter", "os", "pep", "scenario", "skyhop", "slacp", "study", "tcp"];
/// Replaces the filter of this process's log; unset before [`start`].
static CHANGE: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();
/// The queue of this process's log; unset before [`start`].
static LINES: OnceLock<Arc<LineQueue>> = OnceLock::new();
/// Time that the end of a gateway waits for a reader of its log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The variable's text is not a valid filter.
#[derive(Debug, Error)]
#[error("{VARIABLE} = {text:?}: {cause}")]
pub struct VariableError {
    text: String,
    cause: LogFilterError,
}

/// Writes the queued lines when dropped, at the end of the process.
#[must_use]
pub struct LogGuard(Arc<LineQueue>);

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.0.flush(FLUSH_TIMEOUT);
    }
}

/// Starts logging to standard error with the filter in the variable [`VARIABLE`], otherwise
/// `configured`, otherwise the default. A log that cannot be written (full disk, closed pipe, lost
/// terminal, stopped reader) loses lines, which are counted, and has no other effect.
///
/// # Errors
/// The variable is not a valid filter.
///
/// # Panics
/// This process has a log already, or cannot have another thread.
pub fn start(configured: Option<&LogFilter>) -> Result<LogGuard, VariableError> {
    let filter = choose_filter(configured)?;
    let lines = LineQueue::start();
    let writer = Arc::clone(&lines);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || writer::LineWriter(Arc::clone(&writer)))
        .with_ansi(has_colours())
        .with_target(false)
        .map_event_format(Limited::new)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    builder.init();
    // Fails only after the subscriber has been dropped.
    let change = move |filter| drop(handle.reload(filter));
    assert!(CHANGE.set(Box::new(change)).is_ok(), "the log was begun before");
    assert!(LINES.set(Arc::clone(&lines)).is_ok(), "the log was begun before");
    Ok(LogGuard(lines))
}

/// Lines lost since the start; `None` if all were written.
pub(crate) fn loss() -> Option<LogLoss> {
    LINES.get().and_then(|lines| lines.loss())
}

/// Applies a reloaded filter, with the same precedence as [`start`].
pub(crate) fn configure(configured: Option<&LogFilter>) {
    if let (Some(change), Ok(filter)) = (CHANGE.get(), choose_filter(configured)) {
        change(filter);
    }
}

/// Returns `true` if standard error is to have colours: it is a terminal that shows them, unless
/// `NO_COLOR`, `CLICOLOR` or `CLICOLOR_FORCE` says otherwise.
pub fn has_colours() -> bool {
    anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

fn choose_filter(configured: Option<&LogFilter>) -> Result<EnvFilter, VariableError> {
    let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let parse = |text: String| text.parse().map_err(|cause| VariableError { text, cause });
    let variable: Option<LogFilter> = variable.map(parse).transpose()?;
    let filter = variable.as_ref().or(configured).and_then(compile);
    Ok(filter.unwrap_or_else(|| EnvFilter::new(own_crates_at(DEFAULT_LEVEL))))
}

fn compile(filter: &LogFilter) -> Option<EnvFilter> {
    let parts: Vec<String> = filter.parts().map(expand_part).collect();
    EnvFilter::try_new(parts.join(",")).ok()
}

/// Expands a level for all crates to levels for our crates and for libraries.
fn expand_part(part: &str) -> String {
    match part.to_ascii_lowercase().as_str() {
        "warn" | "2" => own_crates_at("warn"),
        "info" | "3" => own_crates_at("info"),
        _ => part.to_owned(),
    }
}

fn own_crates_at(level: &str) -> String {
    let ours = OWN_CRATES.map(|name| format!("{name}={level}"));
    format!("error,{}", ours.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_compiles_part_by_part() {
        for text in ["off", "error", "DEBUG", "5", "hickory_proto=debug, gateway=trace"] {
            let compiled = compile(&text.parse().unwrap()).unwrap().to_string();
            assert_eq!(compiled.split(',').count(), text.split(',').count(), "{compiled}");
        }
    }

    #[test]
    fn libraries_log_errors_only_unless_more_is_asked_for() {
        let compiled = |text: &str| compile(&text.parse().unwrap()).unwrap().to_string();
        for (text, level) in [("Info", "info"), ("3", "info"), ("warn", "warn")] {
            let filter = compiled(text);
            let mut parts: Vec<&str> = filter.split(',').collect();
            parts.sort_unstable();
            let mut expected = OWN_CRATES.map(|name| format!("{name}={level}")).to_vec();
            expected.push("error".to_owned());
            expected.sort_unstable();
            assert_eq!(parts, expected, "{text}");
        }
        assert!(compiled("info,hickory_proto=warn").contains("hickory_proto=warn"));
        assert_eq!(compiled("debug"), "debug");
    }
}
