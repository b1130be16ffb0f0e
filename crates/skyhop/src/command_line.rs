//! Parsing of the command line, with errors on one line, and what is generated from its definition.

#[cfg(test)]
mod commands_page;
pub(crate) mod completions;
pub(crate) mod man;

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use crate::Cli;

/// Parses this program's arguments.
///
/// # Errors
/// clap's errors, which include requests for help and version.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    parse_line(std::env::args_os())
}

/// Parses a command line, which begins with the program's name.
fn parse_line<T>(line: impl IntoIterator<Item = T>) -> Result<Cli, clap::Error>
where
    T: Into<OsString> + Clone,
{
    let mut command = take_negative_values(Cli::command());
    let matches = command.try_get_matches_from_mut(line)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Lets the values of options begin with a hyphen: `--delay -5ms` is then a wrong delay, not an unknown
/// option. Options with any text as their value are excluded, because they would swallow the next option.
fn take_negative_values(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let is_typed = is_option_of_one_type(&arg);
        if is_typed { arg.allow_hyphen_values(true) } else { arg }
    });
    command.mut_subcommands(take_negative_values)
}

fn is_option_of_one_type(arg: &Arg) -> bool {
    let texts = [TypeId::of::<String>(), TypeId::of::<OsString>(), TypeId::of::<PathBuf>()];
    let value = arg.get_value_parser().type_id();
    let is_single = arg.get_num_args().is_none_or(|count| count.max_values() == 1);
    let is_option = !arg.is_positional() && arg.get_action().takes_values();
    is_option
        && is_single
        && !arg.is_require_equals_set()
        && !texts.iter().any(|text| value == *text)
}

/// Returns the error and clap's suggestions on one line.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    // Usage and hints follow the blank line.
    let lines: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let mut said = lines.join(" ").trim_start_matches("error: ").to_owned();
    for tip in text.lines().filter_map(|line| line.trim().strip_prefix("tip: ")) {
        said += &format!("; {tip}");
    }
    if is_command_without_dashes(error) {
        said += "; the command to run comes after `--`";
    }
    said
}

/// Returns true if a command was given without the `--` before it: `skyhop lab run geo curl …`.
fn is_command_without_dashes(error: &clap::Error) -> bool {
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    error.kind() == ErrorKind::UnknownArgument
        && !context(ContextKind::InvalidArg).starts_with('-')
        && context(ContextKind::Usage).contains(" -- <")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        match parse_line(line.split(' ')) {
            Ok(_) => panic!("{line} is accepted"),
            Err(error) => one_line(&error),
        }
    }

    #[test]
    fn what_was_probably_meant_is_told() {
        for (line, meant) in [
            ("skyhop statsu", "a similar subcommand exists: 'status'"),
            ("skyhop lab shel geo", "'shell'"),
            ("skyhop status --jsn", "a similar argument exists: '--json'"),
            ("skyhop lab run geo curl http://server/", "comes after `--`"),
        ] {
            let said = said(line);
            assert!(said.contains(meant) && !said.contains('\n'), "{line}: {said}");
        }
        assert!(!said("skyhop lab run geo --curl -- true").contains("comes after `--`"));
    }

    #[test]
    fn a_negative_value_is_a_wrong_value_and_no_option() {
        for (line, wrong) in [
            ("skyhop lab run geo --delay -5ms -- true", "\"-5ms\" is not a duration"),
            ("skyhop lab run geo --rate -5Mbit/s -- true", "\"-5Mbit/s\" is not a rate"),
            ("skyhop lab run geo --per -1% -- true", "\"-1%\" is not a probability"),
            ("skyhop lab run geo --seed -1 -- true", "invalid value '-1' for '--seed <SEED>'"),
            ("skyhop demo --delay -5ms", "\"-5ms\" is not a duration"),
            ("skyhop meter bulk server --flows -1", "invalid value '-1'"),
        ] {
            let said = said(line);
            assert!(said.contains(wrong), "{line}: {said}");
        }
    }

    #[test]
    fn a_bare_1_is_no_error_rate() {
        for option in ["--per", "--ber", "--terrestrial-per"] {
            let said = said(&format!("skyhop lab run geo {option} 1 -- true"));
            assert!(said.ends_with("1 means every packet; write 1% or 100%"), "{said}");
        }
    }

    #[test]
    fn an_option_with_any_text_does_not_swallow_the_next() {
        let said = said("skyhop status --control --json");
        assert!(said.contains("a value is required for '--control"), "{said}");
    }
}
