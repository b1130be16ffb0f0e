//! `skyhop meter bulk`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use meter::{
    Amount, BulkOptions, BulkReport, Direction, DirectionSum, Directions, FlowReport, SenderReport,
    Window,
};
use units::{BitRate, ByteCount};

use super::text::{csv_line, outcome, rate, seconds, size, state};
use super::{Output, Target, Tcp, fresh_key, some_bytes, some_rate};

/// Arguments of `skyhop meter bulk`.
#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    pub(super) output: Output,
    /// Payload of each flow, e.g. 20MB
    #[arg(long, default_value = "10 MB", conflicts_with = "time")]
    bytes: ByteCount,
    /// Send for this long instead, e.g. 30s
    #[arg(long, value_parser = units::parse_duration)]
    time: Option<Duration>,
    /// Upload instead of download
    #[arg(long, conflicts_with = "both")]
    up: bool,
    /// Download and upload at once, with the same number of flows each way
    #[arg(long)]
    both: bool,
    /// Number of parallel flows in each direction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    flows: u32,
    /// Delay between the starts of successive flows, e.g. 500ms
    #[arg(long, value_name = "TIME", default_value = "0 s", value_parser = units::parse_duration)]
    spacing: Duration,
    /// Maximum sending rate of each flow, e.g. 2Mbit/s
    #[arg(long, value_parser = some_rate)]
    rate: Option<BitRate>,
    /// `SO_SNDBUF` of the senders [default: the kernel's autotuning]
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    send_buffer: Option<ByteCount>,
    /// `SO_RCVBUF` of the receivers [default: the kernel's autotuning]
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    receive_buffer: Option<ByteCount>,
    /// Window advertised by the receivers: 2048 to 65535 bytes, e.g. 8KiB
    #[arg(long, value_name = "BYTES", conflicts_with = "receive_buffer")]
    window: Option<Window>,
}

impl BulkArgs {
    pub(super) fn options(&self) -> Result<BulkOptions> {
        let directions = match (self.up, self.both) {
            (_, true) => Directions::Both,
            (true, false) => Directions::Upload,
            (false, false) => Directions::Download,
        };
        let amount = self.time.map_or(Amount::Bytes(self.bytes), Amount::Time);
        Ok(BulkOptions {
            directions,
            flows: self.flows,
            spacing: self.spacing,
            cap: self.rate,
            congestion_control: self.tcp.cc.clone(),
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            window: self.window,
            limit: self.tcp.limit,
            ..BulkOptions::new(self.target.resolve()?, amount, fresh_key()?)
        })
    }
}

pub(super) fn text(report: &BulkReport) -> String {
    let mut text = format!(
        "{:>4}  {:<4}  {:>9}  {:>9}  {:>9}  {:>9}  {:>10}  {:>14}  {:>7}  {:>9}  {:>9}  {}\n",
        "flow",
        "way",
        "start",
        "connect",
        "first",
        "total",
        "moved",
        "goodput",
        "retrans",
        "min RTT",
        "mean RTT",
        "outcome"
    );
    for flow in &report.flows {
        text += &flow_line(flow);
    }
    let complete = report.flows.iter().filter(|flow| flow.outcome.is_complete()).count();
    let _ = writeln!(
        text,
        "{} of {} flows complete: {} in {}, {}",
        complete,
        report.flows.len(),
        size(report.moved_bytes),
        seconds(Some(report.total)),
        rate(report.goodput),
    );
    for sum in &report.sums {
        text += &sum_line(sum, report.flows.len() / report.sums.len());
    }
    text
}

pub(super) fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Download => "down",
        Direction::Upload => "up",
    }
}

fn flow_line(flow: &FlowReport) -> String {
    let sender = flow.sender.as_ref();
    format!(
        "{:>4}  {:<4}  {:>9}  {:>9}  {:>9}  {:>9}  {:>10}  {:>14}  {:>7}  {:>9}  {:>9}  {}\n",
        flow.flow,
        way(flow.direction),
        seconds(Some(flow.start)),
        seconds(flow.connect),
        seconds(flow.first_byte),
        seconds(Some(flow.total)),
        size(flow.moved_bytes),
        rate(flow.goodput),
        sender.map_or_else(|| "-".to_owned(), |sender| sender.retransmitted_segments.to_string()),
        milliseconds(sender.and_then(|sender| sender.min_rtt)),
        milliseconds(sender.and_then(|sender| sender.mean_rtt)),
        outcome(&flow.outcome),
    )
}

fn sum_line(sum: &DirectionSum, flows: usize) -> String {
    let mut text = format!(
        "{}: {} in {}, {}, {} segments retransmitted",
        way(sum.direction),
        size(sum.moved_bytes),
        seconds(Some(sum.total)),
        rate(sum.goodput),
        sum.retransmitted_segments,
    );
    if let (Some(jain), 2..) = (sum.jain_index, flows) {
        let _ = write!(text, ", Jain's index {jain:.3}");
    }
    text + "\n"
}

pub(super) fn milliseconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3))
}

/// The columns of [`csv`].
pub(super) const CSV_HEAD: &str = "run,flow,direction,client,state,asked_bytes,moved_bytes,\
    start_seconds,connect_seconds,first_byte_seconds,total_seconds,receive_seconds,\
    goodput_bits_per_second,sent_bytes,segments,retransmitted_segments,retransmitted_bytes,\
    min_rtt_seconds,mean_rtt_seconds";

pub(super) fn csv(run: u32, report: &BulkReport) -> String {
    report.flows.iter().map(|flow| csv_flow(run, flow)).collect()
}

fn csv_flow(run: u32, flow: &FlowReport) -> String {
    let time = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string());
    let count = |of: fn(&SenderReport) -> u64| flow.sender.as_ref().map(|it| of(it).to_string());
    let sender = flow.sender.as_ref();
    csv_line(&[
        Some(run.to_string()),
        Some(flow.flow.to_string()),
        Some(way(flow.direction).to_owned()),
        flow.client.map(|client| client.to_string()),
        Some(state(&flow.outcome).to_owned()),
        flow.asked_bytes.map(|bytes| bytes.to_string()),
        Some(flow.moved_bytes.to_string()),
        time(Some(flow.start)),
        time(flow.connect),
        time(flow.first_byte),
        time(Some(flow.total)),
        time(flow.receive),
        flow.goodput.map(|goodput| goodput.bits_per_second().to_string()),
        count(|sender| sender.sent_bytes),
        count(|sender| sender.segments),
        count(|sender| sender.retransmitted_segments),
        count(|sender| sender.retransmitted_bytes),
        time(sender.and_then(|sender| sender.min_rtt)),
        time(sender.and_then(|sender| sender.mean_rtt)),
    ])
}
