//! `skyhop tcp …`: runs skyhop's own TCP endpoints on a network device, with every option and congestion
//! controller, against real kernels.

mod compare;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use lab::{LAB_VARIABLE, LAN_DEVICE};
use os::station::{Station, spare_addresses};
use serde::Serialize;
use study::endpoint::{self, FetchResult, ObjectUrl, fit_to_ethernet};
use tcp::{Config, SynData};

/// Exit code of a failed transfer.
const FAILED: u8 = 1;

#[derive(Subcommand)]
pub(crate) enum TcpCommand {
    /// Serve test objects over HTTP: `curl http://ADDRESS/10MB`
    Serve(ServeArgs),
    /// Fetch a test object over HTTP and verify every byte
    Get(GetArgs),
    /// Compare the goodput of our endpoint with the kernel's, on the same links with the same seeds
    Compare(Box<compare::CompareArgs>),
}

/// Parses the options of an endpoint on a device.
fn on_device(text: &str) -> Result<Config, String> {
    let config: Config = text.parse().map_err(|error: tcp::ConfigError| error.to_string())?;
    match config.syn_data {
        SynData::Transactions(_) => Err(
            "syn-data = \"t-tcp\": expected off, fast-open or always; only hosts of the simulator \
                 count connections"
                .to_owned(),
        ),
        _ => Ok(config),
    }
}

/// The endpoint and its device.
#[derive(clap::Args)]
struct StationArgs {
    /// TCP options, such as `profile=satellite,cc=hybla:rtt0=25ms,sack=off`; an invalid one lists
    /// the valid ones
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, value_parser = on_device)]
    options: Config,
    /// Network device [default in a lab: the host's LAN]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Unused address for the endpoint; one per family [default in a lab: the host's plus 100, such
    /// as 10.1.0.102 and fd00:1::102 on the client]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    station: StationArgs,
    /// Port to listen on
    #[arg(long, default_value_t = 80)]
    port: u16,
    /// Exit after this many connections
    #[arg(long, value_name = "N")]
    connections: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct GetArgs {
    /// URL of the object, such as http://server/1MB
    #[arg(value_name = "URL")]
    target: ObjectUrl,
    #[command(flatten)]
    station: StationArgs,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    v6: bool,
    /// Number of transfers, one after the other; with `syn-data=fast-open` later ones reuse the
    /// cookie
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u32,
    /// State that later connections inherit from earlier ones (RFC 9040)
    #[arg(long, value_enum, default_value_t = SharedState::Nothing)]
    share: SharedState,
}

/// TCB interdependence (RFC 9040).
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SharedState {
    Nothing,
    /// The slow-start threshold
    Ssthresh,
    /// The threshold, the RTT and the window
    All,
}

pub(crate) fn run(command: TcpCommand) -> Result<ExitCode> {
    match command {
        TcpCommand::Serve(args) => serve(args),
        TcpCommand::Get(args) => get(&args),
        TcpCommand::Compare(args) => compare::run(*args),
    }
}

fn serve(args: ServeArgs) -> Result<ExitCode> {
    let (mut station, addresses) = args.station.open()?;
    for address in &addresses {
        crate::print_to_stderr(format_args!(
            "skyhop: serving on {}",
            SocketAddr::new(*address, args.port)
        ));
    }
    let StationArgs { options, json, .. } = args.station;
    endpoint::serve(&mut station, options, args.port, args.connections, |served| {
        let _ = print_report(served, json);
    })?;
    Ok(ExitCode::SUCCESS)
}

fn get(args: &GetArgs) -> Result<ExitCode> {
    let (mut station, addresses) = args.station.open()?;
    let server = args.resolve(&addresses)?;
    let own = addresses.iter().find(|own| own.is_ipv4() == server.is_ipv4());
    let own = *own.with_context(|| format!("no local address of {server}'s family"))?;
    let mut config = fit_to_ethernet(&args.station.options, own);
    for _ in 0..args.times {
        let fetched = endpoint::get(&mut station, &config, own, server, &args.target)?;
        match &fetched.outcome {
            Ok(got) => print_report(got, args.station.json)?,
            Err(error) => {
                crate::print_to_stderr(format_args!("skyhop: {}: {error}", args.target));
                return Ok(ExitCode::from(FAILED));
            }
        }
        // As a host that shares what it has learnt with its next connection (RFC 9040).
        args.learn(&mut config, &fetched);
    }
    Ok(ExitCode::SUCCESS)
}

impl StationArgs {
    fn open(&self) -> Result<(Station, Vec<IpAddr>)> {
        let in_lab = std::env::var_os(LAB_VARIABLE).is_some();
        let device = match &self.device {
            Some(device) => device.as_str(),
            None if in_lab => LAN_DEVICE,
            None => bail!("--device is missing: it has a default only inside a lab"),
        };
        let addresses = if !self.address.is_empty() {
            self.address.clone()
        } else if in_lab {
            spare_addresses(device)?
        } else {
            bail!("--address is missing: it has a default only inside a lab");
        };
        Ok((Station::open(device, &addresses)?, addresses))
    }
}

impl GetArgs {
    /// Sets the initial values of the next connection.
    fn learn(&self, config: &mut Config, FetchResult { tcp, .. }: &FetchResult) {
        config.shared = match self.share {
            SharedState::Nothing => None,
            SharedState::Ssthresh => Some(tcp.control_block().ssthresh_only()),
            SharedState::All => Some(tcp.control_block()),
        };
        if let SynData::FastOpen { cookie } = &mut config.syn_data
            && !tcp.cookie().is_empty()
        {
            *cookie = tcp.cookie().clone();
        }
    }

    fn resolve(&self, own: &[IpAddr]) -> Result<SocketAddr> {
        let ObjectUrl { host, port, .. } = &self.target;
        let all = (host.as_str(), *port).to_socket_addrs();
        let all = all.with_context(|| format!("cannot find {host}"))?;
        let wanted = |address: &SocketAddr| {
            let family = address.is_ipv4();
            (!self.v4 || family)
                && (!self.v6 || !family)
                && own.iter().any(|own| own.is_ipv4() == family)
        };
        let found = all.into_iter().find(wanted);
        found.with_context(|| format!("{host} and this endpoint have no address family in common"))
    }
}

fn print_report<T: Serialize + core::fmt::Display>(report: &T, json: bool) -> Result<()> {
    let text = if json { serde_json::to_string(report)? } else { report.to_string() };
    crate::print(&format!("{text}\n"))?;
    Ok(())
}
