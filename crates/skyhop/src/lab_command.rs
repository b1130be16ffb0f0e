//! `skyhop lab …`: programs on the hosts of a satellite link.

mod check;
mod stats;

use core::time::Duration;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

use clap::Subcommand;
use lab::{Capture, Lab, Node, Overrides, Preset, Queue};
use units::{BitRate, Probability, parse_duration};

use self::stats::Stats;
use crate::pair::Pair;

/// `skyhop lab …`
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Runs a command in a new lab; its exit code is the command's.
    Run {
        #[command(flatten)]
        link: LinkArgs,
        /// The host to run it on: client, terminal, hub or server.
        #[arg(long, value_name = "HOST", default_value_t = Node::Client)]
        on: Node,
        #[command(flatten)]
        gateways: GatewaysArg,
        #[command(flatten)]
        watch: WatchArgs,
        /// The command and its arguments.
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Opens your shell on the client of a new lab.
    Shell {
        #[command(flatten)]
        link: LinkArgs,
        #[command(flatten)]
        gateways: GatewaysArg,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Runs a command on a host of the lab that this is started in.
    Exec {
        /// The host: client, terminal, hub or server.
        node: Node,
        /// The command and its arguments.
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Measures a link and prints what was asked for beside what was measured;
    /// exit code 1 if something is outside its tolerance.
    Check {
        #[command(flatten)]
        link: LinkArgs,
        /// Print the whole report as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lists the built-in presets.
    Presets,
}

/// What else a new lab has.
#[derive(clap::Args)]
struct GatewaysArg {
    /// With the skyhop pair on `hub` and `terminal`: it carries all TCP between
    /// client and server from before the command until its end.
    #[arg(long)]
    gateways: bool,
}

/// What is told of the links while a command runs.
#[derive(clap::Args)]
struct WatchArgs {
    /// Prints what the links do once a second, on stderr.
    #[arg(long)]
    stats: bool,
    /// Captures both sides of the link as terminal.pcapng and hub.pcapng here.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
}

/// What watches the links; it says at its end what became of the capture.
struct Watching {
    _stats: Option<Stats>,
    capture: Option<Capture>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Some(captured) = self.capture.take().map(Capture::finish) else { return };
        if let Some(error) = captured.error {
            eprintln!("skyhop: {error}");
        }
        if captured.dropped > 0 {
            let (written, dropped) = (captured.written, captured.dropped);
            eprintln!("skyhop: {written} packets captured, {dropped} went by uncaptured");
        }
    }
}

/// The link of a new lab.
#[derive(clap::Args)]
struct LinkArgs {
    /// A built-in preset (see `skyhop lab presets`) or the path of your own.
    preset: String,
    /// The rate of the forward link (to the terminal), such as 50Mbit/s.
    #[arg(long)]
    rate: Option<BitRate>,
    /// The rate of the return link (to the hub).
    #[arg(long, value_name = "RATE")]
    return_rate: Option<BitRate>,
    /// The one-way delay of both links, such as 300ms.
    #[arg(long, value_parser = parse_duration)]
    delay: Option<Duration>,
    /// The packet error rate of both links, such as 1% or 0.01.
    #[arg(long)]
    per: Option<Probability>,
    /// The bit error rate of both links, such as 1e-6.
    #[arg(long)]
    ber: Option<Probability>,
    /// The queue of both links: "1 BDP", "100 packets", 64kB.
    #[arg(long, value_name = "SIZE")]
    queue: Option<Queue>,
    /// The longest IP packet on the hop in bytes.
    #[arg(long)]
    mtu: Option<u16>,
    /// Decides which packets are lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl GatewaysArg {
    fn start(&self, lab: &Lab, preset: &Preset) -> anyhow::Result<Option<Pair>> {
        self.gateways.then(|| Pair::start(lab, preset)).transpose()
    }
}

impl WatchArgs {
    fn start(&self, lab: &Lab) -> anyhow::Result<Watching> {
        let capture = self.pcap.as_ref().map(|directory| Capture::start(lab, directory));
        let capture = capture.transpose()?;
        let stats = self.stats.then(|| Stats::start(lab.gauges())).transpose()?;
        Ok(Watching { _stats: stats, capture })
    }
}

impl LinkArgs {
    fn preset(&self) -> Result<Preset, lab::PresetError> {
        let overrides = Overrides {
            rate: self.rate,
            return_rate: self.return_rate,
            delay: self.delay,
            per: self.per,
            ber: self.ber,
            queue: self.queue,
            mtu: self.mtu,
        };
        Preset::load(&self.preset)?.with(&overrides)
    }
}

/// Does what the command line says.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Run { link, on, gateways, watch, command } => {
            run_command(&link, &gateways, &watch, on, &command)
        }
        Action::Shell { link, gateways, watch } => shell(&link, &gateways, &watch),
        Action::Exec { node, command } => exec(node, &command),
        Action::Check { link, json } => check::run(&link, json),
        Action::Presets => list_presets(),
    }
}

