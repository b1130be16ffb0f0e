//! Options for a lab's link. An option accepts the same values as the preset key of its name.

use core::num::NonZeroU64;
use core::time::Duration;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use config::FileError;
use link::{
    DisciplineChoice, Encapsulation, ErrorModel, GilbertElliott, Jitter, Outage, Policer, QueueSize,
};
use scenario::{OrNone, Preset, PresetOverrides, TerrestrialOverrides};
use units::{BitRate, ErrorRate, Probability, parse_duration};

/// Link of a new lab.
#[derive(clap::Args)]
pub(crate) struct LinkArgs {
    /// Built-in preset (see `skyhop lab presets`) or path of your own
    #[arg(value_parser = PresetName, hide_possible_values = true)]
    preset: String,
    #[command(flatten)]
    link: LinkOptions,
    #[command(flatten)]
    lab: LabOptions,
}

/// The value parser of a preset's name or path, which lets shells complete the built-in names.
#[derive(Clone)]
struct PresetName;

impl TypedValueParser for PresetName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Preset::built_in_names().map(PossibleValue::new)))
    }
}

/// Settings fixed for a lab's lifetime.
#[derive(clap::Args)]
pub(super) struct LabOptions {
    /// Maximum IP packet size on the hop, in bytes
    #[arg(long, help_heading = "Link")]
    mtu: Option<u16>,
    /// Number of terminals that share the forward link, each with its own client and return link
    #[arg(long, value_name = "N", help_heading = "Link")]
    terminals: Option<u8>,
    /// Seed of the random losses
    #[arg(long, default_value_t = 1, help_heading = "Link")]
    seed: u64,
}

/// Settings that can change while a lab runs.
#[derive(clap::Args, Clone)]
pub(super) struct LinkOptions {
    /// Rate of the forward link (to the terminal), such as 50Mbit/s
    #[arg(long, help_heading = "Link")]
    rate: Option<BitRate>,
    /// Rate of the return link (to the hub)
    #[arg(long, value_name = "RATE", help_heading = "Link")]
    return_rate: Option<BitRate>,
    /// Rate trace of the forward link: lines such as "0s 50 Mbit/s", or mahimahi's format
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    rate_trace: Option<PathBuf>,
    /// Rate trace of the return link
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    return_rate_trace: Option<PathBuf>,
    /// Encapsulation on both links, whose overhead is charged to the rate: none, "fixed 18 B",
    /// "code 1/2", "aal5", "aal5 llc", "mpe", "mpe packed", "ule", "ule npa packed", "gse", "gse 3",
    /// "gse 6"
    #[arg(long, value_name = "NAME", help_heading = "Link")]
    encapsulation: Option<Encapsulation>,
    /// One-way delay of both links, such as 300ms
    #[arg(long, value_parser = parse_duration, help_heading = "Link")]
    delay: Option<Duration>,
    /// Delay trace of both links: lines such as "0s 20 ms"
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    delay_trace: Option<PathBuf>,
    /// Jitter: a random extra delay per packet, up to this, on both links: 5ms, or "5ms reordering"
    /// if packets may overtake each other
    #[arg(long, value_name = "TIME", help_heading = "Link")]
    jitter: Option<Jitter>,
    /// Packet error rate of both links, such as 1% or 0.01
    #[arg(long, help_heading = "Link")]
    per: Option<ErrorRate>,
    /// Bit error rate of both links, such as 1e-6
    #[arg(long, help_heading = "Link")]
    ber: Option<ErrorRate>,
    /// Error bursts on both links: none, low, medium, high, huge, or "good=10s..30s bad=60ms"
    #[arg(long, value_name = "MODEL", help_heading = "Link")]
    burst: Option<ErrorModel>,
    /// Gilbert–Elliott losses on both links: "good-to-bad=1% bad-to-good=20% [loss-good=0]
    /// [loss-bad=1]"
    #[arg(long, value_name = "MODEL", help_heading = "Link")]
    gilbert_elliott: Option<GilbertElliott>,
    /// Drop every N-th packet of each link
    #[arg(long, value_name = "N", help_heading = "Link")]
    loss_period: Option<NonZeroU64>,
    /// Trace of packet error rates for both links: lines such as "0s 1 %"
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    loss_trace: Option<PathBuf>,
    /// Outage of both links, counted from the start: 60s+10s, "15s+30ms every 15s", or none; may be
    /// repeated
    #[arg(long = "outage", value_name = "AT+FOR", help_heading = "Link")]
    outages: Vec<OrNone<Outage>>,
    /// Drop what exceeds a rate on the forward link before it can queue: "30 Mbit/s burst 15 kB", or
    /// none
    #[arg(long, value_name = "POLICER", help_heading = "Link")]
    policer: Option<OrNone<Policer>>,
    /// The same on the return link
    #[arg(long, value_name = "POLICER", help_heading = "Link")]
    return_policer: Option<OrNone<Policer>>,
    /// Queue size of both links: "1 BDP", "100 packets", 64kB
    #[arg(long, value_name = "SIZE", help_heading = "Link")]
    queue: Option<QueueSize>,
    /// Queue discipline of both links: drop-tail, drop-head, "red [min=5] [max=15] [max-p=0.1]
    /// [weight=0.002]", "codel [target=30ms] [interval=600ms]"
    #[arg(long, value_name = "NAME", help_heading = "Link")]
    discipline: Option<DisciplineChoice>,
    /// Let RED or CoDel mark ECN-capable packets instead of dropping them
    #[arg(long, help_heading = "Link")]
    ecn: bool,
    /// Rate of the link between hub and server, both directions; a LAN unless the preset or one of
    /// these options makes it a link
    #[arg(long, value_name = "RATE", help_heading = "Link")]
    terrestrial_rate: Option<BitRate>,
    /// One-way delay of the link between hub and server
    #[arg(long, value_name = "DELAY", value_parser = parse_duration, help_heading = "Link")]
    terrestrial_delay: Option<Duration>,
    /// Packet error rate of the link between hub and server
    #[arg(long, value_name = "PER", help_heading = "Link")]
    terrestrial_per: Option<ErrorRate>,
    /// Queue size of the link between hub and server
    #[arg(long, value_name = "SIZE", help_heading = "Link")]
    terrestrial_queue: Option<QueueSize>,
}

