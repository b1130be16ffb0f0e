//! `skyhop status`, `accounting`, `events`, `rate`, `reload`, `upgrade` and `drain`: commands for a running gateway.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use control::protocol::{ControlAnswer, ControlRequest};
use control::status::{GatewayStatus, accounts_text};
use gateway::control_socket::ControlClient;
use units::BitRate;

use crate::commands::which::GatewaySelection;
use crate::output::{StdoutReader, print, print_to_reader};
use crate::progress::can_rewrite;

/// Refresh interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Polling interval of `drain --wait`.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the start of a new process.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);
/// Polling interval for events.
const EVENTS_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Size of a batch of events after which the next request follows at once.
const FULL_BATCH: usize = 10_000;

/// The arguments of `skyhop status`.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    which: GatewaySelection,
    /// Print everything as JSON: a list of gateways
    #[arg(long)]
    json: bool,
    /// List each connection too
    #[arg(long)]
    connections: bool,
    /// Refresh once a second until interrupted
    #[arg(long)]
    watch: bool,
}

/// The arguments of `skyhop accounting`.
#[derive(clap::Args)]
pub(crate) struct AccountingArgs {
    #[command(flatten)]
    which: GatewaySelection,
    /// Print a line of JSON for each terminal
    #[arg(long)]
    json: bool,
}

/// The arguments of `skyhop rate`.
#[derive(clap::Args)]
pub(crate) struct RateArgs {
    /// Rate at which the modem sends now, such as 20Mbit/s; 0bit/s stops sending
    rate: BitRate,
    /// How long the rate holds; afterwards `initial_rate` applies, or the rate is measured
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    valid_for: Duration,
    /// On a hub: apply only to this terminal [default: all terminals]
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    #[command(flatten)]
    which: GatewaySelection,
}

/// The arguments of `skyhop reload`.
#[derive(clap::Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    which: GatewaySelection,
}

/// The arguments of `skyhop drain`.
#[derive(clap::Args)]
pub(crate) struct DrainArgs {
    /// Reset remaining connections and exit after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    within: Option<Duration>,
    /// Return only when the gateway has stopped
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    which: GatewaySelection,
}

/// The arguments of `skyhop upgrade`.
#[derive(clap::Args)]
pub(crate) struct UpgradeArgs {
    /// Reset the connections that are left in the old process after this time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5min")]
    within: Duration,
    #[command(flatten)]
    which: GatewaySelection,
}

/// The arguments of `skyhop events`.
#[derive(clap::Args)]
pub(crate) struct EventsArgs {
    /// On a hub: show only the session with this terminal [default: all sessions]
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Stop after this time [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    how_long: Option<Duration>,
    #[command(flatten)]
    which: GatewaySelection,
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text).map_err(|error| error.to_string())
}

/// Shows the status of one gateway, or of all on this machine.
pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let mut gateways = args.which.all()?;
    let mut before: Vec<Option<GatewayStatus>> = gateways.iter().map(|_| None).collect();
    loop {
        let ask = |gateway| ask_status(gateway, args.connections);
        let now = gateways.iter_mut().map(ask).collect::<anyhow::Result<Vec<GatewayStatus>>>()?;
        let mut text = if args.json {
            let list = if args.watch {
                // One line per sample, for programs that read line by line.
                serde_json::to_string(&now)
            } else {
                serde_json::to_string_pretty(&now)
            };
            list? + "\n"
        } else {
            let texts = now.iter().zip(&before).map(|(now, before)| now.text(before.as_ref()));
            texts.collect::<Vec<_>>().join("\n")
        };
        let clears =
            can_rewrite(std::env::var_os("TERM").as_deref()) && std::io::stdout().is_terminal();
        if args.watch && !args.json && clears {
            // ANSI sequences: cursor home, clear screen.
            text.insert_str(0, "\x1b[H\x1b[2J");
        }
        if print_to_reader(&text)? == StdoutReader::Gone || !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        before = now.into_iter().map(Some).collect();
        thread::sleep(WATCH_INTERVAL);
    }
}

fn ask_status(gateway: &mut ControlClient, connections: bool) -> anyhow::Result<GatewayStatus> {
    match gateway.ask(&ControlRequest::Status { connections })? {
        ControlAnswer::Status(status) => Ok(*status),
        other => bail!("the gateway at {} answers {other:?}", gateway.path().display()),
    }
}