fn run_command(
    link: &LinkArgs,
    gateways: &GatewaysArg,
    watch: &WatchArgs,
    on: Node,
    command: &[OsString],
) -> anyhow::Result<ExitCode> {
    let preset = link.preset()?;
    let lab = start(&preset, link.seed)?;
    let pair = gateways.start(&lab, &preset)?;
    let _watching = watch.start(&lab)?;
    let mut child = lab.command(on, &command[0]);
    child.args(&command[1..]);
    wait(child, pair)
}

fn shell(link: &LinkArgs, gateways: &GatewaysArg, watch: &WatchArgs) -> anyhow::Result<ExitCode> {
    let preset = link.preset()?;
    let lab = start(&preset, link.seed)?;
    let pair = gateways.start(&lab, &preset)?;
    let _watching = watch.start(&lab)?;
    let through = if pair.is_some() { ", through the gateway pair" } else { "" };
    eprintln!(
        "skyhop: on the client of {}{through}; http://server/10MB; exit to leave",
        describe(&preset)
    );
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut child = lab.command(Node::Client, shell);
    // Shells with a start-up file of their own set another; SKYHOP_LAB is there.
    child.env("PS1", format!("({}) \\$ ", preset.name));
    wait(child, pair)
}

/// The one place where labs of the command line start. From here on the process
/// is inside, and only there may it have threads.
fn start(preset: &Preset, seed: u64) -> anyhow::Result<Lab> {
    lab::enter()?;
    Ok(Lab::start(preset, seed)?)
}

/// Runs the command to its end; what a shell would make of its end.
fn wait(mut command: Command, pair: Option<Pair>) -> anyhow::Result<ExitCode> {
    lab::leave_signals_to_the_command();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(not_run(&command, &error)),
    };
    let status = match pair {
        Some(pair) => pair.attend(child),
        None => child.wait(),
    };
    Ok(ExitCode::from(code_of(status?)))
}

fn exec(node: Node, command: &[OsString]) -> anyhow::Result<ExitCode> {
    lab::find_netns(node)?.enter()?;
    let mut command = with_arguments(command);
    let error = command.exec();
    Ok(not_run(&command, &error))
}

fn with_arguments(command: &[OsString]) -> Command {
    let mut with = Command::new(&command[0]);
    with.args(&command[1..]);
    with
}

/// 126 or 127, as shells say it.
fn not_run(command: &Command, error: &std::io::Error) -> ExitCode {
    eprintln!("skyhop: cannot run {}: {error}", command.get_program().display());
    ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn list_presets() -> anyhow::Result<ExitCode> {
    let line = |preset: Preset| format!("{:<10} {}\n", preset.name, preset.description);
    crate::print(&Preset::built_in().map(line).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn describe(preset: &Preset) -> String {
    format!(
        "{}: {} forward, {} return, {} RTT",
        preset.name,
        preset.forward.rate,
        preset.ret.rate,
        units::format_duration(preset.rtt())
    )
}
