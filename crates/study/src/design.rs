//! Ranks enhancements of TCP for a link (Rec. ITU-R S.1711-1, recommends 2).
//!
//! A [`DesignQuestion`] is turned into three scenarios, a download, a page and requests, each with every
//! enhancement. [`DesignAnswer`] ranks the enhancements by their runs, and adds what follows from the
//! link alone: windows, buffers, error rates, and whether recommends 3 and 4 are met.

mod answer;

use core::time::Duration;

use config::FileError;
use scenario::Scenario;
use units::{BitRate, format_duration};

use crate::runs::ScenarioFile;

pub use answer::{DesignAnswer, RankedEnhancement};

/// Size of a full IP packet in bytes.
const MTU: u32 = 1500;
/// Time of the download at the link's rate, in seconds.
const DOWNLOAD: f64 = 20.0;
/// Time of the page at the link's rate, in seconds.
const PAGE: f64 = 4.0;
/// Number of requests, a second apart.
const REQUESTS: f64 = 20.0;
/// Number of objects of the page.
const OBJECTS: f64 = 40.0;

/// A link, and the number of terminals that use it.
#[derive(Debug, Clone, PartialEq)]
pub struct DesignQuestion {
    /// Rate of the forward link, towards the terminals.
    pub rate: BitRate,
    /// Rate of the return link; with capacity on demand, of its carrier.
    pub return_rate: BitRate,
    /// Round-trip propagation delay of the hop.
    pub rtt: Duration,
    /// Transmission errors, the same in both directions.
    pub errors: LinkErrors,
    /// Terminals that download at the same time.
    pub terminals: u32,
    /// Method by which terminals get capacity on the return link; `None` for a constant rate.
    pub on_demand: Option<OnDemand>,
    /// Number of seeds with which each case runs.
    pub seeds: u32,
}

/// The rate of transmission errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinkErrors {
    /// A bit error rate, 0 to 1.
    Ber(f64),
    /// A packet error rate, 0 to 1.
    Per(f64),
}

/// The method by which a terminal gets capacity on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDemand {
    /// By requests for a rate (RBDC).
    Rbdc,
    /// By requests for a volume (VBDC).
    Vbdc,
    /// A sixteenth of the carrier constantly (CRA), the rest by requests for a volume.
    CraVbdc,
}

/// The tasks that are measured, one scenario each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesignTask {
    /// A download by each terminal.
    Download,
    /// A page of 40 objects over six kept connections.
    Page,
    /// Twenty requests, a second apart.
    Requests,
}

/// Name of the flow in every scenario.
const FLOW: &str = "task";

impl DesignTask {
    /// All tasks, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Download, Self::Page, Self::Requests];

    /// Returns the name of the task's file, without `.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Page => "page",
            Self::Requests => "requests",
        }
    }

    /// Returns the metric by which enhancements are compared: of downloads, the time of the last.
    fn metric(self) -> &'static str {
        match self {
            Self::Download => "time-max-s",
            Self::Page | Self::Requests => "time-median-s",
        }
    }
}

/// The effect of an enhancement on connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnhancementKind {
    /// Hosts speak end to end, without gateways.
    EndToEnd,
    /// Gateways split the connections.
    Split,
    /// Gateways carry the connections' packets.
    Carried,
}

/// An enhancement: its name, its kind, and the keys that it sets in a scenario.
const ENHANCEMENTS: [(&str, EnhancementKind, &str); 7] = [
    ("none", EnhancementKind::EndToEnd, ""),
    ("BBR on the hosts", EnhancementKind::EndToEnd, "\"flow.0.tcp\" = \"bbr\""),
    ("Hybla on the hosts", EnhancementKind::EndToEnd, "\"flow.0.tcp\" = \"hybla\""),
    (
        "one gateway, BBR",
        EnhancementKind::Split,
        "\"gateways.split\" = \"two\", \"gateways.tcp\" = \"bbr\"",
    ),
    (
        "two gateways, Hybla",
        EnhancementKind::Split,
        "\"gateways.split\" = \"three\", \"gateways.tcp\" = \"hybla\"",
    ),
    (
        "skyhop pair",
        EnhancementKind::Split,
        "\"gateways.split\" = \"three\", \"gateways.hop\" = \"slacp\"",
    ),
    (
        "SLACP under IP",
        EnhancementKind::Carried,
        "\"gateways.split\" = \"packets\", \"gateways.hop\" = \"slacp\"",
    ),
];

