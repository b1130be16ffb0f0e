//! `skyhop meter`: traffic that is verified byte by byte.

mod bulk;
mod compare;
mod page;
mod rr;
mod swarm;
mod trace;
mod udp;

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use meter::{
    BulkOptions, CongestionControl, DEFAULT_PORT, MeterReport, PageOptions, RrOptions, Stop,
    UdpOptions,
};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use units::{BitRate, ByteCount};

use crate::output::{StdoutReader, print, print_to_reader};
use crate::progress;

/// Subcommands of `skyhop meter`.
#[derive(Debug, Subcommand)]
pub(crate) enum MeterCommand {
    /// Serve until interrupted, as the other end
    Serve(ServeArgs),
    /// Move bytes down, up or both ways, in one or more flows
    Bulk(bulk::BulkArgs),
    /// Measure response times of requests
    Rr(rr::RrArgs),
    /// Load a page of objects over HTTP/1.0, keep-alive, 1.1 or pipelined
    Page(page::PageArgs),
    /// Send datagrams at a constant rate: loss, order, duplicates, jitter
    Udp(udp::UdpArgs),
    /// Run many terminals towards a hub, to find out what it can do
    Swarm(swarm::SwarmArgs),
    /// Compare the runs of several files: means, confidence intervals, gain
    Compare(compare::CompareArgs),
    /// Analyse a packet capture, connection by connection
    Trace(trace::TraceArgs),
}

/// Arguments of `skyhop meter serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; the IPv6 wildcard accepts IPv4 too
    #[arg(long, default_value = "[::]:5259")]
    listen: SocketAddr,
}

/// The server to measure against.
#[derive(Debug, Args)]
struct TargetArg {
    /// Meter server: name or address, with or without `:PORT`
    host: String,
}

/// Options common to all TCP tests.
#[derive(Debug, Args)]
struct TcpArgs {
    /// Congestion control at the sender, e.g. cubic
    #[arg(long, value_name = "NAME")]
    cc: Option<CongestionControl>,
    /// Time limit for each connection, e.g. 20s
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    limit: Option<Duration>,
}

/// Output format, and number of runs.
#[derive(Debug, Args)]
struct OutputArgs {
    /// Print every report as JSON, which `skyhop meter compare` reads
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a CSV line for each flow, request, object or direction
    #[arg(long)]
    csv: bool,
    /// Number of measurements, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
}

/// Runs a subcommand of `skyhop meter`. Returns exit code 1 if a measurement did not complete.
pub(crate) fn run(command: MeterCommand) -> Result<ExitCode> {
    crate::start_log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    match command {
        MeterCommand::Compare(args) => compare::run(&args),
        MeterCommand::Trace(args) => trace::run(&args),
        MeterCommand::Swarm(args) => swarm::run(&args, &runtime),
        MeterCommand::Serve(args) => runtime.block_on(serve(&args)),
        MeterCommand::Bulk(args) => args.output.repeat(&runtime, |stop| {
            let options = BulkOptions { stop: stop.clone(), ..args.options()? };
            Ok(MeterReport::Bulk(runtime.block_on(meter::bulk(&options))))
        }),
        MeterCommand::Page(args) => args.output.repeat(&runtime, |stop| {
            let options = PageOptions { stop: stop.clone(), ..args.options()? };
            Ok(MeterReport::Page(runtime.block_on(meter::page(&options))))
        }),
        MeterCommand::Udp(args) => args.output.repeat(&runtime, |stop| {
            let options = UdpOptions { stop: stop.clone(), ..args.options()? };
            Ok(MeterReport::Udp(runtime.block_on(meter::udp(&options))))
        }),
        MeterCommand::Rr(args) => args.output.repeat(&runtime, |stop| {
            let options = RrOptions { stop: stop.clone(), ..args.options()? };
            Ok(MeterReport::Rr(runtime.block_on(meter::request_reply(&options))))
        }),
    }
}

