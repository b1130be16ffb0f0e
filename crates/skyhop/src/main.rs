//! The command line of skyhop; nothing else.

mod gateway_command;
mod lab_command;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// The exit code for bad input and missing privilege.
const USAGE: u8 = 2;

/// TCP made fast over satellite links, and proved.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The gateway at the earth station's side of the hop.
    Hub(gateway_command::HubArgs),
    /// The gateway at the clients' side of the hop.
    Terminal(gateway_command::TerminalArgs),
    /// Makes the key of a gateway.
    Keygen(gateway_command::KeygenArgs),
    /// A satellite link on this machine, with real packets.
    Lab(lab_command::Args),
}

/// Single-threaded: a lab is entered before there is any thread or runtime.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let done = match cli.command {
        Command::Hub(args) => gateway_command::hub(&args),
        Command::Terminal(args) => gateway_command::terminal(&args),
        Command::Keygen(args) => gateway_command::keygen(&args),
        Command::Lab(args) => lab_command::run(args),
    };
    done.unwrap_or_else(|error| complain(&format!("{error:#}")))
}

/// One clear line.
fn complain(text: &str) -> ExitCode {
    eprintln!("skyhop: {text}");
    ExitCode::from(USAGE)
}

/// The help that was asked for or is needed, or what is wrong, in one line.
fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    let text = error.to_string();
    // What follows the empty line is usage and hints.
    let lines: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    complain(lines.join(" ").trim_start_matches("error: "))
}
