//! The status of a persistent lab.

use core::fmt;
use core::time::Duration;

use link::{Delay, ErrorModel, LossModel, Rate, Tally};
use scenario::Preset;
use serde::{Deserialize, Serialize};
use units::format_duration;

use crate::preset::PresetLinks as _;
use crate::{Faults, Lab, Lateness, LinkGauge};

/// The status of a lab at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LabStatus {
    /// Name under which commands find the lab.
    pub name: String,
    /// The name of its preset.
    pub preset: String,
    /// The one-line description of its preset.
    pub description: String,
    /// Seed that determines which packets are lost.
    pub seed: u64,
    /// Seconds since the lab was ready.
    pub uptime_s: f64,
    /// Set if the gateway pair runs in it.
    pub gateways: bool,
    /// MTU of the hop in bytes.
    pub mtu: u16,
    /// The hosts, with their addresses.
    pub hosts: Vec<HostStatus>,
    /// The links, one for each direction.
    pub links: Vec<LinkStatus>,
    /// Packets lost other than on the links.
    pub faults: FaultsStatus,
    /// Lateness of the packets that left the links.
    pub lateness: LatenessStatus,
}

/// A host of the lab and its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostStatus {
    /// Name of the host, as in `/etc/hosts`.
    pub name: String,
    /// IPv4 address of the host.
    pub ipv4: String,
    /// IPv6 address of the host.
    pub ipv6: String,
}

/// One direction of a link: its settings as text with units, and its counters since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkStatus {
    /// `forward`, `return`, `return 2`, `terrestrial forward`, …
    pub link: String,
    /// Rate, or its range if it changes.
    pub rate: String,
    /// One-way delay, or its maximum if it changes.
    pub delay: String,
    /// Model of the losses, and its parameters.
    pub loss: String,
    /// The size of the queue.
    pub queue: String,
    /// The policer before the queue, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<String>,
    /// Packets passed to the link.
    pub offered: TallyStatus,
    /// Packets dropped by the full queue, its discipline or the policer.
    pub dropped: TallyStatus,
    /// Packets lost on the link.
    pub lost: TallyStatus,
    /// Packets delivered at the far end.
    pub delivered: TallyStatus,
    /// Packets in the queue, being serialised, or in flight.
    pub inside: TallyStatus,
    /// The part of these in the queue.
    pub queued: TallyStatus,
}

/// A number of packets and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TallyStatus {
    /// Number of packets, whatever their length.
    pub packets: u64,
    /// Bytes of these packets, with their IP headers.
    pub bytes: u64,
}

/// Numbers of packets lost other than on a link, as in [`Faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FaultsStatus {
    /// Packets that arrived faster than the driver could take them.
    pub missed: u64,
    /// Packets longer than the MTU.
    pub oversized: u64,
    /// Packets that the kernel refused.
    pub refused: u64,
    /// Packets whose address belongs to no terminal.
    pub astray: u64,
}

/// Lateness of the driver, from [`Lateness`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LatenessStatus {
    /// Number of packets that the figures are of.
    pub packets: u64,
    /// Median lateness of a packet, in milliseconds.
    pub median_ms: f64,
    /// 99th percentile of the lateness in milliseconds.
    pub p99_ms: f64,
    /// Maximum lateness of a packet, in milliseconds.
    pub worst_ms: f64,
}

/// The status as lines of text.
impl fmt::Display for LabStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, preset, description, seed, uptime_s, .. } = self;
        let gateways = if self.gateways { ", gateway pair" } else { "" };
        writeln!(f, "{name}: {preset} ({description}), seed {seed}{gateways}, up {uptime_s:.0} s")?;
        let hosts = self.hosts.iter().map(|host| format!("{} {}", host.name, host.ipv4));
        writeln!(f, "  hosts   {}", hosts.collect::<Vec<_>>().join(", "))?;
        self.links.iter().try_for_each(|link| write!(f, "{link}"))?;
        let FaultsStatus { missed, oversized, refused, astray } = self.faults;
        let faults = missed + oversized + refused + astray;
        let LatenessStatus { p99_ms, worst_ms, .. } = self.lateness;
        writeln!(
            f,
            "  driver  {p99_ms:.2} ms late (p99), {worst_ms:.2} ms at worst; {faults} packets lost \
             outside the links"
        )
    }
}

