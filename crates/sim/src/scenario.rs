//! Scenarios: files that describe simulations (`docs/sim.md`).

mod build;
mod cases;
mod direction;
mod error;
mod flow;
mod gateways;
mod raw;
mod tcp;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use build::Run;
pub use error::ScenarioError;

use direction::Direction;
use error::{Place, quoted};
use flow::Flow;
use gateways::Gateways;

/// A parsed file with one or more cases.
#[derive(Debug)]
pub struct Scenario {
    /// In the order of the file.
    pub cases: Vec<Case>,
}

/// A simulation. Built and run by [`Case::build`].
#[derive(Debug)]
pub struct Case {
    /// Its name; empty if the file has no cases.
    pub name: String,
    /// The description from the file.
    pub description: String,
    /// Maximum simulated time; the run ends earlier if every application is done.
    pub time: Duration,
    /// Sampling interval for plots.
    pub sample: Duration,
    network: Network,
    forward: Direction,
    ret: Direction,
    server_side: Option<Direction>,
    client_side: Option<Direction>,
    tcp: BTreeMap<String, Arc<::tcp::Config>>,
    gateways: Option<Gateways>,
    flows: Vec<Flow>,
}

/// Numbers of nodes.
#[derive(Debug, Clone, Copy)]
struct Network {
    terminals: u32,
    servers: u32,
    clients: u32,
    /// Number of links that terminals share on the way to the hub; 0 if each has its own.
    return_channels: u32,
    mesh: bool,
}

/// Maximum number of nodes of a kind.
const MOST_NODES: u32 = 100_000;
const MOST_FLOWS: usize = 1000;

impl Scenario {
    /// Parses a file; `origin` is its name in errors.
    ///
    /// # Errors
    /// [`ScenarioError`], with the key, its value and what would be accepted.
    pub fn parse(origin: &str, text: &str) -> Result<Self, ScenarioError> {
        let file = toml::from_str(text).map_err(|error| syntax(origin, text, &error))?;
        let cases = cases::split(&Place::new(origin), file)?;
        let one = |(name, table): (String, toml::Table)| {
            if name.is_empty() {
                // From the original text, so that errors have the right line numbers.
                return Case::read(origin, text, name);
            }
            // A case changes the file, so line numbers refer to the result.
            let text = toml::to_string(&table)
                .map_err(|error| Place::new(origin).wrong("case", quoted(&name), error))?;
            Case::read(&format!("{origin} (case {name:?})"), &text, name)
        };
        Ok(Self { cases: cases.into_iter().map(one).collect::<Result<_, _>>()? })
    }
}

fn syntax(origin: &str, text: &str, error: &toml::de::Error) -> ScenarioError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    ScenarioError::Syntax {
        origin: origin.to_owned(),
        line: line + 1,
        text: text.lines().nth(line).unwrap_or_default().to_owned(),
        message: error.message().replace('\n', " "),
    }
}

impl Case {
    fn read(origin: &str, text: &str, name: String) -> Result<Self, ScenarioError> {
        let raw: toml::Table =
            toml::from_str(text).map_err(|error| syntax(origin, text, &error))?;
        drop(raw);
        let raw: raw::Scenario =
            toml::from_str(text).map_err(|error| syntax(origin, text, &error))?;
        let place = Place::new(origin);
        let time = place.time("time", Some(&raw.time))?.unwrap_or_default();
        place.check(!time.is_zero(), "time", quoted(&raw.time), "above 0")?;
        let sample = place.time("sample", raw.sample.as_deref())?;
        let sample = sample.unwrap_or(Duration::from_millis(100));
        let good = sample >= Duration::from_micros(100);
        place.check(good, "sample", units::format_duration(sample), "100 us or more")?;
        let hop = place.within("hop");
        let forward = Direction::read(&hop.within("forward"), &raw.hop.forward)?;
        let ret = raw.hop.ret.as_ref().map(|ret| Direction::read(&hop.within("return"), ret));
        let ret = ret.transpose()?.unwrap_or_else(|| forward.clone());
        let side = |key: &str, raw: &Option<raw::Direction>| {
            raw.as_ref().map(|raw| Direction::read(&place.within(key), raw)).transpose()
        };
        let case = Self {
            name,
            time,
            sample,
            network: network(&place.within("network"), &raw)?,
            forward,
            ret,
            server_side: side("server-side", &raw.server_side)?,
            client_side: side("client-side", &raw.client_side)?,
            tcp: endpoints(&place, &raw)?,
            gateways: Gateways::read(&place.within("gateways"), raw.gateways.as_ref())?,
            flows: flows(&place, &raw)?,
            description: raw.description,
        };
        case.check(&place)?;
        Ok(case)
    }

