//! The command line of skyhop; nothing else.

mod demo;
mod doctor_command;
mod gateway_command;
mod init_command;
mod lab_command;
mod meter_command;
mod meter_server;
mod operate;
mod pair;
mod sim_command;
mod tcp_command;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

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
    /// What the gateway pair is worth, measured here in under two minutes.
    Demo(demo::Args),
    /// The gateway at the earth station's side of the hop.
    Hub(gateway_command::HubArgs),
    /// The gateway at the clients' side of the hop.
    Terminal(gateway_command::TerminalArgs),
    /// A gateway alone: both halves of a connection with the kernel's TCP.
    Solo(gateway_command::SoloArgs),
    /// Makes the key of a gateway.
    Keygen(gateway_command::KeygenArgs),
    /// Writes the configurations of a new pair, with fresh keys.
    Init(init_command::Args),
    /// What would keep a gateway from working on this machine; changes nothing.
    Doctor(doctor_command::Args),
    /// How a running gateway is.
    Status(operate::StatusArgs),
    /// What happens on a running gateway's hop, packet by packet.
    Events(operate::EventsArgs),
    /// Tells a running gateway the rate of its modem.
    Rate(operate::RateArgs),
    /// Has a running gateway read its configuration again.
    Reload(operate::ReloadArgs),
    /// Has a running gateway take no new connections, and end with the last one.
    Drain(operate::DrainArgs),
    /// A satellite link on this machine, with real packets.
    Lab(Box<lab_command::Args>),
    /// Measure a path with traffic that is verified byte by byte.
    #[command(subcommand)]
    Meter(meter_command::MeterCommand),
    /// Simulate a scenario file in virtual time.
    Sim(sim_command::Args),
    /// A TCP endpoint of our own on a network device, against real kernels.
    #[command(subcommand)]
    Tcp(Box<tcp_command::TcpCommand>),
}

/// Single-threaded: a lab is entered before there is any thread or runtime.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Hub(args) => gateway_command::hub(&args),
        Command::Terminal(args) => gateway_command::terminal(&args),
        Command::Solo(args) => gateway_command::solo(&args),
        Command::Keygen(args) => gateway_command::keygen(&args),
        Command::Init(args) => init_command::run(&args),
        Command::Doctor(args) => doctor_command::run(&args),
        Command::Status(args) => operate::status(&args),
        Command::Rate(args) => operate::rate(&args),
        Command::Reload(args) => operate::reload(&args),
        Command::Events(args) => operate::events(&args),
        Command::Drain(args) => operate::drain(&args),
        Command::Lab(args) => lab_command::run(*args),
        Command::Meter(command) => meter_command::run(command),
        Command::Sim(args) => sim_command::run(&args),
        Command::Tcp(command) => tcp_command::run(*command),
    };
    done.unwrap_or_else(|error| complain(&format!("{error:#}")))
}

/// For commands that measure: warnings on stderr, unless `SKYHOP_LOG` says
/// otherwise.
fn start_log() {
    let filter = EnvFilter::try_from_env("SKYHOP_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// Prints to stdout. Whoever has read enough (`| head`) has closed it, which is
/// no failure.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
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
