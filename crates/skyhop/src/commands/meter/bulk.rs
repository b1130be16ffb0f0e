//! `skyhop meter bulk`: moves bytes in one or more flows.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use meter::{BulkOptions, Directions, FlowAmount, ReceiveWindow};
use units::{BitRate, ByteCount};

use super::{OutputArgs, TargetArg, TcpArgs, fresh_key, some_bytes, some_rate};

/// Arguments of `skyhop meter bulk`.
#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    target: TargetArg,
    #[command(flatten)]
    tcp: TcpArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
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
    window: Option<ReceiveWindow>,
}

impl BulkArgs {
    pub(super) fn options(&self) -> Result<BulkOptions> {
        let directions = match (self.up, self.both) {
            (_, true) => Directions::Both,
            (true, false) => Directions::Upload,
            (false, false) => Directions::Download,
        };
        let amount = self.time.map_or(FlowAmount::Bytes(self.bytes), FlowAmount::Time);
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
