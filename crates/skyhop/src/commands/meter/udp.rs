//! `skyhop meter udp`: sends datagrams at a constant rate.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use meter::{DATAGRAMS_MAX, Directions, Stop, UdpOptions, UdpPlan};
use units::BitRate;

use super::{OutputArgs, TargetArg, fresh_key, some_rate};

/// Time allowed in addition to sending, for greeting, last datagrams in flight and closing.
const MARGIN: Duration = Duration::from_secs(60);

/// Arguments of `skyhop meter udp`.
#[derive(Debug, Args)]
pub(crate) struct UdpArgs {
    #[command(flatten)]
    target: TargetArg,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// UDP payload rate, without UDP and IP headers
    #[arg(long, default_value = "1 Mbit/s", value_parser = some_rate)]
    rate: BitRate,
    /// Payload of each datagram, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1200, value_parser = clap::value_parser!(u16).range(20..=65_000))]
    length: u16,
    /// Duration, e.g. 30s
    #[arg(long, default_value = "10 s", value_parser = units::parse_duration)]
    time: Duration,
    /// Code point (DSCP) of the datagrams that this end sends, 0 to 63, e.g. 46 for EF
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=63))]
    dscp: u8,
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
        // The server refuses more.
        if plan.datagrams() > DATAGRAMS_MAX {
            bail!("{} datagrams are more than {DATAGRAMS_MAX}", plan.datagrams());
        }
        let limit = self.time.saturating_add(MARGIN);
        let server = self.target.resolve()?;
        let dscp = self.dscp;
        Ok(UdpOptions { server, plan, dscp, limit, key: fresh_key()?, stop: Stop::default() })
    }
}