/// Ends the measurement at the first SIGINT or SIGTERM, so that it reports its results so far. The second
/// signal ends the process.
fn stop_on_interrupt(runtime: &Runtime) -> Stop {
    let stop = Stop::default();
    let switch = stop.clone();
    runtime.spawn(async move {
        // If no handler can be installed, a signal ends the process as usual.
        let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        let [Ok(mut interrupt), Ok(mut terminate)] = signals else { return };
        for last in [false, true] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if last {
                std::process::exit(1);
            }
            switch.stop();
        }
    });
    stop
}

impl OutputArgs {
    /// Measures and prints the requested number of times, or until interrupted or the reader is gone.
    fn repeat(
        &self,
        runtime: &Runtime,
        mut measure: impl FnMut(&Stop) -> Result<MeterReport>,
    ) -> Result<ExitCode> {
        let stop = stop_on_interrupt(runtime);
        let mut complete = true;
        for run in 1..=self.runs {
            let spinner = progress::spinner(match self.runs {
                1 => "measuring".to_owned(),
                runs => format!("run {run} of {runs}"),
            });
            let report = measure(&stop)?;
            spinner.finish_and_clear();
            complete &= report.is_complete();
            let reader = print_to_reader(&self.show(run, &report)?)?;
            // Further runs would have no reader, or are not wanted any more.
            if reader == StdoutReader::Gone || stop.is_stopped() {
                break;
            }
        }
        Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn show(&self, run: u32, report: &MeterReport) -> Result<String> {
        if self.json {
            return Ok(serde_json::to_string_pretty(report)? + "\n");
        }
        if self.csv {
            return Ok(report.csv(run));
        }
        let title = |runs| format!("run {run} of {runs}\n");
        let title = Some(self.runs).filter(|&runs| runs > 1).map(title);
        Ok(title.unwrap_or_default() + &report.to_string())
    }
}

async fn serve(args: &ServeArgs) -> Result<ExitCode> {
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    crate::print_to_stderr(format_args!("listening on {}", listener.local_addr()?));
    match meter::serve(listener).await? {}
}

impl TargetArg {
    fn resolve(&self) -> Result<SocketAddr> {
        resolve(&self.host)
    }
}

/// Parses a rate above zero.
fn some_rate(text: &str) -> Result<BitRate, String> {
    let rate: BitRate = text.parse().map_err(|error: units::ParseError| error.to_string())?;
    if rate.bits_per_second() == 0 {
        return Err("must be more than zero".to_owned());
    }
    Ok(rate)
}

/// Parses a size above zero.
fn some_bytes(text: &str) -> Result<ByteCount, String> {
    let bytes: ByteCount = text.parse().map_err(|error: units::ParseError| error.to_string())?;
    if bytes.get() == 0 {
        return Err("must be more than zero".to_owned());
    }
    Ok(bytes)
}

/// Returns a random payload key.
fn fresh_key() -> Result<u64> {
    meter::fresh_key().context("cannot get random numbers from the kernel")
}

/// Returns the first address of `host`, a name or an address with or without a port.
fn resolve(host: &str) -> Result<SocketAddr> {
    resolve_with(host, DEFAULT_PORT)
}

/// Like [`resolve`], with another default port.
fn resolve_with(host: &str, port: u16) -> Result<SocketAddr> {
    // An IPv6 address, also without brackets: its colons separate no port.
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = match host.rsplit_once(':') {
        Some(_) => host.to_socket_addrs(),
        None => (host, port).to_socket_addrs(),
    };
    let mut found = found.with_context(|| format!("cannot resolve {host:?}"))?;
    found.next().ok_or_else(|| anyhow!("{host:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_with_and_without_port() {
        let cases = [
            ("127.0.0.1", "127.0.0.1:5259"),
            ("127.0.0.1:9", "127.0.0.1:9"),
            ("::1", "[::1]:5259"),
            ("[::1]", "[::1]:5259"),
            ("[::1]:9", "[::1]:9"),
        ];
        for (host, expected) in cases {
            assert_eq!(resolve(host).unwrap().to_string(), expected, "{host}");
        }
        assert!(resolve("127.0.0.1:port").is_err());
    }
}
