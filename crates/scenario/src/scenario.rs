//! Scenarios: files that describe networks and the traffic on them (`docs/sim.md`).

mod cache;
mod cases;
mod flow;
mod gateways;
mod names;
mod network;
mod raw;
mod study;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ::tcp::Config;
use link::LinkConfig;
use units::{BitRate, format_duration};

use crate::built_in::TRACES;
use crate::link_spec::raw::RawLink;
use crate::preset::check_mtu;
use crate::{DamaSpec, LinkSpec, Preset};
use config::file::document::TomlDocument;
use config::file::folder::BaseFolder;
use config::file::place::{KeyContext, quoted};
use config::file::text::{Text, Time};
use config::{FileError, FileKind};

pub use self::names::{NameAnswer, NamesSpec};
pub use cache::CacheSpec;
use cases::CaseDesign;
pub use cases::FactorLevel;
use config::file::tcp_options::{self, TcpOptions};
pub use flow::{
    Direction, FetchMethod, FlowContents, FlowSize, FlowTraffic, IpVersion, ReplySizes,
    ScenarioFlow,
};
pub use gateways::{CompressionSpec, GatewaysSpec, Overhead, SplitMode};
pub use network::NetworkSpec;
pub(crate) use raw::RawScenario;
use raw::{RawHop, RawNextHop};
use study::StudySettings;
pub use study::{BackEnd, METRICS, MetricName, Replications, Statistic, StopRule};

/// A parsed scenario file with one or more cases.
#[derive(Debug)]
pub struct Scenario {
    /// The cases in the order of the file: the combinations of factors, then the single cases.
    pub cases: Vec<ScenarioCase>,
    /// Where the file is run, each once; by default in the simulator and in the lab.
    pub back_ends: Vec<BackEnd>,
    /// Seeds with which each case is run; by default once, with seed 1.
    pub replications: Replications,
    /// The metrics of interest; all if empty.
    pub results: Vec<MetricName>,
}

/// A network and the traffic on it.
#[derive(Debug)]
pub struct ScenarioCase {
    /// Name of the case; empty if the file has no cases.
    pub name: String,
    /// Level of each factor, in the order of the file; empty if the case is not a combination.
    pub levels: Vec<FactorLevel>,
    /// The description from the file.
    pub description: String,
    /// Maximum simulated time; the run ends earlier if every application is done.
    pub time: Duration,
    /// Sampling interval for plots.
    pub sample: Duration,
    /// Numbers of nodes.
    pub network: NetworkSpec,
    /// The first satellite hop.
    pub hop: SatelliteHop,
    /// Further hops in series, from the hub towards the servers: forward and return link of each.
    pub next_hops: Vec<[LinkSpec; 2]>,
    /// Between hub and servers, in both directions. `None`: the hub is the server.
    pub server_side: Option<LinkSpec>,
    /// Between terminals and clients, in both directions. `None`: terminals are the clients.
    pub client_side: Option<LinkSpec>,
    /// At each hub, before the forward link, for the packets to each terminal.
    pub shaper: Option<LinkSpec>,
    /// TCP endpoints by name.
    pub tcp: BTreeMap<String, Arc<Config>>,
    /// Gateways, if there are any.
    pub gateways: Option<GatewaysSpec>,
    /// A cache at each hub, in front of its servers, if there are caches.
    pub cache: Option<CacheSpec>,
    /// Resolvers at terminals. `None`: clients know all addresses.
    pub names: Option<NamesSpec>,
    /// Groups of identical applications.
    pub flows: Vec<ScenarioFlow>,
}

/// The satellite hop of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct SatelliteHop {
    /// Forward link, hub → terminal.
    pub forward: LinkSpec,
    /// Return link, terminal → hub.
    pub ret: LinkSpec,
    /// Longest IP packet in bytes, to which sizes in BDPs refer.
    pub mtu: u16,
    /// Capacity on demand on the return link.
    pub dama: Option<DamaSpec>,
}