/// Two lines: settings and counters.
impl fmt::Display for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, rate, delay, loss, queue, .. } = self;
        let policer =
            self.policer.as_ref().map(|policer| format!(", policer {policer}")).unwrap_or_default();
        writeln!(f, "  {link:<20} {rate}, {delay}, loss {loss}, queue {queue}{policer}")?;
        let counters = [&self.delivered, &self.lost, &self.dropped, &self.queued];
        let [delivered, lost, dropped, waiting] = counters.map(|tally| tally.packets);
        writeln!(
            f,
            "  {:<20} {delivered} packets delivered, {lost} lost, {dropped} dropped, {waiting} \
             waiting",
            ""
        )
    }
}

/// The parts of the status that the lab itself does not know.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusContext<'a> {
    pub(super) name: &'a str,
    pub(super) seed: u64,
    pub(super) gateways: bool,
    pub(super) uptime: Duration,
}

impl LabStatus {
    pub(super) fn of(lab: &Lab, facts: &StatusContext<'_>) -> Self {
        let preset = lab.preset();
        let host = |node: crate::Node| HostStatus {
            name: node.to_string(),
            ipv4: node.address4().to_string(),
            ipv6: node.address6().to_string(),
        };
        Self {
            name: facts.name.to_owned(),
            preset: preset.name.clone(),
            description: preset.description.clone(),
            seed: facts.seed,
            uptime_s: facts.uptime.as_secs_f64(),
            gateways: facts.gateways,
            mtu: preset.mtu,
            hosts: lab.nodes().map(host).collect(),
            links: lab.gauges().read().iter().map(|gauge| link_status(preset, gauge)).collect(),
            faults: faults_status(lab.faults()),
            lateness: lateness_status(&lab.lateness()),
        }
    }
}

fn link_status(preset: &Preset, gauge: &LinkGauge) -> LinkStatus {
    let direction = preset.spec(gauge.link);
    let counters = &gauge.counters;
    LinkStatus {
        link: gauge.link.to_string(),
        rate: describe_rate(direction.rate.over_time()),
        delay: describe_delay(&direction.delay),
        loss: describe_loss(&direction.loss),
        queue: direction.queue.to_string(),
        policer: direction.policer.map(|policer| policer.to_string()),
        offered: tally(counters.offered),
        dropped: tally(counters.dropped_queue),
        lost: tally(counters.lost),
        delivered: tally(counters.delivered),
        inside: tally(counters.inside),
        queued: tally(gauge.queued),
    }
}

fn describe_rate(rate: &Rate) -> String {
    match rate {
        Rate::Constant(rate) => rate.to_string(),
        changing => format!("{} to {}", changing.least(), changing.greatest()),
    }
}

fn describe_delay(delay: &Delay) -> String {
    match delay {
        Delay::Constant(delay) => format_duration(*delay),
        changing => format!("at most {}", format_duration(changing.greatest())),
    }
}

fn describe_loss(loss: &LossModel) -> String {
    match loss {
        LossModel::None => "none".to_owned(),
        LossModel::Per(per) => format!("PER {per}"),
        LossModel::Ber(ber) => format!("BER {ber}"),
        LossModel::Burst(burst) => format!("bursts: {}", ErrorModel::from(*burst)),
        LossModel::GilbertElliott(model) => format!("Gilbert–Elliott: {model}"),
        LossModel::Periodic(period) => format!("one packet in {period}"),
        _ => "trace".to_owned(),
    }
}

fn tally(tally: Tally) -> TallyStatus {
    TallyStatus { packets: tally.packets, bytes: tally.bytes.get() }
}

fn faults_status(faults: Faults) -> FaultsStatus {
    let Faults { missed, oversized, refused, astray } = faults;
    FaultsStatus { missed, oversized, refused, astray }
}

fn lateness_status(lateness: &Lateness) -> LatenessStatus {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    LatenessStatus {
        packets: lateness.packets(),
        median_ms: ms(lateness.quantile(0.5)),
        p99_ms: ms(lateness.quantile(0.99)),
        worst_ms: ms(lateness.worst()),
    }
}

#[cfg(test)]
mod tests;
