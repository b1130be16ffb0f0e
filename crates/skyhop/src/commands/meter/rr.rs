//! `skyhop meter rr`: measures response times of requests.

use anyhow::{Result, bail};
use clap::Args;
use meter::{ProgressCounter, RrOptions, Stop};
use units::ByteCount;

use super::{OutputArgs, TargetArg, TcpArgs, fresh_key};

/// Arguments of `skyhop meter rr`.
#[derive(Debug, Args)]
pub(crate) struct RrArgs {
    #[command(flatten)]
    target: TargetArg,
    #[command(flatten)]
    tcp: TcpArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
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
        // Positions in a stream are 64-bit numbers.
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
            progress: ProgressCounter::default(),
            stop: Stop::default(),
        })
    }
}
