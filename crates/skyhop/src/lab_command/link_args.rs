//! The options that say what a lab's link is. What a preset's key takes, the
//! option of the same name takes too.

use core::num::NonZeroU64;
use core::time::Duration;
use std::path::PathBuf;

use lab::{Discipline, Overrides, Preset, PresetError, Queue, TerrestrialOverrides};
use link::{Encapsulation, ErrorModel, GilbertElliott, Jitter, Outage};
use units::{BitRate, Probability, parse_duration};

/// The link of a new lab.
#[derive(clap::Args)]
pub(crate) struct LinkArgs {
    /// A built-in preset (see `skyhop lab presets`) or the path of your own.
    preset: String,
    #[command(flatten)]
    link: LinkOptions,
    #[command(flatten)]
    lab: LabOptions,
}

/// What a lab has from its start to its end.
#[derive(clap::Args)]
pub(super) struct LabOptions {
    /// The longest IP packet on the hop in bytes.
    #[arg(long, help_heading = "Link")]
    mtu: Option<u16>,
    /// How many terminals share the forward link, each with a client and a
    /// return link of its own.
    #[arg(long, value_name = "N", help_heading = "Link")]
    terminals: Option<u8>,
    /// Decides which packets are lost.
    #[arg(long, default_value_t = 1, help_heading = "Link")]
    seed: u64,
}

/// What can change while a lab runs.
#[derive(clap::Args, Clone)]
pub(super) struct LinkOptions {
    /// The rate of the forward link (to the terminal), such as 50Mbit/s.
    #[arg(long, help_heading = "Link")]
    rate: Option<BitRate>,
    /// The rate of the return link (to the hub).
    #[arg(long, value_name = "RATE", help_heading = "Link")]
    return_rate: Option<BitRate>,
    /// Changing rates of the forward link: "0s 50 Mbit/s" and so on, or
    /// mahimahi's format.
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    rate_trace: Option<PathBuf>,
    /// Changing rates of the return link.
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    return_rate_trace: Option<PathBuf>,
    /// What packets become on both links, at the cost of the rate: none, "fixed
    /// 18 B", "aal5", "aal5 llc", "mpe", "mpe packed", "ule", "ule npa packed",
    /// "gse", "gse 3", "gse 6".
    #[arg(long, value_name = "NAME", help_heading = "Link")]
    encapsulation: Option<Encapsulation>,
    /// The one-way delay of both links, such as 300ms.
    #[arg(long, value_parser = parse_duration, help_heading = "Link")]
    delay: Option<Duration>,
    /// Changing one-way delays of both links: "0s 20 ms" and so on.
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    delay_trace: Option<PathBuf>,
    /// An extra delay of each packet between 0 and this, on both links: 5ms, or
    /// "5ms reordering" if packets may overtake each other.
    #[arg(long, value_name = "TIME", help_heading = "Link")]
    jitter: Option<Jitter>,
    /// The packet error rate of both links, such as 1% or 0.01.
    #[arg(long, help_heading = "Link")]
    per: Option<Probability>,
    /// The bit error rate of both links, such as 1e-6.
    #[arg(long, help_heading = "Link")]
    ber: Option<Probability>,
    /// Bursts of errors on both links: none, low, medium, high, huge, or
    /// "good=10s..30s bad=60ms".
    #[arg(long, value_name = "MODEL", help_heading = "Link")]
    burst: Option<ErrorModel>,
    /// Losses of a Markov chain on both links: "good-to-bad=1% bad-to-good=20%
    /// [loss-good=0] [loss-bad=1]".
    #[arg(long, value_name = "MODEL", help_heading = "Link")]
    gilbert_elliott: Option<GilbertElliott>,
    /// Every N-th packet of each link is lost.
    #[arg(long, value_name = "N", help_heading = "Link")]
    loss_period: Option<NonZeroU64>,
    /// Changing packet error rates of both links: "0s 1 %" and so on.
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    loss_trace: Option<PathBuf>,
    /// A time from the start in which both links lose all: 60s+10s, or "15s+30ms
    /// every 15s". Several are possible.
    #[arg(long = "outage", value_name = "AT+FOR", help_heading = "Link")]
    outages: Vec<Outage>,
    /// The queue of both links: "1 BDP", "100 packets", 64kB.
    #[arg(long, value_name = "SIZE", help_heading = "Link")]
    queue: Option<Queue>,
    /// What both queues drop although there is room: drop-tail, "red [min=5]
    /// [max=15] [max-p=0.1] [weight=0.002]", "codel [target=30ms]
    /// [interval=600ms]".
    #[arg(long, value_name = "NAME", help_heading = "Link")]
    discipline: Option<Discipline>,
    /// Both disciplines mark ECN-capable packets instead of dropping them.
    #[arg(long, help_heading = "Link")]
    ecn: bool,
    /// The rate of the link between hub and server, in both directions. It is a
    /// LAN unless one of these options or the preset makes it a link.
    #[arg(long, value_name = "RATE", help_heading = "Link")]
    terrestrial_rate: Option<BitRate>,
    /// The one-way delay of the link between hub and server.
    #[arg(long, value_name = "DELAY", value_parser = parse_duration, help_heading = "Link")]
    terrestrial_delay: Option<Duration>,
    /// The packet error rate of the link between hub and server.
    #[arg(long, value_name = "PER", help_heading = "Link")]
    terrestrial_per: Option<Probability>,
    /// The queues of the link between hub and server.
    #[arg(long, value_name = "SIZE", help_heading = "Link")]
    terrestrial_queue: Option<Queue>,
}

impl LinkArgs {
    /// The preset, with what the options change.
    pub(crate) fn preset(&self) -> Result<Preset, PresetError> {
        let overrides =
            Overrides { mtu: self.lab.mtu, terminals: self.lab.terminals, ..self.link.overrides() };
        Preset::load(&self.preset)?.with(&overrides)
    }

    /// What decides which packets are lost.
    pub(crate) fn seed(&self) -> u64 {
        self.lab.seed
    }
}

impl LinkOptions {
    /// What is to be changed.
    pub(super) fn overrides(&self) -> Overrides {
        Overrides {
            rate: self.rate,
            rate_trace: self.rate_trace.clone(),
            return_rate: self.return_rate,
            return_rate_trace: self.return_rate_trace.clone(),
            encapsulation: self.encapsulation,
            delay: self.delay,
            delay_trace: self.delay_trace.clone(),
            jitter: self.jitter,
            per: self.per,
            ber: self.ber,
            burst: self.burst,
            gilbert_elliott: self.gilbert_elliott,
            loss_period: self.loss_period,
            loss_trace: self.loss_trace.clone(),
            outages: self.outages.clone(),
            queue: self.queue,
            discipline: self.discipline,
            ecn: self.ecn.then_some(true),
            mtu: None,
            terminals: None,
            terrestrial: TerrestrialOverrides {
                rate: self.terrestrial_rate,
                delay: self.terrestrial_delay,
                per: self.terrestrial_per,
                queue: self.terrestrial_queue,
            },
        }
    }
}
