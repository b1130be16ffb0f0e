//! The program `skyhop`: parses the command line and calls the commands.

#![forbid(unsafe_code)]
// The printing macros panic on a closed pipe or a full disk; module `output` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod bundle_command;
mod check_command;
mod command_line;
#[cfg(test)]
mod commands_page;
mod completions;
mod demo_command;
mod doctor_command;
mod enrol_command;
mod gateway_command;
mod init_command;
mod lab_command;
mod man;
mod meter_command;
mod operate;
mod output;
mod progress;
mod sim_command;
mod study_command;
mod tcp_command;
mod which;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use output::{complain, print, say};

/// Exit code for invalid input or missing privileges.
const USAGE: u8 = 2;

/// Accelerate TCP over satellite links, and measure the gain
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what the gateway pair gains on this machine, in under two minutes
    Demo(demo_command::Args),
    /// Run the gateway on the earth station's side of the hop
    Hub(gateway_command::HubArgs),
    /// Run the gateway on the clients' side of the hop
    Terminal(gateway_command::TerminalArgs),
    /// Run a single gateway: kernel TCP on both halves of each connection
    Solo(gateway_command::SoloArgs),
    /// Generate a gateway's key
    Keygen(gateway_command::KeygenArgs),
    /// Write matching hub and terminal configurations with fresh keys
    Init(init_command::Args),
    /// Let new terminals join a hub with a one-time token; list and revoke those that have
    #[command(subcommand)]
    Enrol(enrol_command::EnrolCommand),
    /// Check files: configurations, presets, scenarios; exit code 1 if one is invalid
    Check(check_command::CheckArgs),
    /// Print the JSON Schema of a kind of file, with which editors complete and check it
    Schema(check_command::SchemaArgs),
    /// Check whether a gateway can work on this machine; changes nothing
    Doctor(doctor_command::Args),
    /// Show a gateway's status
    Status(operate::StatusArgs),
    /// Show what the terminals of a hub have used, and their quotas
    Accounting(operate::AccountingArgs),
    /// Send, receive and list bundles, which wait while the link is away
    #[command(subcommand)]
    Bundle(bundle_command::Args),
    /// Send the files of a directory as bundles
    Outbox(bundle_command::outbox::Args),
    /// Show the packet events of a gateway's hop
    Events(operate::EventsArgs),
    /// Set the modem rate of a running gateway
    Rate(operate::RateArgs),
    /// Reload a gateway's configuration
    Reload(operate::ReloadArgs),
    /// Replace a running hub by the program that is installed now; connections go on
    Upgrade(operate::UpgradeArgs),
    /// Stop taking new connections and exit after the last one
    Drain(operate::DrainArgs),
    /// Emulate a satellite link on this machine, with real packets
    Lab(Box<lab_command::Args>),
    /// Measure a path with traffic that is verified byte by byte
    #[command(subcommand)]
    Meter(meter_command::MeterCommand),
    /// Simulate a scenario file in virtual time
    Sim(sim_command::Args),
    /// Run scenarios many times and keep the results
    #[command(subcommand)]
    Study(study_command::StudyCommand),
    /// Run our own TCP endpoint on a network device, against real kernels
    #[command(subcommand)]
    Tcp(Box<tcp_command::TcpCommand>),
    /// Print the completions for a shell
    Completions(completions::Args),
    /// Print the manual page, or write the pages of all commands
    Man(man::Args),
}

/// Starts no thread and no runtime, because a command may have to enter a lab before any exists.
fn main() -> ExitCode {
    os::names::use_built_in_services();
    let cli = match command_line::parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let done = match cli.command {
        Command::Demo(args) => demo_command::run(&args),
        Command::Hub(args) => gateway_command::hub(&args),
        Command::Terminal(args) => gateway_command::terminal(&args),
        Command::Solo(args) => gateway_command::solo(&args),
        Command::Keygen(args) => gateway_command::keygen(&args),
        Command::Init(args) => init_command::run(&args),
        Command::Enrol(command) => enrol_command::run(command),
        Command::Check(args) => check_command::check(&args),
        Command::Schema(args) => check_command::schema(&args),
        Command::Doctor(args) => doctor_command::run(&args),
        Command::Status(args) => operate::status(&args),
        Command::Accounting(args) => operate::accounting(&args),
        Command::Rate(args) => operate::rate(&args),
        Command::Reload(args) => operate::reload(&args),
        Command::Bundle(args) => bundle_command::run(args),
        Command::Outbox(args) => bundle_command::outbox::run(&args),
        Command::Events(args) => operate::events(&args),
        Command::Upgrade(args) => operate::upgrade(&args),
        Command::Drain(args) => operate::drain(&args),
        Command::Lab(args) => lab_command::run(*args),
        Command::Meter(command) => meter_command::run(command),
        Command::Sim(args) => sim_command::run(&args),
        Command::Study(command) => study_command::run(command),
        Command::Tcp(command) => tcp_command::run(*command),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    done.unwrap_or_else(|error| complain(&format!("{error:#}")))
}

/// Starts the log of commands that measure: warnings on stderr, unless `SKYHOP_LOG` sets another filter.
fn start_log() {
    let filter = EnvFilter::try_from_env("SKYHOP_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Errors of the log are printed with a macro that panics if stderr is closed.
        .log_internal_errors(false)
        .with_ansi(gateway::log::has_colours())
        .init();
}

/// Returns the path of this program, to run gateways with it.
fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's executable")
}

/// Prints help if it was requested or needed, otherwise the usage error on one line.
fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let printed = output::print_help(error);
        return printed
            .map_or_else(|error| complain(&format!("{error:#}")), |()| ExitCode::SUCCESS);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    complain(&command_line::one_line(error))
}
