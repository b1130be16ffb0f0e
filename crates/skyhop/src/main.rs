//! The program `skyhop`: parses the command line and calls the commands.

#![forbid(unsafe_code)]
// The printing macros panic on a closed pipe or a full disk; module `output` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod command_line;
mod commands;
mod output;
mod progress;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use output::{print, print_to_stderr, report_error};

/// Exit code for invalid input or missing privileges.
const USAGE: u8 = 2;

/// Accelerate TCP over satellite links, and measure the gain
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: TopCommand,
}

#[derive(Subcommand)]
enum TopCommand {
    /// Measure what the gateway pair gains on this machine, in under two minutes
    Demo(commands::demo::DemoArgs),
    /// Run the gateway on the earth station's side of the hop
    Hub(commands::gateway::HubArgs),
    /// Run the gateway on the clients' side of the hop
    Terminal(commands::gateway::TerminalArgs),
    /// Run a single gateway: kernel TCP on both halves of each connection
    Solo(commands::gateway::SoloArgs),
    /// Generate a gateway's key
    Keygen(commands::gateway::KeygenArgs),
    /// Write matching hub and terminal configurations with fresh keys
    Init(commands::init::InitArgs),
    /// Let new terminals join a hub with a one-time token; list and revoke those that have
    #[command(subcommand)]
    Enrol(commands::enrol::EnrolCommand),
    /// Check files: configurations, presets, scenarios; exit code 1 if one is invalid
    Check(commands::check::CheckArgs),
    /// Print the JSON Schema of a kind of file, with which editors complete and check it
    Schema(commands::check::SchemaArgs),
    /// Check whether a gateway can work on this machine; changes nothing
    Doctor(commands::doctor::DoctorArgs),
    /// Show a gateway's status
    Status(commands::operate::StatusArgs),
    /// Show what the terminals of a hub have used, and their quotas
    Accounting(commands::operate::AccountingArgs),
    /// Send, receive and list bundles, which wait while the link is away
    #[command(subcommand)]
    Bundle(commands::bundle::BundleCommand),
    /// Send the files of a directory as bundles
    Outbox(commands::bundle::outbox::OutboxArgs),
    /// Show the packet events of a gateway's hop
    Events(commands::operate::EventsArgs),
    /// Set the modem rate of a running gateway
    Rate(commands::operate::RateArgs),
    /// Reload a gateway's configuration
    Reload(commands::operate::ReloadArgs),
    /// Replace a running hub by the program that is installed now; connections go on
    Upgrade(commands::operate::UpgradeArgs),
    /// Stop taking new connections and exit after the last one
    Drain(commands::operate::DrainArgs),
    /// Emulate a satellite link on this machine, with real packets
    Lab(Box<commands::lab::LabArgs>),
    /// Measure a path with traffic that is verified byte by byte
    #[command(subcommand)]
    Meter(commands::meter::MeterCommand),
    /// Simulate a scenario file in virtual time
    Sim(commands::sim::SimArgs),
    /// Run scenarios many times and keep the results
    #[command(subcommand)]
    Study(commands::study::StudyCommand),
    /// Run our own TCP endpoint on a network device, against real kernels
    #[command(subcommand)]
    Tcp(Box<commands::tcp::TcpCommand>),
    /// Print the completions for a shell
    Completions(command_line::completions::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands
    Man(command_line::man::ManArgs),
}

/// Starts no thread and no runtime, because a command may have to enter a lab before any exists.
fn main() -> ExitCode {
    os::names::use_built_in_services();
    let cli = match command_line::parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let done = match cli.command {
        TopCommand::Demo(args) => commands::demo::run(&args),
        TopCommand::Hub(args) => commands::gateway::hub(&args),
        TopCommand::Terminal(args) => commands::gateway::terminal(&args),
        TopCommand::Solo(args) => commands::gateway::solo(&args),
        TopCommand::Keygen(args) => commands::gateway::keygen(&args),
        TopCommand::Init(args) => commands::init::run(&args),
        TopCommand::Enrol(command) => commands::enrol::run(command),
        TopCommand::Check(args) => commands::check::check(&args),
        TopCommand::Schema(args) => commands::check::schema(&args),
        TopCommand::Doctor(args) => commands::doctor::run(&args),
        TopCommand::Status(args) => commands::operate::status(&args),
        TopCommand::Accounting(args) => commands::operate::accounting(&args),
        TopCommand::Rate(args) => commands::operate::rate(&args),
        TopCommand::Reload(args) => commands::operate::reload(&args),
        TopCommand::Bundle(args) => commands::bundle::run(args),
        TopCommand::Outbox(args) => commands::bundle::outbox::run(&args),
        TopCommand::Events(args) => commands::operate::events(&args),
        TopCommand::Upgrade(args) => commands::operate::upgrade(&args),
        TopCommand::Drain(args) => commands::operate::drain(&args),
        TopCommand::Lab(args) => commands::lab::run(*args),
        TopCommand::Meter(command) => commands::meter::run(command),
        TopCommand::Sim(args) => commands::sim::run(&args),
        TopCommand::Study(command) => commands::study::run(command),
        TopCommand::Tcp(command) => commands::tcp::run(*command),
        TopCommand::Completions(args) => command_line::completions::run(&args),
        TopCommand::Man(args) => command_line::man::run(&args),
    };
    done.unwrap_or_else(|error| report_error(&format!("{error:#}")))
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
            .map_or_else(|error| report_error(&format!("{error:#}")), |()| ExitCode::SUCCESS);
    }
    // The whole help is more useful than a line about the missing subcommand.
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    report_error(&command_line::one_line(error))
}