/// The links of a case, with all sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseLinks {
    /// Forward link, hub → terminal.
    pub forward: LinkConfig,
    /// Return links, terminal → hub: one for all, or those of [`NetworkSpec::carrier_rates`].
    pub returns: Vec<LinkConfig>,
    /// Forward and return link of each further hop.
    pub next_hops: Vec<[LinkConfig; 2]>,
    /// Between hub and servers, in both directions.
    pub server_side: Option<LinkConfig>,
    /// Between terminals and clients, in both directions.
    pub client_side: Option<LinkConfig>,
    /// At each hub, before the forward link, for the packets to each terminal.
    pub shaper: Option<LinkConfig>,
}

/// MTU of links for which the file does not set one: that of Ethernet.
const MTU: u16 = 1500;
const LEAST_SAMPLE: Duration = Duration::from_micros(100);

impl Scenario {
    /// Reads the file at `path`. Paths in it are relative to its directory.
    ///
    /// # Errors
    /// If it cannot be read or is not a valid scenario.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::parse_at(path, &Self::text_at(path)?)
    }

    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn text_at(path: &Path) -> Result<String, FileError> {
        BaseFolder::Disk(Path::new("")).open(path).map(|(_, text)| text)
    }

    /// Parses the text of the file at `path`, which need not exist. Paths in the text are relative
    /// to its directory.
    ///
    /// # Errors
    /// If it is not a valid scenario.
    pub fn parse_at(path: &Path, text: &str) -> Result<Self, FileError> {
        Self::parse_in(&path.display().to_string(), BaseFolder::of(path), text)
    }

    /// Parses a file that names no others; `origin` is its name in errors.
    ///
    /// # Errors
    /// If it is not a valid scenario.
    pub fn parse(origin: &str, text: &str) -> Result<Self, FileError> {
        Self::parse_in(origin, BaseFolder::BuiltIn(TRACES), text)
    }

    fn parse_in(origin: &str, folder: BaseFolder<'_>, text: &str) -> Result<Self, FileError> {
        let document = TomlDocument::parse(origin, folder, text, FileKind::Scenario)?;
        let design = CaseDesign::read(&document)?;
        let cases = design.each(&document, |case, levels| ScenarioCase::read(&case, levels))?;
        // After the cases, because metrics refer to their flows.
        let StudySettings { back_ends, replications, results } =
            StudySettings::read(&document, &cases)?;
        Ok(Self { cases, back_ends, replications, results })
    }
}

impl ScenarioCase {
    fn read(document: &TomlDocument<'_>, levels: Vec<FactorLevel>) -> Result<Self, FileError> {
        let raw: RawScenario = document.read()?;
        let place = KeyContext::file(document);
        let time = place.time("time", Some(raw.time))?.unwrap_or_default();
        place.check(!time.is_zero(), "time", format_duration(time), "above 0")?;
        let sample = place.time("sample", raw.sample)?.unwrap_or(Duration::from_millis(100));
        let expected = format!("{} or more", format_duration(LEAST_SAMPLE));
        place.check(sample >= LEAST_SAMPLE, "sample", format_duration(sample), expected)?;
        let side = |key, raw: Option<_>| {
            raw.map(|raw| LinkSpec::read(&place.within(key), raw)).transpose()
        };
        let network = NetworkSpec::read(&place.within("network"), &raw.network)?;
        let flows = flow::read_all(&place, &raw.flow, network.platforms.len())?;
        let case = Self {
            name: document.case.clone().unwrap_or_default(),
            levels,
            description: raw.description,
            time,
            sample,
            // Each platform has its own return link, so the largest decides whether it can be built.
            hop: SatelliteHop::read(&place, raw.hop, network.largest_platform())?,
            next_hops: next_hops(&place, raw.next_hop)?,
            network,
            server_side: side("server-side", raw.server_side)?,
            client_side: side("client-side", raw.client_side)?,
            shaper: side("shaper", raw.shaper.map(shaper))?,
            tcp: endpoints(&place, &raw.tcp)?,
            gateways: GatewaysSpec::read(&place.within("gateways"), raw.gateways)?,
            cache: raw
                .cache
                .map(|raw| CacheSpec::read(&place.within("cache"), &raw))
                .transpose()?,
            names: raw.names.as_ref().map(NamesSpec::read),
            flows,
        };
        case.check(&place).map(|()| case)
    }