    /// Checks that concern several parts.
    fn check(&self, place: &Place) -> Result<(), ScenarioError> {
        for (number, flow) in self.flows.iter().enumerate() {
            let place = place.within(&format!("flow.{number}"));
            for (key, name) in ["tcp", "server-tcp"].into_iter().zip(&flow.tcp) {
                self.knows(&place, key, name)?;
            }
        }
        let Some(gateways) = &self.gateways else { return Ok(()) };
        let place = place.within("gateways");
        self.knows(&place, "tcp", &gateways.tcp)?;
        self.knows(&place, "lan-tcp", &gateways.lan_tcp)?;
        if self.network.mesh {
            return Err(place.wrong("split", "a split", "no gateways in a mesh"));
        }
        let missing = |key: &str| {
            let expected = format!("a network behind each gateway: [{key}]");
            place.wrong("split", "a split", expected)
        };
        match (&self.server_side, &self.client_side, gateways.is_three()) {
            (None, ..) => Err(missing("server-side")),
            (_, None, true) => Err(missing("client-side")),
            _ => Ok(()),
        }
    }

    fn knows(&self, place: &Place, key: &str, name: &str) -> Result<(), ScenarioError> {
        let names: Vec<_> = self.tcp.keys().map(String::as_str).collect();
        let expected = format!("one of the [tcp.NAME]: {}", names.join(", "));
        place.check(self.tcp.contains_key(name), key, quoted(name), expected)
    }

    /// Whether it is quick to build.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn is_small(&self) -> bool {
        let Network { terminals, servers, clients, .. } = self.network;
        let count: u64 = self.flows.iter().map(|flow| u64::from(flow.count)).sum();
        u64::from(terminals) * u64::from(clients) + u64::from(servers) + count <= 50
    }

    /// Round-trip propagation delay.
    fn round_trip(&self) -> Duration {
        let sides = self.server_side.iter().chain(&self.client_side);
        let sides: Duration = sides.map(|side| 2 * side.greatest_delay()).sum();
        self.forward.greatest_delay() + self.ret.greatest_delay() + sides
    }
}

fn network(place: &Place, raw: &raw::Scenario) -> Result<Network, ScenarioError> {
    let one = |key, value: Option<u32>| {
        let value = value.unwrap_or(1);
        let good = (1..=MOST_NODES).contains(&value);
        place.check(good, key, value, "1 to 100,000").map(|()| value)
    };
    let network = Network {
        terminals: one("terminals", raw.network.terminals)?,
        servers: one("servers", raw.network.servers)?,
        clients: one("clients", raw.network.clients)?,
        return_channels: raw.network.return_channels.unwrap_or(0),
        mesh: raw.network.mesh.unwrap_or(false),
    };
    let Network { terminals, servers, clients, return_channels, mesh } = network;
    let all = u64::from(terminals) * u64::from(clients);
    place.check(all <= u64::from(MOST_NODES), "clients", clients, "100,000 in all")?;
    let behind = raw.server_side.is_some();
    place.check(
        servers == 1 || behind,
        "servers",
        servers,
        "1, or links to them: [server-side]",
    )?;
    let behind = raw.client_side.is_some();
    place.check(
        clients == 1 || behind,
        "clients",
        clients,
        "1, or links to them: [client-side]",
    )?;
    let good = return_channels <= terminals && !(mesh && return_channels > 0);
    place.check(good, "return-channels", return_channels, "at most the terminals; 0 in a mesh")?;
    place.check(!mesh || terminals > 1, "terminals", terminals, "2 or more in a mesh")?;
    Ok(network)
}

fn endpoints(
    place: &Place,
    raw: &raw::Scenario,
) -> Result<BTreeMap<String, Arc<::tcp::Config>>, ScenarioError> {
    let default = tcp::read(place, &raw::Tcp::default())?;
    let mut all = BTreeMap::from([("default".to_owned(), default)]);
    for (name, raw) in &raw.tcp {
        all.insert(name.clone(), tcp::read(&place.within(&format!("tcp.{name}")), raw)?);
    }
    Ok(all)
}

fn flows(place: &Place, raw: &raw::Scenario) -> Result<Vec<Flow>, ScenarioError> {
    let good = (1..=MOST_FLOWS).contains(&raw.flow.len());
    place.check(good, "flow", format!("{} of them", raw.flow.len()), "1 to 1000: [[flow]]")?;
    let mut all: Vec<Flow> = Vec::new();
    for (number, raw) in raw.flow.iter().enumerate() {
        let place = place.within(&format!("flow.{number}"));
        let flow = Flow::read(&place, raw)?;
        let is_new = all.iter().all(|other| other.name != flow.name);
        place.check(is_new, "name", quoted(&flow.name), "a name that no earlier flow has")?;
        all.push(flow);
    }
    Ok(all)
}