impl DesignQuestion {
    /// Returns the text of a task's scenario file.
    pub fn scenario(&self, task: DesignTask) -> String {
        let Self { rate, return_rate, rtt, terminals, seeds, .. } = self;
        let one_way = format_duration(*rtt / 2);
        let errors = self.errors.key();
        let window = 4 * self.bandwidth_delay_product().max(64 << 10);
        // The hosts' side is assumed to be much faster than the link.
        let lan = BitRate::from_bits_per_second((10 * rate.bits_per_second()).max(100_000_000));
        let levels: String = ENHANCEMENTS
            .iter()
            .map(|(name, _, set)| format!("    {{ name = \"{name}\", set = {{ {set} }} }},\n"))
            .collect();
        format!(
            "# {name} over the link of `skyhop study design`, with each enhancement of TCP.\n\
             description = \"{name}: {rate} and {return_rate}, {rtt} of round-trip time\"\n\
             time = \"1000 s\"\nsample = \"1 s\"\n\n\
             [replications]\nseeds = {seeds}\n\n[network]\nterminals = {terminals}\n\n\
             [hop]\nmtu = {MTU}\n\n\
             [hop.forward]\nrate = \"{rate}\"\ndelay = \"{one_way}\"\nqueue = \"1 BDP\"\n{errors}\n\n\
             [hop.return]\nrate = \"{return_rate}\"\ndelay = \"{one_way}\"\nqueue = \"1 BDP\"\n{cells}{errors}\n\n{dama}\
             [server-side]\nrate = \"{lan}\"\ndelay = \"10 ms\"\nqueue = \"1000 packets\"\n\n\
             [client-side]\nrate = \"{lan}\"\ndelay = \"1 ms\"\nqueue = \"1000 packets\"\n\n\
             # Windows of four bandwidth-delay products.\n\
             [tcp.bbr]\ncontroller = \"bbr\"\nreceive-buffer = \"{window} B\"\n\n\
             [tcp.hybla]\ncontroller = \"hybla\"\nreceive-buffer = \"{window} B\"\n\n\
             [[flow]]\nname = \"{FLOW}\"\ntcp = \"default\"\n{flow}\n\
             [[factor]]\nname = \"enhancement\"\nlevels = [\n{levels}]\n",
            name = task.name(),
            rtt = format_duration(*rtt),
            // A shared return link carries cells.
            cells = self.on_demand.map_or("", |_| "encapsulation = \"aal5\"\n"),
            dama = self.on_demand.map_or(String::new(), |how| how.section(*return_rate)),
            flow = self.flow(task),
        )
    }

    /// Returns the scenarios as files to run, named `download` and so on.
    ///
    /// # Errors
    /// If the simulator cannot do what is asked for.
    pub fn files(&self) -> Result<Vec<ScenarioFile>, FileError> {
        let file = |task: DesignTask| {
            let name = format!("{}.toml", task.name());
            let Scenario { cases, replications, .. } =
                Scenario::parse(&name, &self.scenario(task))?;
            Ok(ScenarioFile { path: name.into(), cases, replications, results: Vec::new() })
        };
        DesignTask::ALL.into_iter().map(file).collect()
    }

    fn flow(&self, task: DesignTask) -> String {
        let bytes = |seconds: f64| self.rate.bits_per_second() as f64 * seconds / 8.0;
        match task {
            DesignTask::Download => {
                let each = self.each_download();
                let count = self.terminals;
                format!("kind = \"bulk\"\ncount = {count}\nbytes = \"{each} B\"\n")
            }
            DesignTask::Page => {
                let each = (bytes(PAGE) / OBJECTS).clamp(2e3, 50e3).round();
                format!(
                    "kind = \"page\"\nmethod = \"keep-alive\"\nconnections = 6\nrequest = \"400 B\"\n\
                     objects = [\"{OBJECTS} x {each} B\"]\n"
                )
            }
            DesignTask::Requests => format!(
                "kind = \"request\"\nrequest = \"400 B\"\nreply = \"4 kB\"\nthink = \"1 s\"\n\
                 repeat = {REQUESTS}\n"
            ),
        }
    }

    /// Returns the size of each terminal's download in bytes.
    fn each_download(&self) -> f64 {
        let all = self.rate.bits_per_second() as f64 * DOWNLOAD / 8.0;
        (all / f64::from(self.terminals)).clamp(20e3, 200e6).round()
    }

    /// Returns true if a task is finished, of which this many units of work are done.
    fn is_whole(&self, task: DesignTask, done: f64) -> bool {
        let wanted = match task {
            DesignTask::Download => f64::from(self.terminals),
            DesignTask::Page => 1.0,
            DesignTask::Requests => REQUESTS,
        };
        done >= wanted
    }

    /// Returns the forward link's bandwidth-delay product in bytes.
    pub fn bandwidth_delay_product(&self) -> u64 {
        (self.rate.bits_per_second() as f64 * self.rtt.as_secs_f64() / 8.0).ceil() as u64
    }
}

impl LinkErrors {
    fn key(self) -> String {
        match self {
            Self::Ber(ber) => format!("ber = \"{ber:e}\""),
            Self::Per(per) => format!("per = \"{per}\""),
        }
    }

    /// Returns the fraction of full packets that are lost in one direction.
    pub fn packets(self) -> f64 {
        match self {
            // Bit errors are independent, and one is enough to lose the packet.
            Self::Ber(ber) => 1.0 - (1.0 - ber).powi(8 * MTU as i32),
            Self::Per(per) => per,
        }
    }

    /// Returns the bit error rate; of a packet error rate, the one that causes it.
    pub fn bits(self) -> f64 {
        match self {
            Self::Ber(ber) => ber,
            Self::Per(per) => 1.0 - (1.0 - per).powf(1.0 / f64::from(8 * MTU)),
        }
    }
}

impl OnDemand {
    /// Returns the section of a scenario: frame and requests of the preset `vsat-dama-vbdc`.
    fn section(self, carrier: BitRate) -> String {
        let bits = carrier.bits_per_second();
        let (cra, rbdc, vbdc) = match self {
            Self::Rbdc => (0, bits, 0),
            Self::Vbdc => (0, 0, 4080),
            Self::CraVbdc => (bits / 16, 0, 4080),
        };
        format!(
            "[hop.dama]\nframe = \"53 ms\"\nframes-per-superframe = 2\nrequest-period = 4\n\n\
             [hop.dama.terminal]\ncra = \"{cra} bit/s\"\nrbdc = \"{rbdc} bit/s\"\nvbdc = {vbdc}\n\
             mac-buffer = \"600 cells\"\n\n"
        )
    }
}

#[cfg(test)]
mod tests;
