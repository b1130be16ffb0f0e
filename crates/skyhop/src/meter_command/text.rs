//! Formats times, rates, sizes and outcomes.

use std::time::Duration;

use meter::Outcome;
use units::BitRate;

pub(super) fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.3} s", time.as_secs_f64()))
}

pub(super) fn rate(rate: Option<BitRate>) -> String {
    let mbit = |rate: BitRate| format!("{:.2} Mbit/s", rate.bits_per_second() as f64 / 1e6);
    rate.map_or_else(|| "-".to_owned(), mbit)
}

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.2} kB", bytes as f64 / 1e3),
        _ => format!("{:.2} MB", bytes as f64 / 1e6),
    }
}

/// An outcome for people.
pub(super) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Complete => "complete, verified".to_owned(),
        Outcome::Unfinished => "unfinished at the time limit".to_owned(),
        Outcome::Truncated => "truncated".to_owned(),
        Outcome::Corrupt { offset } => format!("corrupt from byte {offset}"),
        Outcome::Failed { error } => format!("failed: {error}"),
        other => format!("{other:?}"),
    }
}

/// An outcome for programs: the same word as in the JSON.
pub(super) fn state(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "complete",
        Outcome::Unfinished => "unfinished",
        Outcome::Truncated => "truncated",
        Outcome::Corrupt { .. } => "corrupt",
        _ => "failed",
    }
}

/// One line of CSV (RFC 4180); unknown values are empty. Our fields need no quoting: they are
/// numbers, addresses and single words.
pub(super) fn csv_line(fields: &[Option<String>]) -> String {
    let fields: Vec<&str> = fields.iter().map(|field| field.as_deref().unwrap_or("")).collect();
    fields.join(",") + "\n"
}
