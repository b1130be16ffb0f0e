//! `skyhop meter udp`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use meter::udp::UdpFlow;
use meter::{DATAGRAMS_MAX, Directions, UdpOptions, UdpPlan, UdpReport};
use units::BitRate;

use super::bulk::{milliseconds, way};
use super::text::{csv_line, outcome, rate};
use super::{Output, Target, fresh_key, some_rate};

/// Time allowed beyond sending: greeting, last datagrams in flight, closing.
const MARGIN: Duration = Duration::from_secs(60);

/// Arguments of `skyhop meter udp`.
#[derive(Debug, Args)]
pub(crate) struct UdpArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    pub(super) output: Output,
    /// UDP payload rate, without UDP and IP headers
    #[arg(long, default_value = "1 Mbit/s", value_parser = some_rate)]
    rate: BitRate,
    /// Payload of each datagram, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1200, value_parser = clap::value_parser!(u16).range(20..=65_000))]
    length: u16,
    /// Duration, e.g. 30s
    #[arg(long, default_value = "10 s", value_parser = units::parse_duration)]
    time: Duration,
    /// Upload instead of download
    #[arg(long, conflicts_with = "both")]
    up: bool,
    /// Download and upload at once
    #[arg(long)]
    both: bool,
}

impl UdpArgs {
    pub(super) fn options(&self) -> Result<UdpOptions> {
        let directions = match (self.up, self.both) {
            (_, true) => Directions::Both,
            (true, false) => Directions::Upload,
            (false, false) => Directions::Download,
        };
        let plan = UdpPlan { rate: self.rate, length: self.length, time: self.time, directions };
        if plan.datagrams() > DATAGRAMS_MAX {
            bail!("{} datagrams are more than {DATAGRAMS_MAX}", plan.datagrams());
        }
        let limit = self.time.saturating_add(MARGIN);
        Ok(UdpOptions { server: self.target.resolve()?, plan, limit, key: fresh_key()? })
    }
}

pub(super) fn text(report: &UdpReport) -> String {
    let mut text = format!(
        "{:<4}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}  {:>10}  {:>7}  {:>9}  {:>14}\n",
        "way",
        "sent",
        "received",
        "lost",
        "loss",
        "reordered",
        "duplicates",
        "corrupt",
        "jitter",
        "goodput"
    );
    for flow in &report.flows {
        let counts = &flow.counts;
        let _ = writeln!(
            text,
            "{:<4}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}  {:>10}  {:>7}  {:>9}  {:>14}",
            way(flow.direction),
            flow.sent,
            counts.received,
            flow.lost,
            loss(flow),
            counts.reordered,
            counts.duplicates,
            counts.corrupt,
            milliseconds(Some(counts.jitter)),
            rate(flow.goodput),
        );
    }
    text + &outcome(&report.outcome) + "\n"
}

fn loss(flow: &UdpFlow) -> String {
    match flow.sent {
        0 => "-".to_owned(),
        sent => format!("{:.3} %", flow.lost as f64 / sent as f64 * 100.0),
    }
}

/// The columns of [`csv`].
pub(super) const CSV_HEAD: &str = "run,direction,sent,received,lost,reordered,duplicates,corrupt,\
    jitter_seconds,span_seconds,goodput_bits_per_second";

/// One CSV line per direction.
pub(super) fn csv(run: u32, report: &UdpReport) -> String {
    let line = |flow: &UdpFlow| {
        csv_line(&[
            Some(run.to_string()),
            Some(way(flow.direction).to_owned()),
            Some(flow.sent.to_string()),
            Some(flow.counts.received.to_string()),
            Some(flow.lost.to_string()),
            Some(flow.counts.reordered.to_string()),
            Some(flow.counts.duplicates.to_string()),
            Some(flow.counts.corrupt.to_string()),
            Some(flow.counts.jitter.as_secs_f64().to_string()),
            Some(flow.counts.span.as_secs_f64().to_string()),
            flow.goodput.map(|goodput| goodput.bits_per_second().to_string()),
        ])
    };
    report.flows.iter().map(line).collect()
}
