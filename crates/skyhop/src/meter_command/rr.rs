//! `skyhop meter rr`.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use clap::Args;
use meter::{Progress, RrOptions, RrReport};
use units::ByteCount;

use super::text::{csv_line, outcome, seconds};
use super::{Output, Target, Tcp, fresh_key};

/// Arguments of `skyhop meter rr`.
#[derive(Debug, Args)]
pub(crate) struct RrArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    pub(super) output: Output,
    /// Number of parallel connections
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Total number of requests
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Payload of a request
    #[arg(long, default_value = "1 kB")]
    request: ByteCount,
    /// Payload of a reply
    #[arg(long, default_value = "10 kB")]
    reply: ByteCount,
}

impl RrArgs {
    pub(super) fn options(&self) -> Result<RrOptions> {
        let largest = self.request.max(self.reply).get();
        if largest.checked_mul(self.count.into()).is_none() {
            bail!("{} times {largest} bytes is more than 2^64", self.count);
        }
        Ok(RrOptions {
            server: self.target.resolve()?,
            connections: self.connections,
            count: self.count,
            request: self.request,
            reply: self.reply,
            congestion_control: self.tcp.cc.clone(),
            limit: self.tcp.limit,
            key: fresh_key()?,
            progress: Progress::default(),
        })
    }
}

pub(super) fn text(report: &RrReport) -> String {
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

/// The columns of [`csv`].
pub(super) const CSV_HEAD: &str = "run,connection,index,seconds";

/// One CSV line per answered request.
pub(super) fn csv(run: u32, report: &RrReport) -> String {
    let responses = report.connections.iter().flat_map(|connection| &connection.responses);
    let line = |response: &meter::rr::Response| {
        csv_line(&[
            Some(run.to_string()),
            Some(response.connection.to_string()),
            Some(response.index.to_string()),
            Some(response.time.as_secs_f64().to_string()),
        ])
    };
    responses.map(line).collect()
}