    /// Checks that the parts of the case fit each other.
    fn check(&self, place: &KeyContext<'_>) -> Result<(), FileError> {
        let sides = [self.server_side.is_some(), self.client_side.is_some()];
        self.network.check(&place.within("network"), sides)?;
        let channels = self.network.return_channels;
        let good = channels == 0 || self.hop.dama.is_none();
        let expected = "0 with [hop.dama], which has carriers";
        place.within("network").check(good, "return-channels", channels, expected)?;
        let carriers = self.network.carrier_rates.len();
        let good = carriers == 0 || self.hop.dama.is_none();
        let value = format!("a list of {carriers}");
        let expected = "none with [hop.dama], whose carriers have the return link's";
        place.within("network").check(good, "carrier-rates", value, expected)?;
        for (number, flow) in self.flows.iter().enumerate() {
            let place = place.within(format!("flow.{number}"));
            for (key, name) in ["tcp", "server-tcp"].into_iter().zip(&flow.tcp) {
                self.check_tcp_name(&place, key, name)?;
            }
        }
        let hops = self.next_hops.len();
        let good = hops == 0 || sides[0] && !self.network.mesh;
        let expected = "none without servers behind the hub: [server-side]";
        place.check(good, "next-hop", format!("{hops} of them"), expected)?;
        if self.cache.is_some() {
            CacheSpec::check(&place.within("cache"), self.network.mesh, sides[0])?;
        }
        self.check_names(place)?;
        let Some(gateways) = &self.gateways else { return Ok(()) };
        let place = place.within("gateways");
        self.check_tcp_name(&place, "tcp", &gateways.tcp)?;
        self.check_tcp_name(&place, "lan-tcp", &gateways.lan_tcp)?;
        let bundles =
            self.flows.iter().find(|flow| matches!(flow.traffic, FlowTraffic::Bundles { .. }));
        let name = bundles.map_or("", |flow| &flow.name);
        let good = bundles.is_none() || gateways.split != SplitMode::ThreeSlacp;
        let expected = format!("\"tcp\", over which the bundles of {} cross", quoted(name));
        place.check(good, "hop", "\"slacp\"", expected)?;
        gateways.check(&place, self.network.mesh, sides)
    }

    fn check_names(&self, place: &KeyContext<'_>) -> Result<(), FileError> {
        let split = self.gateways.as_ref().map(|gateways| gateways.split);
        let splits = matches!(split, Some(SplitMode::ThreeTcp | SplitMode::ThreeSlacp));
        if let Some(names) = self.names {
            return names.check(&place.within("names"), self.network.mesh, splits);
        }
        self.flows.iter().enumerate().try_for_each(|(number, flow)| {
            // Without a resolver all names are known, so their number would have no effect.
            let FlowTraffic::Page { names, .. } = flow.traffic else { return Ok(()) };
            let expected = "none without a resolver: [names]";
            place.within(format!("flow.{number}")).check(names <= 1, "names", names, expected)
        })
    }

    fn check_tcp_name(
        &self,
        place: &KeyContext<'_>,
        key: &str,
        name: &str,
    ) -> Result<(), FileError> {
        let names: Vec<_> = self.tcp.keys().map(String::as_str).collect();
        let expected = format!("one of the [tcp.NAME]: {}", names.join(", "));
        place.check(self.tcp.contains_key(name), key, quoted(name), expected)
    }

    /// Returns the round-trip propagation delay between client and server; the maximum if delays change.
    pub fn round_trip(&self) -> Duration {
        let sides = self.server_side.iter().chain(&self.client_side);
        // A side has one delay for both directions.
        let sides: Duration = sides.map(|side| 2 * side.delay.greatest()).sum();
        // Once, because only the forward direction passes it.
        let shaper = self.shaper.as_ref().map_or(Duration::ZERO, |link| link.delay.greatest());
        let hops = self.next_hops.iter().flatten().map(|link| link.delay.greatest());
        let hops: Duration = hops.sum();
        self.hop.forward.delay.greatest() + self.hop.ret.delay.greatest() + hops + sides + shaper
    }

    /// Returns the links of terminals towards hub or mesh: one for all, or those of
    /// [`NetworkSpec::carrier_rates`].
    pub fn returns(&self) -> Vec<LinkSpec> {
        let carrier = |rate: &BitRate| LinkSpec { rate: (*rate).into(), ..self.hop.ret.clone() };
        match &self.network.carrier_rates[..] {
            [] => vec![self.hop.ret.clone()],
            carriers => carriers.iter().map(carrier).collect(),
        }
    }

