//! The command line of skyhop; nothing else.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod meter_command;

/// TCP made fast over satellite links, and proved.
#[derive(Parser)]
#[command(name = "skyhop", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a path with traffic that is verified byte by byte.
    #[command(subcommand)]
    Meter(meter_command::MeterCommand),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let log =
        tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    let done = match cli.command {
        Command::Meter(command) => meter_command::run(command),
    };
    done.unwrap_or_else(|error| {
        eprintln!("skyhop: {error:#}");
        ExitCode::from(2)
    })
}