/// Shows the accounts of a hub's terminals.
pub(crate) fn accounting(args: &AccountingArgs) -> anyhow::Result<ExitCode> {
    let mut gateway = args.which.hub()?;
    let accounts = match gateway.ask(&ControlRequest::Accounts)? {
        ControlAnswer::Accounts(accounts) => accounts,
        other => bail!("the gateway at {} answers {other:?}", gateway.path().display()),
    };
    if !args.json {
        print(&accounts_text(&accounts))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines: Result<Vec<String>, _> = accounts.iter().map(serde_json::to_string).collect();
    print(&lines?.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// Sets the modem rate of a gateway.
pub(crate) fn rate(args: &RateArgs) -> anyhow::Result<ExitCode> {
    let bit_s = args.rate.bits_per_second();
    let for_s = args.valid_for.as_secs_f64();
    let mut gateway = args.which.one()?;
    send_request(&mut gateway, &ControlRequest::Rate { bit_s, for_s, peer: args.peer.clone() })
}

/// Lets a gateway reload its configuration.
pub(crate) fn reload(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    send_request(&mut args.which.one()?, &ControlRequest::Reload)
}

/// Lets a gateway drain, and waits until it has stopped if requested.
pub(crate) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let within_s = args.within.map(|within| within.as_secs_f64());
    let mut gateway = args.which.one()?;
    send_request(&mut gateway, &ControlRequest::Drain { within_s })?;
    let still = ControlRequest::Status { connections: false };
    // A gateway that has stopped no longer answers.
    while args.wait && gateway.ask(&still).is_ok() {
        thread::sleep(DRAIN_POLL_INTERVAL);
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces a running hub by the program that is installed now.
pub(crate) fn upgrade(args: &UpgradeArgs) -> anyhow::Result<ExitCode> {
    let mut gateway = args.which.hub()?;
    let path = gateway.path().to_owned();
    let before = ask_status(&mut gateway, false)?.pid;
    let within_s = args.within.as_secs_f64();
    send_request(&mut gateway, &ControlRequest::Upgrade { within_s })?;
    drop(gateway);
    let began = Instant::now();
    while began.elapsed() < UPGRADE_TIMEOUT {
        // There may be no answer between the end of the old process and the start of the new one.
        let now = ControlClient::connect(&path)
            .ok()
            .and_then(|mut client| ask_status(&mut client, false).ok());
        if let Some(now) = now.filter(|now| now.pid != before) {
            let within = units::format_duration(args.within);
            print(&format!(
                "pid {} serves; connections of pid {before} may go on for {within}\n",
                now.pid
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(DRAIN_POLL_INTERVAL);
    }
    bail!("pid {before} has not been replaced: see the gateway's log")
}

/// Prints the hop's packet events as they happen.
pub(crate) fn events(args: &EventsArgs) -> anyhow::Result<ExitCode> {
    let mut gateway = args.which.one()?;
    // The gateway serves one reader at a time and tells readers apart by this number.
    let reader = RandomState::new().build_hasher().finish();
    let followed = follow(&mut gateway, reader, args);
    // Otherwise the gateway refuses the next reader for some seconds, as it does after an interruption.
    let _ = gateway.ask(&ControlRequest::EventsEnd { reader });
    followed
}

fn follow(gateway: &mut ControlClient, reader: u64, args: &EventsArgs) -> anyhow::Result<ExitCode> {
    let request = ControlRequest::Events { reader, peer: args.peer.clone() };
    let until = args.how_long.and_then(|how_long| Instant::now().checked_add(how_long));
    loop {
        // Before the request, so that the last one covers the whole time.
        let asked = Instant::now();
        let lines = match gateway.ask(&request)? {
            ControlAnswer::Events(lines) => lines,
            other => bail!("the gateway at {} answers {other:?}", gateway.path().display()),
        };
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let reader = print_to_reader(&text)?;
        if reader == StdoutReader::Gone || until.is_some_and(|until| asked >= until) {
            return Ok(ExitCode::SUCCESS);
        }
        // A full batch means that more events wait.
        if lines.len() < FULL_BATCH {
            thread::sleep(EVENTS_POLL_INTERVAL);
        }
    }
}

fn send_request(gateway: &mut ControlClient, request: &ControlRequest) -> anyhow::Result<ExitCode> {
    match gateway.ask(request)? {
        ControlAnswer::Done(lines) => {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("the gateway at {} answers {other:?}", gateway.path().display()),
    }
}