    /// Returns the links. Sizes in BDPs refer to the round-trip time of the whole path.
    pub fn links(&self) -> CaseLinks {
        let rtt = self.round_trip();
        // The links beside the hop are Ethernet, whatever the hop's MTU.
        let side = |link: &Option<LinkSpec>| link.as_ref().map(|link| link.config(rtt, MTU));
        let shaper = self.shaper.as_ref().map(|link| link.config(rtt, self.hop.mtu));
        let next = |[forward, ret]: &[LinkSpec; 2]| {
            [forward, ret].map(|link| link.config(rtt, self.hop.mtu))
        };
        CaseLinks {
            next_hops: self.next_hops.iter().map(next).collect(),
            forward: self.hop.forward.config(rtt, self.hop.mtu),
            returns: self.returns().iter().map(|ret| ret.config(rtt, self.hop.mtu)).collect(),
            server_side: side(&self.server_side),
            client_side: side(&self.client_side),
            shaper,
        }
    }
}

impl SatelliteHop {
    fn read(place: &KeyContext<'_>, raw: RawHop, terminals: u32) -> Result<Self, FileError> {
        let raw = match raw {
            RawHop::Links(raw) => raw,
            RawHop::Preset(name) => {
                let preset = Preset::load_from(place.folder(), &name);
                let Preset { forward, ret, mtu, dama, .. } =
                    preset.map_err(|error| match error {
                        // Errors inside the preset's file keep its own name and line.
                        FileError::UnknownPreset { .. } | FileError::Read { .. } => {
                            place.unreadable("hop", error)
                        }
                        within_preset => within_preset,
                    })?;
                if let Some(dama) = &dama {
                    // The preset was checked with its own number of terminals.
                    let within = place.within("hop.dama");
                    dama.check(&within, [&forward, &ret], terminals)?;
                }
                return Ok(Self { forward, ret, mtu, dama });
            }
        };
        let place = place.within("hop");
        let mtu = raw.mtu.unwrap_or(MTU);
        check_mtu(&place, mtu)?;
        let forward = LinkSpec::read(&place.within("forward"), raw.forward)?;
        let ret = raw.ret.map(|raw| LinkSpec::read(&place.within("return"), raw)).transpose()?;
        let ret = ret.unwrap_or_else(|| forward.clone());
        let within = place.within("dama");
        let dama = raw.dama.map(|raw| DamaSpec::read(&within, &raw, [&forward, &ret], terminals));
        let dama = dama.transpose()?;
        Ok(Self { forward, ret, mtu, dama })
    }
}

/// Maximum number of further hops.
const MOST_NEXT_HOPS: usize = 8;

fn next_hops(
    place: &KeyContext<'_>,
    raw: Vec<RawNextHop>,
) -> Result<Vec<[LinkSpec; 2]>, FileError> {
    let good = raw.len() <= MOST_NEXT_HOPS;
    place.check(good, "next-hop", format!("{} of them", raw.len()), "8 at most")?;
    let read = |(number, raw): (usize, RawNextHop)| {
        let place = place.within(format!("next-hop.{number}"));
        let forward = LinkSpec::read(&place.within("forward"), raw.forward)?;
        let ret = raw.ret.map(|raw| LinkSpec::read(&place.within("return"), raw)).transpose()?;
        let ret = ret.unwrap_or_else(|| forward.clone());
        Ok([forward, ret])
    };
    raw.into_iter().enumerate().map(read).collect()
}

/// Sets the delay of a shaper, which is zero unless the file gives one.
fn shaper(mut raw: RawLink) -> RawLink {
    if raw.delay_trace.is_none() {
        raw.delay.get_or_insert(Text(Time(Duration::ZERO)));
    }
    raw
}

fn endpoints(
    place: &KeyContext<'_>,
    raw: &BTreeMap<String, TcpOptions>,
) -> Result<BTreeMap<String, Arc<Config>>, FileError> {
    let default = tcp_options::read(place, &TcpOptions::new())?;
    // First, so that a file may define its own `default`.
    let mut all = BTreeMap::from([("default".to_owned(), default)]);
    for (name, raw) in raw {
        all.insert(name.clone(), tcp_options::read(&place.within(format!("tcp.{name}")), raw)?);
    }
    Ok(all)
}
