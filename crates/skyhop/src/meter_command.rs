//! `skyhop meter`: traffic that is verified byte by byte.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use meter::{
    BulkOptions, BulkReport, CongestionControl, DEFAULT_PORT, Direction, FlowReport, Outcome,
    Progress, RrOptions, RrReport,
};
use serde::Serialize;
use units::{BitRate, ByteCount};

/// What `skyhop meter` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum MeterCommand {
    /// Be the other end: serve until interrupted.
    Serve(ServeArgs),
    /// Download (or upload) a number of bytes in one or many flows.
    Bulk(BulkArgs),
    /// Measure response times of requests and replies.
    Rr(RrArgs),
}

/// Arguments of `skyhop meter serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; the IPv6 wildcard takes IPv4 too.
    #[arg(long, default_value = "[::]:5201")]
    listen: SocketAddr,
}

/// Where to, and for how long.
#[derive(Debug, Args)]
struct Target {
    /// The meter server: a name or an address, with or without `:PORT`.
    host: String,
    /// The kernel's congestion control at the sender, e.g. cubic.
    #[arg(long, value_name = "NAME")]
    cc: Option<CongestionControl>,
    /// How long a flow may take, e.g. 20s.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    limit: Option<Duration>,
    /// Print the whole report as JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `skyhop meter bulk`.
#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    target: Target,
    /// Payload of each flow, e.g. 20MB.
    #[arg(long, default_value = "10 MB")]
    bytes: ByteCount,
    /// Upload instead of download.
    #[arg(long)]
    up: bool,
    /// How many flows, side by side.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    flows: u32,
}

/// Arguments of `skyhop meter rr`.
#[derive(Debug, Args)]
pub(crate) struct RrArgs {
    #[command(flatten)]
    target: Target,
    /// How many connections, side by side.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// How many requests in all.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Payload of a request.
    #[arg(long, default_value = "1 kB")]
    request: ByteCount,
    /// Payload of a reply.
    #[arg(long, default_value = "10 kB")]
    reply: ByteCount,
}

/// Runs it. The exit code is 1 if anything did not complete.
pub(crate) fn run(command: MeterCommand) -> Result<ExitCode> {
    crate::start_log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    match command {
        MeterCommand::Serve(args) => runtime.block_on(serve(&args)),
        MeterCommand::Bulk(args) => {
            let options = args.options()?;
            let report = runtime.block_on(meter::bulk(&options));
            finish(args.target.json, &report, bulk_text(&report), report.is_complete())
        }
        MeterCommand::Rr(args) => {
            let options = args.options()?;
            let report = runtime.block_on(meter::request_reply(&options));
            finish(args.target.json, &report, rr_text(&report), report.is_complete())
        }
    }
}

async fn serve(args: &ServeArgs) -> Result<ExitCode> {
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    eprintln!("listening on {}", listener.local_addr()?);
    match meter::serve(listener).await? {}
}

fn finish(json: bool, report: &impl Serialize, text: String, complete: bool) -> Result<ExitCode> {
    let text = if json { serde_json::to_string_pretty(report)? + "\n" } else { text };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the report")?;
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl BulkArgs {
    fn options(&self) -> Result<BulkOptions> {
        Ok(BulkOptions {
            server: resolve(&self.target.host)?,
            direction: if self.up { Direction::Upload } else { Direction::Download },
            bytes: self.bytes,
            flows: self.flows,
            congestion_control: self.target.cc.clone(),
            limit: self.target.limit,
            key: fresh_key()?,
            progress: Progress::default(),
        })
    }
}

impl RrArgs {
    fn options(&self) -> Result<RrOptions> {
        let largest = self.request.max(self.reply).get();
        if largest.checked_mul(self.count.into()).is_none() {
            bail!("{} times {largest} bytes is more than 2^64", self.count);
        }
        Ok(RrOptions {
            server: resolve(&self.target.host)?,
            connections: self.connections,
            count: self.count,
            request: self.request,
            reply: self.reply,
            congestion_control: self.target.cc.clone(),
            limit: self.target.limit,
            key: fresh_key()?,
            progress: Progress::default(),
        })
    }
}

/// A payload key that no run before this one had.
pub(crate) fn fresh_key() -> Result<u64> {
    getrandom::u64().map_err(|error| anyhow!("no randomness from the kernel: {error}"))
}

/// The first address of `host`, which may be a name or an address, with or
/// without a port.
fn resolve(host: &str) -> Result<SocketAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT));
    }
    let found = match host.rsplit_once(':') {
        Some(_) => host.to_socket_addrs(),
        None => (host, DEFAULT_PORT).to_socket_addrs(),
    };
    let mut found = found.with_context(|| format!("cannot resolve {host:?}"))?;
    found.next().ok_or_else(|| anyhow!("{host:?} has no address"))
}

