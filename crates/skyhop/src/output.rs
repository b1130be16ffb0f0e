//! Printing to standard output and standard error.
//!
//! Unlike the macros of `std`, these functions never panic. A closed standard output (`| head`) is not an
//! error, but ends commands that would print for ever; other failures to write there are errors. Lines
//! that cannot be written to standard error are lost.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;

/// The state of standard output's reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdoutReader {
    Reads,
    Gone,
}

/// Prints to standard output; tells whether it still has a reader.
pub(crate) fn print_to_reader(text: &str) -> anyhow::Result<StdoutReader> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    reader_after(written)
}

/// Prints to standard output; a closed one is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_to_reader(text).map(drop)
}

/// Prints a line to standard error.
pub(crate) fn print_to_stderr(line: impl Display) {
    // In one write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Prints an error on one line; returns exit code 2.
pub(crate) fn report_error(text: &str) -> ExitCode {
    print_to_stderr(format_args!("skyhop: {text}"));
    ExitCode::from(crate::USAGE)
}

/// Prints help, with colours where standard output shows them.
pub(crate) fn print_help(help: &clap::Error) -> anyhow::Result<()> {
    reader_after(help.print()).map(drop)
}

fn reader_after(written: io::Result<()>) -> anyhow::Result<StdoutReader> {
    match written {
        Ok(()) => Ok(StdoutReader::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(StdoutReader::Gone),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_that_left_is_no_failure() {
        assert_eq!(reader_after(Ok(())).unwrap(), StdoutReader::Reads);
        let left = io::ErrorKind::BrokenPipe.into();
        assert_eq!(reader_after(Err(left)).unwrap(), StdoutReader::Gone);
        let error = reader_after(Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(format!("{error:#}"), "cannot write to standard output: no storage space");
    }
}