impl LinkArgs {
    /// Returns the preset with the options applied.
    pub(crate) fn preset(&self) -> Result<Preset, FileError> {
        let overrides = PresetOverrides {
            mtu: self.lab.mtu,
            terminals: self.lab.terminals,
            ..self.link.overrides()
        };
        Preset::load(&self.preset)?.with(&overrides)
    }

    /// Returns the seed of the random losses.
    pub(crate) fn seed(&self) -> u64 {
        self.lab.seed
    }
}

impl LinkOptions {
    /// Returns the changes to apply to the preset.
    pub(super) fn overrides(&self) -> PresetOverrides {
        let outages = || self.outages.iter().filter_map(|OrNone(outage)| *outage).collect();
        PresetOverrides {
            rate: self.rate,
            rate_trace: self.rate_trace.clone(),
            return_rate: self.return_rate,
            return_rate_trace: self.return_rate_trace.clone(),
            encapsulation: self.encapsulation,
            delay: self.delay,
            delay_trace: self.delay_trace.clone(),
            jitter: self.jitter,
            per: self.per.map(Probability::from),
            ber: self.ber.map(Probability::from),
            burst: self.burst,
            gilbert_elliott: self.gilbert_elliott,
            loss_period: self.loss_period,
            loss_trace: self.loss_trace.clone(),
            outages: (!self.outages.is_empty()).then(outages),
            policer: self.policer,
            return_policer: self.return_policer,
            queue: self.queue,
            discipline: self.discipline,
            ecn: self.ecn.then_some(true),
            mtu: None,
            terminals: None,
            terrestrial: TerrestrialOverrides {
                rate: self.terrestrial_rate,
                delay: self.terrestrial_delay,
                per: self.terrestrial_per.map(Probability::from),
                queue: self.terrestrial_queue,
            },
        }
    }
}
