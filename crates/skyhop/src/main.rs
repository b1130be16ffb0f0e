//! The program `skyhop`: parses the command line and calls the commands.

#![forbid(unsafe_code)]
// The printing macros panic on a closed pipe or a full disk; module `output` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod bundle_command;
mod check_command;
mod command_line;
mod demo_command;
mod doctor_command;
mod enrol_command;
mod gateway_command;
mod init_command;
mod lab_command;
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
    Demo(demo_command::DemoArgs),
    /// Run the gateway on the earth station's side of the hop
    Hub(gateway_command::HubArgs),
    /// Run the gateway on the clients' side of the hop
    Terminal(gateway_command::TerminalArgs),
    /// Run a single gateway: kernel TCP on both halves of each connection
    Solo(gateway_command::SoloArgs),
    /// Generate a gateway's key
    Keygen(gateway_command::KeygenArgs),
    /// Write matching hub and terminal configurations with fresh keys
    Init(init_command::InitArgs),
    /// Let new terminals join a hub with a one-time token; list and revoke those that have
    #[command(subcommand)]
    Enrol(enrol_command::EnrolCommand),
    /// Check files: configurations, presets, scenarios; exit code 1 if one is invalid
    Check(check_command::CheckArgs),
    /// Print the JSON Schema of a kind of file, with which editors complete and check it
    Schema(check_command::SchemaArgs),
    /// Check whether a gateway can work on this machine; changes nothing
    Doctor(doctor_command::DoctorArgs),
    /// Show a gateway's status
    Status(operate::StatusArgs),
    /// Show what the terminals of a hub have used, and their quotas
    Accounting(operate::AccountingArgs),
    /// Send, receive and list bundles, which wait while the link is away
    #[command(subcommand)]
    Bundle(bundle_command::BundleCommand),
    /// Send the files of a directory as bundles
    Outbox(bundle_command::outbox::OutboxArgs),
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
    Lab(Box<lab_command::LabArgs>),
    /// Measure a path with traffic that is verified byte by byte
    #[command(subcommand)]
    Meter(meter_command::MeterCommand),
    /// Simulate a scenario file in virtual time
    Sim(sim_command::SimArgs),
    /// Run scenarios many times and keep the results
    #[command(subcommand)]
    Study(study_command::StudyCommand),
    /// Run our own TCP endpoint on a network device, against real kernels
    #[command(subcommand)]
    Tcp(Box<tcp_command::TcpCommand>),
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
        TopCommand::Demo(args) => demo_command::run(&args),
        TopCommand::Hub(args) => gateway_command::hub(&args),
        TopCommand::Terminal(args) => gateway_command::terminal(&args),
        TopCommand::Solo(args) => gateway_command::solo(&args),
        TopCommand::Keygen(args) => gateway_command::keygen(&args),
        TopCommand::Init(args) => init_command::run(&args),
        TopCommand::Enrol(command) => enrol_command::run(command),
        TopCommand::Check(args) => check_command::check(&args),
        TopCommand::Schema(args) => check_command::schema(&args),
        TopCommand::Doctor(args) => doctor_command::run(&args),
        TopCommand::Status(args) => operate::status(&args),
        TopCommand::Accounting(args) => operate::accounting(&args),
        TopCommand::Rate(args) => operate::rate(&args),
        TopCommand::Reload(args) => operate::reload(&args),
        TopCommand::Bundle(args) => bundle_command::run(args),
        TopCommand::Outbox(args) => bundle_command::outbox::run(&args),
        TopCommand::Events(args) => operate::events(&args),
        TopCommand::Upgrade(args) => operate::upgrade(&args),
        TopCommand::Drain(args) => operate::drain(&args),
        TopCommand::Lab(args) => lab_command::run(*args),
        TopCommand::Meter(command) => meter_command::run(command),
        TopCommand::Sim(args) => sim_command::run(&args),
        TopCommand::Study(command) => study_command::run(command),
        TopCommand::Tcp(command) => tcp_command::run(*command),
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
