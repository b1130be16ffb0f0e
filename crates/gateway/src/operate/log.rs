//! The gateway's log: a filter that can change while it runs, a thread that writes the lines,
//! and limits on how many.

pub(crate) mod cause_limiter;
pub(crate) mod limit;
mod writer;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use config::{LogFilter, LogFilterError};
use control::status::LogLoss;
use thiserror::Error;
use tracing::Dispatch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use self::limit::Limited;
use self::writer::LineQueue;

/// Environment variable that overrides the configuration.
pub const VARIABLE: &str = "SKYHOP_LOG";
const DEFAULT_LEVEL: &str = "info";
/// The crates that `warn` and `info` apply to. Libraries warn of whatever peers send them, so they
/// log only errors.
const OWN_CRATES: [&str; 11] =
    ["gateway", "lab", "link", "meter", "os", "pep", "scenario", "skyhop", "slacp", "study", "tcp"];
/// Replaces the filter of this process's log; unset before [`start`].
static CHANGE: OnceLock<FilterChange> = OnceLock::new();
/// The queue of this process's log; unset before [`start`].
static LINES: OnceLock<Arc<LineQueue>> = OnceLock::new();
/// Time that the end of a gateway waits for a reader of its log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Replaces the filter of a log.
type FilterChange = Box<dyn Fn(EnvFilter) + Send + Sync>;

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
    let (log, change) = build(filter, move || writer::LineWriter(Arc::clone(&writer)));
    log.init();
    assert!(CHANGE.set(change).is_ok(), "the log was begun before");
    assert!(LINES.set(Arc::clone(&lines)).is_ok(), "the log was begun before");
    Ok(LogGuard(lines))
}

/// Builds a log that writes its lines to `writer`.
pub(crate) fn build<W>(filter: EnvFilter, writer: W) -> (Dispatch, FilterChange)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(has_colours())
        .with_target(false)
        .map_event_format(Limited::new)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    // Fails only after the log has been dropped.
    let change = move |filter: EnvFilter| drop(handle.reload(filter));
    (Dispatch::new(builder.finish()), Box::new(change))
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
    filter_from(std::env::var(VARIABLE).ok(), configured)
}

/// The filter in the text of the variable, otherwise `configured`, otherwise the default.
fn filter_from(
    variable: Option<String>,
    configured: Option<&LogFilter>,
) -> Result<EnvFilter, VariableError> {
    // An empty variable counts as unset.
    let variable = variable.filter(|text| !text.is_empty());
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
    use std::fs;
    use std::path::Path;

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
        let chosen = |variable: &str, configured: Option<&str>| {
            let configured: Option<LogFilter> = configured.map(|text| text.parse().unwrap());
            filter_from(Some(variable.to_owned()), configured.as_ref()).unwrap().to_string()
        };
        for (variable, configured, level) in [
            ("", None, "info"),
            ("", Some("Info"), "info"),
            ("", Some("3"), "info"),
            ("", Some("warn"), "warn"),
            ("warn", Some("debug"), "warn"),
        ] {
            let filter = chosen(variable, configured);
            let mut parts: Vec<&str> = filter.split(',').collect();
            parts.sort_unstable();
            let mut expected = OWN_CRATES.map(|name| format!("{name}={level}")).to_vec();
            expected.push("error".to_owned());
            expected.sort_unstable();
            assert_eq!(parts, expected, "{variable:?} {configured:?}");
        }
        let more = chosen("", Some("info,hickory_proto=warn"));
        assert!(more.contains("hickory_proto=warn"));
        assert_eq!(chosen("", Some("debug")), "debug");
        assert!(filter_from(None, None).is_ok_and(|filter| filter.to_string() == chosen("", None)));
    }

    #[test]
    fn every_crate_of_ours_that_logs_is_known_as_ours() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for path in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
            let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
            let logs = manifest.lines().any(|line| line.starts_with("tracing."));
            let name = path.file_name().unwrap().to_str().unwrap().replace('-', "_");
            assert!(!logs || OWN_CRATES.contains(&&*name), "{name}");
        }
    }
}
