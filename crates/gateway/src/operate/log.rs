//! The gateway's log: a filter that can change while it runs, and a thread that writes the lines.

mod writer;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pep::config::{LogFilter, LogFilterError};
use thiserror::Error;
use tracing_subscriber::EnvFilter;

use self::writer::LineQueue;
pub use self::writer::LogLoss;

/// Environment variable that overrides the configuration.
pub const VARIABLE: &str = "SKYHOP_LOG";
/// The default filter.
const USUAL: &str = "info";
/// Replaces the filter of this process's log; unset before [`start`].
static CHANGE: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();
/// The lines of this process's log; unset before [`start`].
static LINES: OnceLock<Arc<LineQueue>> = OnceLock::new();
/// How long the end of a gateway waits for a reader of its log.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

/// The variable's text is not a valid filter.
#[derive(Debug, Error)]
#[error("{VARIABLE} = {text:?}: {cause}")]
pub struct VariableError {
    text: String,
    cause: LogFilterError,
}

/// Writes the waiting lines when it is dropped, at the end of the process.
#[must_use]
pub struct Log(Arc<LineQueue>);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush(LAST_LINES_WITHIN);
    }
}

/// Starts logging to standard error with the filter in the variable [`VARIABLE`], otherwise
/// `configured`, otherwise the default. A log that cannot be written (full disk, closed pipe, lost
/// terminal, a reader that stopped) loses lines, which are counted, and has no other effect.
///
/// # Errors
/// If the variable is not a valid filter.
///
/// # Panics
/// If this process already has a log, or if it cannot have another thread.
pub fn start(configured: Option<&LogFilter>) -> Result<Log, VariableError> {
    let filter = chosen(configured)?;
    let lines = LineQueue::start();
    let writer = Arc::clone(&lines);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || writer::LineWriter(Arc::clone(&writer)))
        .with_ansi(has_colours())
        .with_target(false)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    builder.init();
    // Fails only if the log is gone.
    let change = move |filter| drop(handle.reload(filter));
    assert!(CHANGE.set(Box::new(change)).is_ok(), "the log was begun before");
    assert!(LINES.set(Arc::clone(&lines)).is_ok(), "the log was begun before");
    Ok(Log(lines))
}

/// The lines that could not be written since the start; `None` if all were.
pub(crate) fn loss() -> Option<LogLoss> {
    LINES.get().and_then(|lines| lines.loss())
}

/// Applies a reloaded filter, with the same precedence as [`start`].
pub(crate) fn configure(configured: Option<&LogFilter>) {
    if let (Some(change), Ok(filter)) = (CHANGE.get(), chosen(configured)) {
        change(filter);
    }
}

/// Whether what goes to standard error has colours: it is a terminal that shows them, unless
/// `NO_COLOR`, `CLICOLOR` or `CLICOLOR_FORCE` says otherwise.
pub fn has_colours() -> bool {
    anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

fn chosen(configured: Option<&LogFilter>) -> Result<EnvFilter, VariableError> {
    let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let parse = |text: String| text.parse().map_err(|cause| VariableError { text, cause });
    let variable: Option<LogFilter> = variable.map(parse).transpose()?;
    let filter = variable.as_ref().or(configured).and_then(compile);
    Ok(filter.unwrap_or_else(|| EnvFilter::new(USUAL)))
}

fn compile(filter: &LogFilter) -> Option<EnvFilter> {
    let parts: Vec<&str> = filter.parts().collect();
    EnvFilter::try_new(parts.join(",")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_compiles_part_by_part() {
        for text in
            ["off", "warn", "DEBUG", "5", "info,gateway::tunnel=debug", "warn, gateway=trace"]
        {
            let compiled = compile(&text.parse().unwrap()).unwrap().to_string();
            assert_eq!(compiled.split(',').count(), text.split(',').count(), "{compiled}");
        }
    }
}