fn bulk_text(report: &BulkReport) -> String {
    let mut text = format!(
        "{:>4}  {:>9}  {:>9}  {:>9}  {:>10}  {:>14}  {}\n",
        "flow", "connect", "first", "total", "moved", "goodput", "outcome"
    );
    for flow in &report.flows {
        text += &flow_line(flow);
    }
    let complete = report.flows.iter().filter(|flow| flow.outcome.is_complete()).count();
    let _ = write!(
        text,
        "{} of {} flows complete: {} in {}, {}",
        complete,
        report.flows.len(),
        size(report.moved_bytes),
        seconds(Some(report.total)),
        rate(report.goodput),
    );
    if let (Some(jain), 2..) = (report.jain_index, report.flows.len()) {
        let _ = write!(text, ", Jain's index {jain:.3}");
    }
    text + "\n"
}

fn flow_line(flow: &FlowReport) -> String {
    format!(
        "{:>4}  {:>9}  {:>9}  {:>9}  {:>10}  {:>14}  {}\n",
        flow.flow,
        seconds(flow.connect),
        seconds(flow.first_byte),
        seconds(Some(flow.total)),
        size(flow.moved_bytes),
        rate(flow.goodput),
        outcome(&flow.outcome),
    )
}

fn rr_text(report: &RrReport) -> String {
    let mut text = format!(
        "{:>4}  {:>9}  {:>9}  {:>9}  {}\n",
        "conn", "connect", "total", "answered", "outcome"
    );
    for connection in &report.connections {
        let _ = writeln!(
            text,
            "{:>4}  {:>9}  {:>9}  {:>9}  {}",
            connection.connection,
            seconds(connection.connect),
            seconds(Some(connection.total)),
            format!("{}/{}", connection.responses.len(), connection.asked),
            outcome(&connection.outcome),
        );
    }
    let total = seconds(Some(report.total));
    let _ =
        write!(text, "{} of {} requests answered in {total}", report.answered(), report.asked());
    if let Some(times) = report.response_seconds {
        let _ = write!(
            text,
            "; response time: median {:.3} s, mean {:.3} s, p99 {:.3} s, min {:.3} s, max {:.3} s",
            times.median, times.mean, times.p99, times.min, times.max
        );
    }
    text + "\n"
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.3} s", time.as_secs_f64()))
}

fn rate(rate: Option<BitRate>) -> String {
    let mbit = |rate: BitRate| format!("{:.2} Mbit/s", rate.bits_per_second() as f64 / 1e6);
    rate.map_or_else(|| "-".to_owned(), mbit)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.2} kB", bytes as f64 / 1e3),
        _ => format!("{:.2} MB", bytes as f64 / 1e6),
    }
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Complete => "complete, verified".to_owned(),
        Outcome::Unfinished => "unfinished at the time limit".to_owned(),
        Outcome::Truncated => "truncated".to_owned(),
        Outcome::Corrupt { offset } => format!("corrupt from byte {offset}"),
        Outcome::Failed { error } => format!("failed: {error}"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_with_and_without_port() {
        let cases = [
            ("127.0.0.1", "127.0.0.1:5201"),
            ("127.0.0.1:9", "127.0.0.1:9"),
            ("::1", "[::1]:5201"),
            ("[::1]", "[::1]:5201"),
            ("[::1]:9", "[::1]:9"),
        ];
        for (host, expected) in cases {
            assert_eq!(resolve(host).unwrap().to_string(), expected, "{host}");
        }
        assert!(resolve("127.0.0.1:port").is_err());
    }
}
