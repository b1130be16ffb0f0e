//! Progress bars on stderr, shown only on a terminal.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Interval between frames of a spinner.
const TICK: Duration = Duration::from_millis(200);

/// Returns true if progress is shown: stderr is a terminal that can rewrite a line.
pub(crate) fn is_shown() -> bool {
    io::stderr().is_terminal() && can_rewrite(std::env::var_os("TERM").as_deref())
}

/// Returns true if a terminal of this type can rewrite a line.
pub(crate) fn can_rewrite(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term != "dumb")
}

/// Returns the target of progress bars: stderr, or a hidden one.
pub(crate) fn target() -> ProgressDrawTarget {
    if is_shown() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

/// Creates a bar of `length` steps in the form of an indicatif template.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    ProgressBar::with_draw_target(Some(length), target()).with_style(style)
}

/// Creates a spinner that shows `what` and the elapsed time until it is finished.
pub(crate) fn spinner(what: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
    let spinner = ProgressBar::with_draw_target(None, target())
        .with_style(style.expect("the template is well-formed"))
        .with_message(what);
    // The tick has a thread, which nobody needs without a terminal.
    if is_shown() {
        spinner.enable_steady_tick(TICK);
    }
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dumb_terminal_cannot_rewrite_a_line() {
        assert!(can_rewrite(None) && can_rewrite(Some(OsStr::new("xterm"))));
        assert!(!can_rewrite(Some(OsStr::new("dumb"))));
    }
}
