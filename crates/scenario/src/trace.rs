//! Traces in a file: written inline, or as the path of another file.

use core::fmt;
use std::path::PathBuf;

use link::{Opportunities, Rate, Trace, TraceError, TraceValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::BitRate;

use crate::TraceFault;
use config::file::folder::BaseFolder;

/// The location of a trace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected the path of a trace, or its lines in an array")]
#[schemars(inline)]
pub(crate) enum Source {
    /// In a file, with a path relative to that of the file that names it.
    File(PathBuf),
    /// Line by line.
    Lines(Vec<String>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{:?}", path.display().to_string()),
            Self::Lines(lines) => write!(f, "[{} lines]", lines.len()),
        }
    }
}

impl Source {
    /// Returns the text of the trace.
    pub(crate) fn read(&self, folder: BaseFolder<'_>) -> Result<String, TraceFault> {
        match self {
            Self::Lines(lines) => Ok(lines.join("\n")),
            Self::File(path) => Ok(folder.read(path)?),
        }
    }

    /// Creates an inline source with the lines of `trace`.
    pub(crate) fn lines_of<T: TraceValue>(trace: &Trace<T>) -> Self {
        Self::Lines(trace.to_string().lines().map(str::to_owned).collect())
    }
}

/// Parses rates in one of two formats: mahimahi's if the first line is an integer, otherwise that
/// of [`link::Trace`].
pub(crate) fn parse_rates(text: &str) -> Result<Rate, TraceFault> {
    let is_number = |line: &str| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    // In our format no line is a bare number: times have units.
    if text.lines().next().is_some_and(|line| is_number(line.trim())) {
        return Ok(Opportunities::parse(text)?.into());
    }
    const OR: &str = ", or a mahimahi trace: the milliseconds at which 1500 bytes can be delivered";
    Ok(Rate::Trace(Trace::parse(text).map_err(|cause| foreign::<BitRate>(text, cause, OR))?))
}

/// Parses values in the format of [`link::Trace`].
pub(crate) fn parse_values<T: TraceValue>(text: &str) -> Result<Trace<T>, TraceFault> {
    Trace::parse(text).map_err(|cause| foreign::<T>(text, cause, ""))
}

/// Explains the format if the first line is already wrong, because the file is then probably another
/// program's.
fn foreign<T: TraceValue>(text: &str, cause: TraceError, or: &'static str) -> TraceFault {
    // A file that begins well is ours, and needs no explanation of the format.
    let first =
        text.lines().position(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    let wrong = match cause {
        TraceError::Unreadable { line, .. } | TraceError::NoValue { line, .. } => Some(line),
        _ => None,
    };
    if wrong.is_some() && wrong == first.map(|index| index + 1) {
        let cause = Box::new(cause);
        return TraceFault::Format { cause, example: T::EXAMPLE, or };
    }
    cause.into()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn formats_of_others_are_refused_with_ours() {
        let rates = |text| parse_rates(text).unwrap_err().to_string();
        let others = [
            "0 12.5\n1 13.1\n",
            "# seconds mbps\n0.0,12.5\n",
            "  # mbps\n12.5\n",
            "time,mbps\n0,9\n",
            "{\n",
        ];
        for text in others {
            let error = rates(text);
            assert!(error.contains("like \"0s 50 Mbit/s\", or a mahimahi trace"), "{error}");
        }
        // Rates in Mbit/s, one a line.
        assert!(rates("12\n13\n9\n").contains("1500 bytes can be delivered, not rates or delays"));
        let delays = parse_values::<Duration>("20.1\n20.4\n").unwrap_err().to_string();
        assert!(delays.contains("each with its unit, like \"0s 20 ms\""), "{delays}");
        // A mistake further down is only a mistake.
        assert_eq!(
            rates("0s 5 Mbit/s\n1s"),
            Trace::<BitRate>::parse("0s 5 Mbit/s\n1s").unwrap_err().to_string()
        );
    }
}
