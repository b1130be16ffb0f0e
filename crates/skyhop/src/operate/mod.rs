//! `skyhop status`, `events`, `rate`, `reload` and `drain`: what
//! operators ask of a running gateway.

mod table;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use gateway::control::{Answer, Control, Request};
use gateway::status::Status;
use units::BitRate;

use crate::print;

/// How often `--watch` looks.
const LOOK: Duration = Duration::from_secs(1);
/// How often the events are asked for, unless there were many: then at once.
const EVENTS_EVERY: Duration = Duration::from_millis(200);
const MANY_EVENTS: usize = 10_000;

/// Which gateway.
#[derive(clap::Args)]
struct Which {
    /// The gateway's control socket, if it is not in the usual place.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// `skyhop status …`
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    which: Which,
    /// Prints all that is known as JSON: a list of gateways.
    #[arg(long)]
    json: bool,
    /// Tells about each connection, too.
    #[arg(long)]
    connections: bool,
    /// Looks again once a second, until interrupted.
    #[arg(long)]
    watch: bool,
}

/// `skyhop rate …`
#[derive(clap::Args)]
pub(crate) struct RateArgs {
    /// What the modem sends at now, like 20Mbit/s; at 0bit/s nothing is sent.
    rate: BitRate,
    /// How long that holds; then `initial_rate` does.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    valid_for: Duration,
    /// On a hub: to which terminal; to all of them without it.
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    #[command(flatten)]
    which: Which,
}

/// `skyhop reload …`
#[derive(clap::Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    which: Which,
}

/// `skyhop drain …`
#[derive(clap::Args)]
pub(crate) struct DrainArgs {
    /// Ends after this time even if connections are left, and resets them.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    within: Option<Duration>,
    #[command(flatten)]
    which: Which,
}

/// `skyhop events …`
#[derive(clap::Args)]
pub(crate) struct EventsArgs {
    /// On a hub: of the session with this terminal; of all of them without it.
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Ends after this time; without it, when interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    how_long: Option<Duration>,
    #[command(flatten)]
    which: Which,
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text).map_err(|error| error.to_string())
}

/// Tells about one gateway, or all that run here.
pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let mut gateways = match &args.which.control {
        Some(path) => vec![Control::connect(path)?],
        None => Control::all()?,
    };
    let mut before: Vec<Option<Status>> = gateways.iter().map(|_| None).collect();
    loop {
        let ask = |gateway| ask_status(gateway, args.connections);
        let now = gateways.iter_mut().map(ask).collect::<anyhow::Result<Vec<Status>>>()?;
        let mut text = if args.json {
            let list = if args.watch {
                serde_json::to_string(&now)
            } else {
                serde_json::to_string_pretty(&now)
            };
            list? + "\n"
        } else {
            let tables =
                now.iter().zip(&before).map(|(now, before)| table::of(now, before.as_ref()));
            tables.collect::<Vec<_>>().join("\n")
        };
        if args.watch && !args.json && std::io::stdout().is_terminal() {
            // Clears the screen.
            text.insert_str(0, "\x1b[H\x1b[2J");
        }
        print(&text)?;
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        before = now.into_iter().map(Some).collect();
        thread::sleep(LOOK);
    }
}

fn ask_status(gateway: &mut Control, connections: bool) -> anyhow::Result<Status> {
    match gateway.ask(&Request::Status { connections })? {
        Answer::Status(status) => Ok(*status),
        other => bail!("the gateway at {} answers {other:?}", gateway.path().display()),
    }
}

/// Tells a rate.
pub(crate) fn rate(args: &RateArgs) -> anyhow::Result<ExitCode> {
    let (bit_s, for_s) = (args.rate.bits_per_second(), args.valid_for.as_secs_f64());
    do_it(&args.which, &Request::Rate { bit_s, for_s, peer: args.peer.clone() })
}

/// Has the configuration read again.
pub(crate) fn reload(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    do_it(&args.which, &Request::Reload)
}

/// Begins to drain.
pub(crate) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let within_s = args.within.map(|within| within.as_secs_f64());
    do_it(&args.which, &Request::Drain { within_s })
}

/// Prints what happens on the hop, packet by packet, as it happens.
pub(crate) fn events(args: &EventsArgs) -> anyhow::Result<ExitCode> {
    let mut gateway = Control::one(args.which.control.as_deref())?;
    let reader = RandomState::new().build_hasher().finish();
    let request = Request::Events { reader, peer: args.peer.clone() };
    let until = args.how_long.and_then(|how_long| Instant::now().checked_add(how_long));
    loop {
        let asked = Instant::now();
        let lines = match gateway.ask(&request)? {
            Answer::Events(lines) => lines,
            other => bail!("the gateway at {} answers {other:?}", gateway.path().display()),
        };
        print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        if until.is_some_and(|until| asked >= until) {
            return Ok(ExitCode::SUCCESS);
        }
        if lines.len() < MANY_EVENTS {
            thread::sleep(EVENTS_EVERY);
        }
    }
}

fn do_it(which: &Which, request: &Request) -> anyhow::Result<ExitCode> {
    let mut gateway = Control::one(which.control.as_deref())?;
    match gateway.ask(request)? {
        Answer::Done(lines) => {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("the gateway at {} answers {other:?}", gateway.path().display()),
    }
}
