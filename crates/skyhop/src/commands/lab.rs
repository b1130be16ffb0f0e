//! `skyhop lab …`: runs programs on the hosts of a satellite link.

mod check;
mod inside;
mod link_args;
mod presets;
mod stats;
mod status;
mod stay;

use anyhow::Context as _;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

use clap::Subcommand;
use lab::{Lab, LabCapture, LinkSpec, Node, Preset};
use study::{GatewayPair, MeterServer};

pub(crate) use self::link_args::LinkArgs;
use self::stats::StatsPrinter;

/// The arguments of `skyhop lab`.
#[derive(clap::Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: LabAction,
}

#[derive(Subcommand)]
enum LabAction {
    /// Run a command in a new lab; the exit code is the command's
    Run {
        #[command(flatten)]
        link: LinkArgs,
        /// Host to run it on: client, terminal, hub or server; client2, terminal2, … in a star
        #[arg(long, value_name = "HOST", default_value_t = Node::Client)]
        on: Node,
        #[command(flatten)]
        gateways: GatewaysArg,
        #[command(flatten)]
        watch: WatchArgs,
        /// Command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Open your shell on the client of a new lab
    #[command(after_help = "For a shell in a running lab: skyhop lab exec client")]
    Shell {
        #[command(flatten)]
        link: LinkArgs,
        #[command(flatten)]
        gateways: GatewaysArg,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Start a lab that stays until `skyhop lab down`
    Up(stay::UpArgs),
    /// Stop a lab
    Down(stay::DownArgs),
    /// Show the running labs
    Status(status::StatusArgs),
    /// Change the links of a running lab
    Set(stay::SetArgs),
    /// Run a command, or your shell, on a host of a running lab: the lab around this command, or
    /// one started by `skyhop lab up`
    Exec(inside::ExecArgs),
    /// Measure a link and compare it with its settings; exit code 1 if a value is out of tolerance
    Check {
        #[command(flatten)]
        link: LinkArgs,
        /// Print the whole report as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the built-in presets
    Presets {
        /// Print JSON: name, description, rates in bit/s (least and greatest), RTT in seconds, MTU,
        /// terminals
        #[arg(long)]
        json: bool,
    },
    /// Print a preset, with the options applied, as a file to start your own from
    Show {
        #[command(flatten)]
        link: LinkArgs,
    },
}

/// Optional parts of a new lab.
#[derive(clap::Args)]
struct GatewaysArg {
    /// Run the skyhop pair on `hub` and `terminal`: it carries all TCP between client and server,
    /// from before the command starts (or the lab is up) until it ends
    #[arg(long)]
    gateways: bool,
}

/// Options for watching the links while a command runs.
#[derive(clap::Args)]
struct WatchArgs {
    /// Print link statistics to stderr once a second, as text or as a line of JSON
    #[arg(long, value_enum, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    stats: Option<stats::StatsFormat>,
    /// Capture both sides of the link as terminal.pcapng and hub.pcapng in this directory
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Draw who got which part of a return link with capacity on demand, and what waited, into this
    /// file when the command ends
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Statistics and capture of the links; reports errors of the capture when it is dropped.
struct RunningWatch {
    _stats: Option<StatsPrinter>,
    capture: Option<LabCapture>,
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        let Some(captured) = self.capture.take().map(LabCapture::finish) else { return };
        if let Some(error) = captured.error {
            crate::print_to_stderr(format_args!("skyhop: {error}"));
        }
        if captured.dropped > 0 {
            let written = captured.written;
            let dropped = captured.dropped;
            crate::print_to_stderr(format_args!(
                "skyhop: {written} packets captured, {dropped} missed"
            ));
        }
    }
}

impl GatewaysArg {
    fn start(&self, lab: &Lab, preset: &Preset) -> anyhow::Result<Option<GatewayPair>> {
        let start = || Ok(GatewayPair::start(lab, preset, &crate::own_program()?)?);
        self.gateways.then(start).transpose()
    }
}

impl WatchArgs {
    fn start(&self, lab: &Lab) -> anyhow::Result<RunningWatch> {
        if let Some(path) = &self.svg {
            let name = &lab.preset().name;
            let shares = lab.preset().dama.is_some();
            anyhow::ensure!(
                shares,
                "--svg draws a return link with [dama], which {name} does not have"
            );
            // A path that cannot be written fails now, not after the command has run for an hour.
            std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))?;
            lab.record_return();
        }
        let capture = self.pcap.as_ref().map(|directory| LabCapture::start(lab, directory));
        let capture = capture.transpose()?;
        let stats =
            self.stats.map(|format| StatsPrinter::start(lab.gauges(), format)).transpose()?;
        Ok(RunningWatch { _stats: stats, capture })
    }
}

impl WatchArgs {
    /// Draws the recorded allocation of the return link, if it was requested.
    fn draw(&self, lab: &Lab) -> anyhow::Result<()> {
        let Some(path) = &self.svg else { return Ok(()) };
        let Some(record) = lab.recorded_return() else { return Ok(()) };
        let picture = lab::allocation_picture(&record, lab.origin()).file();
        std::fs::write(path, picture)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if record.is_full {
            crate::print_to_stderr(format_args!(
                "skyhop: {} shows only the beginning",
                path.display()
            ));
        }
        Ok(())
    }
}

/// Runs a subcommand of `skyhop lab`.
pub(crate) fn run(args: LabArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        LabAction::Run { link, on, gateways, watch, command } => {
            run_command(&link, &gateways, &watch, on, &command)
        }
        LabAction::Shell { link, gateways, watch } => shell(&link, &gateways, &watch),
        LabAction::Up(args) => stay::up(&args),
        LabAction::Down(args) => stay::down(&args),
        LabAction::Status(args) => status::run(&args),
        LabAction::Set(args) => stay::set(&args),
        LabAction::Exec(args) => inside::exec(&args),
        LabAction::Check { link, json } => check::run(&link, json),
        LabAction::Presets { json } => presets::run(json),
        LabAction::Show { link } => show(&link),
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
    let lab = start(&preset, link.seed())?;
    lab.expect(on)?;
    let _meter = serve_meter(&lab)?;
    let pair = gateways.start(&lab, &preset)?;
    let _watching = watch.start(&lab)?;
    let mut child = lab.command(on, &command[0]);
    child.args(&command[1..]);
    let code = wait(child, pair)?;
    watch.draw(&lab)?;
    Ok(code)
}

fn shell(link: &LinkArgs, gateways: &GatewaysArg, watch: &WatchArgs) -> anyhow::Result<ExitCode> {
    let preset = link.preset()?;
    let lab = start(&preset, link.seed())?;
    let _meter = serve_meter(&lab)?;
    let pair = gateways.start(&lab, &preset)?;
    let _watching = watch.start(&lab)?;
    let through = if pair.is_some() { ", through the gateway pair" } else { "" };
    crate::print_to_stderr(format_args!(
        "skyhop: on the client of {}{through}; http://server/10MB; exit to leave",
        describe(&preset)
    ));
    let mut child = lab.command(Node::Client, inside::own_shell());
    child.env("PS1", inside::prompt(&preset.name));
    let code = wait(child, pair)?;
    watch.draw(&lab)?;
    Ok(code)
}

/// Starts a lab; the process is inside it from here on. There must be no other threads yet, because
/// only the calling thread enters the namespaces.
fn start(preset: &Preset, seed: u64) -> anyhow::Result<Lab> {
    lab::enter()?;
    Ok(Lab::start(preset, seed)?)
}

/// Starts meter servers: on `server`, and on each client for the other direction.
fn serve_meter(lab: &Lab) -> anyhow::Result<Vec<MeterServer>> {
    let gateway =
        |node: &Node| matches!(node, Node::Hub | Node::Terminal | Node::FurtherTerminal(_));
    let nodes = lab.nodes().filter(|node| !gateway(node));
    nodes.map(|node| Ok(MeterServer::start(lab, node)?)).collect()
}

/// Runs a command and waits for it; returns the exit code that a shell would report.
fn wait(mut command: Command, pair: Option<GatewayPair>) -> anyhow::Result<ExitCode> {
    // Ctrl-C is for the command; the lab stays until the command has ended.
    os::process::leave_signals_to_the_command();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let code = not_run(&command, &error);
            pair.map_or(Ok(()), GatewayPair::stop)?;
            return Ok(code);
        }
    };
    let status = match pair {
        Some(pair) => pair
            .run_until_exit(child, |error| crate::print_to_stderr(format_args!("skyhop: {error}"))),
        None => child.wait(),
    };
    Ok(ExitCode::from(code_of(status?)))
}

/// Reports that a command cannot be run; returns exit code 127 if it does not exist, else 126, like a
/// shell.
fn not_run(command: &Command, error: &std::io::Error) -> ExitCode {
    crate::print_to_stderr(format_args!(
        "skyhop: cannot run {}: {error}",
        command.get_program().display()
    ));
    ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

fn code_of(status: ExitStatus) -> u8 {
    // A shell reports the end by a signal as 128 plus its number.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn show(link: &LinkArgs) -> anyhow::Result<ExitCode> {
    crate::print(&link.preset()?.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn describe(preset: &Preset) -> String {
    format!(
        "{}: {} forward, {} return, {} RTT",
        preset.name,
        rates(&preset.forward),
        rates(&preset.ret),
        units::format_duration(preset.rtt())
    )
}

/// Formats a link's rate, or the range of a changing rate.
fn rates(link: &LinkSpec) -> String {
    let least = link.rate.least();
    let greatest = link.rate.greatest();
    if least == greatest { greatest.to_string() } else { format!("{least} to {greatest}") }
}
