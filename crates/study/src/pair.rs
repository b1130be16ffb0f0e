//! The gateway pair in a lab: one program as hub and as terminal.

mod child;
mod modem;

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use gateway::keys::{KeyError, PrivateKey, format_public_key};
use lab::{HOP_DEVICE, LAN_DEVICE, Lab, LinkSpec, Node, Preset, Site};
use link::TrafficClass;
use link::dama::CapacityKind;
use sim::World;
use thiserror::Error;
use units::{BitRate, ByteCount, format_duration};

use self::child::GatewayProcess;
use self::modem::{MODEM, Modems};
use crate::plan::TrafficPath;

/// UDP port of the hub.
const PORT: u16 = 5900;
/// Time a gateway has to come into service, on top of a few RTT.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Polling interval of the gateways while a command runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Rate between gateways on one host: more than any hop of the lab.
const NEAR: BitRate = BitRate::from_mbit(1000);
/// Minimum window of a stream: more than enough for any link at these rates.
const LEAST_WINDOW: ByteCount = ByteCount::new(64_000_000);

/// The reason why a gateway pair failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PairError {
    /// A key could not be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The modem of a terminal cannot be started.
    #[error("cannot start a terminal's modem: {0}")]
    Modem(io::Error),
    /// A gateway's program cannot be run.
    #[error("cannot start the {name}: {cause}")]
    Start {
        /// Name of the gateway's host.
        name: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A gateway's process cannot be watched.
    #[error("cannot watch the {name}: {cause}")]
    Process {
        /// Name of the gateway's host.
        name: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A gateway ended, or did not get ready.
    #[error("the {name} {what}: {said}")]
    Failed {
        /// Name of the gateway's host.
        name: String,
        /// The failure, in a few words.
        what: String,
        /// The end of its output on stderr.
        said: String,
    },
}

/// The way in which a pair carries TCP connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriageMode {
    /// The pair splits connections.
    Streams,
    /// The pair carries the packets through its tunnel, with SLACP under IP.
    Packets {
        /// Maximum size of the queue in front of SLACP.
        queue: ByteCount,
    },
    /// The pair splits connections, and the hub has a cache for HTTP on this port.
    Cached {
        /// TCP port of the servers.
        port: u16,
    },
    /// Both gateways are on the hub's host, with a cache for this port: they split connections
    /// there, and those over the hop are between client and hub.
    CachedAtHub {
        /// TCP port of the servers.
        port: u16,
    },
}

impl CarriageMode {
    /// Returns the policy section of a terminal's configuration.
    fn policy(self) -> &'static str {
        match self {
            Self::Streams | Self::Cached { .. } | Self::CachedAtHub { .. } => "",
            Self::Packets { .. } => "[[policy]]\naction = \"tunnel\"\n",
        }
    }

    /// Returns the sections about HTTP of a hub and of a terminal.
    fn http(self) -> [String; 2] {
        match self {
            Self::Streams | Self::Packets { .. } => Default::default(),
            Self::Cached { port } | Self::CachedAtHub { port } => {
                ["[http]\ncache = true\n".to_owned(), format!("[http]\nports = [{port}]\n")]
            }
        }
    }

    /// Returns the class section of either side: packets wait as in the simulator
    /// ([`sim::World::add_tunnel`]).
    fn class(self) -> String {
        match self {
            Self::Streams | Self::Cached { .. } | Self::CachedAtHub { .. } => String::new(),
            Self::Packets { queue } => format!(
                "[[class]]\nname = \"default\"\nqueue = \"{queue}\"\nqueue_time = \"{}\"\n",
                format_duration(World::TUNNEL_QUEUE_TIME)
            ),
        }
    }
}

/// A hub and a terminal (in a star, all terminals) in service.
pub struct GatewayPair {
    hub: GatewayProcess,
    terminals: Vec<GatewayProcess>,
    /// The host and the configuration of each terminal.
    places: Vec<(Node, String)>,
    /// Kept until the gateways have stopped.
    _modems: Option<Modems>,
}

impl GatewayPair {
    /// Starts all gateways with fresh keys and waits until they split connections. `program` is
    /// skyhop's own.
    ///
    /// # Errors
    /// If a gateway cannot be started or fails.
    pub fn start(lab: &Lab, preset: &Preset, program: &Path) -> Result<Self, PairError> {
        Self::start_with_mode(CarriageMode::Streams, lab, preset, program)
    }

    /// Like [`Self::start`], for gateways that carry connections in this way.
    ///
    /// # Errors
    /// If a gateway cannot be started or fails.
    pub fn start_with_mode(
        carry: CarriageMode,
        lab: &Lab,
        preset: &Preset,
        program: &Path,
    ) -> Result<Self, PairError> {
        if matches!(carry, CarriageMode::CachedAtHub { .. }) {
            return Self::at_hub(carry, lab, preset, program);
        }
        let hub_key = PrivateKey::generate()?;
        let hosts: Vec<Node> = lab.nodes().filter(|node| is_terminal(*node)).collect();
        let keys = hosts.iter().map(|_| PrivateKey::generate()).collect::<Result<Vec<_>, _>>()?;
        let modems = Modems::start(lab, preset, &hosts)?;
        let control = |node: Node| control(lab, &node.to_string());
        let [hub_http, http] = carry.http();
        let hub = control(Node::Hub)
            + &hub_config(preset, &hub_key, hosts.iter().zip(&keys))
            + &carry.class()
            + &hub_http;
        let config = |(host, key)| {
            let config = control(host)
                + &terminal_config(lab, preset, &hub_key, host, key)
                + carry.policy()
                + &carry.class()
                + &http;
            (host, config)
        };
        let places = hosts.into_iter().zip(&keys).map(config).collect();
        Self::run(lab, preset, program, &hub, places, modems)
    }

    /// Starts both gateways on the hub's host.
    fn at_hub(
        carry: CarriageMode,
        lab: &Lab,
        preset: &Preset,
        program: &Path,
    ) -> Result<Self, PairError> {
        let [hub_key, key] = [PrivateKey::generate()?, PrivateKey::generate()?];
        let public = format_public_key(&key.public());
        let [hub_http, http] = carry.http();
        let common = |key: &PrivateKey| {
            format!("private_key = \"{}\"\nrate = \"{NEAR}\"\n", key.to_base64())
        };
        let hub = control(lab, "hub")
            + &common(&hub_key)
            + &format!(
                "listen = \"127.0.0.1:{PORT}\"\n[[terminal]]\nname = \"near\"\nkey = \"{public}\"\n"
            )
            + &hub_http;
        let public = format_public_key(&hub_key.public());
        let near = control(lab, "near")
            + &common(&key)
            + &format!(
                "hub = \"127.0.0.1:{PORT}\"\nhub_key = \"{public}\"\n[intercept]\ninterfaces = [\"{HOP_DEVICE}\"]\n"
            )
            + &http;
        Self::run(lab, preset, program, &hub, vec![(Node::Hub, near)], None)
    }

    fn run(
        lab: &Lab,
        preset: &Preset,
        program: &Path,
        hub: &str,
        places: Vec<(Node, String)>,
        modems: Option<Modems>,
    ) -> Result<Self, PairError> {
        let mut hub = start(lab, Node::Hub, program, "hub", hub)?;
        // A terminal is ready once it has a session, for which the hub must be in service.
        hub.wait_ready(limit(preset))?;
        let mut pair = Self { hub, terminals: Vec::new(), places, _modems: modems };
        pair.start_terminals(lab, preset, program)?;
        Ok(pair)
    }

    fn start_terminals(
        &mut self,
        lab: &Lab,
        preset: &Preset,
        program: &Path,
    ) -> Result<(), PairError> {
        let places = self.places.iter();
        let terminals = places.map(|(node, config)| start(lab, *node, program, "terminal", config));
        self.terminals = terminals.collect::<Result<_, _>>()?;
        // Waits only now, so that the terminals of a star get ready side by side.
        self.terminals.iter_mut().try_for_each(|terminal| terminal.wait_ready(limit(preset)))
    }

    /// Replaces the terminals by new ones, which have no sessions and caches.
    ///
    /// # Errors
    /// If a terminal cannot be ended or started.
    pub(crate) fn replace_terminals(
        &mut self,
        lab: &Lab,
        preset: &Preset,
        program: &Path,
    ) -> Result<(), PairError> {
        GatewayProcess::stop_all(std::mem::take(&mut self.terminals))?;
        self.start_terminals(lab, preset, program)
    }

    /// Runs `work`, while a pair is in service if that is the way to cross.
    ///
    /// # Errors
    /// If a gateway cannot be started or fails.
    pub(crate) fn run_with_pair<T>(
        lab: &Lab,
        way: &TrafficPath,
        program: &Path,
        work: impl FnOnce() -> T,
    ) -> Result<T, PairError> {
        let pair = match way {
            TrafficPath::Pair => Some(Self::start(lab, lab.preset(), program)?),
            TrafficPath::Plain { .. } => None,
        };
        let done = work();
        pair.map_or(Ok(()), Self::stop)?;
        Ok(done)
    }

    /// Checks whether a gateway has failed.
    ///
    /// # Errors
    /// If one has failed, with its stderr.
    pub fn check(&mut self) -> Result<(), PairError> {
        self.terminals.iter_mut().try_for_each(GatewayProcess::check)?;
        self.hub.check()
    }

    /// Stops all gateways in order, within seconds.
    ///
    /// # Errors
    /// If one fails, or has failed, with its stderr. The others are stopped nevertheless.
    pub fn stop(self) -> Result<(), PairError> {
        // Terminals first, so that they can still close their sessions with the hub.
        let terminals = GatewayProcess::stop_all(self.terminals);
        let hub = self.hub.stop();
        terminals.and(hub)
    }

    /// Waits for `command` to end, then stops the gateways. `tell` is called with a gateway's
    /// failure when it happens; the command continues without it.
    ///
    /// # Errors
    /// If waiting for the command fails.
    pub fn run_until_exit(
        mut self,
        mut command: Child,
        tell: impl Fn(&PairError),
    ) -> io::Result<ExitStatus> {
        // A thread waits, since `Child::wait` has no time limit.
        let (sender, ended) = channel();
        thread::spawn(move || sender.send(command.wait()));
        let mut failed = false;
        let status = loop {
            match ended.recv_timeout(LOOK_INTERVAL) {
                Ok(status) => break status,
                Err(RecvTimeoutError::Disconnected) => break Err(io::ErrorKind::Other.into()),
                Err(RecvTimeoutError::Timeout) if failed => {}
                Err(RecvTimeoutError::Timeout) => failed = self.check().inspect_err(&tell).is_err(),
            }
        };
        // A failure is told once.
        let _ = self.stop().inspect_err(|error| {
            if !failed {
                tell(error);
            }
        });
        status
    }
}

/// Returns the time limit for a gateway to come into service.
fn limit(preset: &Preset) -> Duration {
    READY_LIMIT + 5 * preset.rtt()
}

fn is_terminal(node: Node) -> bool {
    node.site().is_some_and(|site| node == site.terminal())
}

fn start(
    lab: &Lab,
    node: Node,
    program: &Path,
    role: &str,
    config: &str,
) -> Result<GatewayProcess, PairError> {
    let mut command = lab.command(node, program);
    // Its log is shown only on failure, when nothing below a warning helps.
    command.args([role, "/dev/stdin"]).env("SKYHOP_LOG", "warn");
    GatewayProcess::start(node.to_string(), command, config)
}

/// Returns the configuration line for the control socket: the place where `skyhop status` in the
/// lab looks, named after the host.
fn control(lab: &Lab, name: &str) -> String {
    let path = lab.run_directory().join(format!("{name}.sock"));
    format!("control = \"{}\"\n", path.display())
}

fn hub_config<'a>(
    preset: &Preset,
    hub: &PrivateKey,
    terminals: impl Iterator<Item = (&'a Node, &'a PrivateKey)>,
) -> String {
    let mut config = common(preset, hub, &rate(preset, &preset.forward));
    let _ = writeln!(config, "listen = \"0.0.0.0:{PORT}\"");
    // `mesh`, because clients of a star reach each other through the hub.
    let _ = writeln!(config, "mesh = true\n[tunnel]");
    for (node, key) in terminals {
        let key = format_public_key(&key.public());
        let networks = networks(*node);
        let _ = writeln!(config, "[[terminal]]\nname = \"{node}\"\nkey = \"{key}\"");
        let _ = writeln!(config, "networks = {networks}");
    }
    config
}

/// Returns the networks behind the terminal on this node: its client's, with the addresses of
/// stations there.
fn networks(terminal: Node) -> String {
    let client = terminal.site().map_or(terminal, Site::client);
    let [a, b, c, _] = client.address4().octets();
    let [e, f, ..] = client.address6().segments();
    format!("[\"{a}.{b}.{c}.0/24\", \"{e:x}:{f:x}::/64\"]")
}

fn terminal_config(
    lab: &Lab,
    preset: &Preset,
    hub: &PrivateKey,
    node: Node,
    own: &PrivateKey,
) -> String {
    let on_demand = preset.dama.is_some();
    let rate = if on_demand { rate_on_demand(preset) } else { rate(preset, &preset.ret) };
    let mut config = common(preset, own, &rate);
    let _ = writeln!(config, "hub = \"{}:{PORT}\"", lab.address4(Node::Hub));
    let _ = writeln!(config, "hub_key = \"{}\"", format_public_key(&hub.public()));
    let _ = writeln!(config, "[accept]\nto = {}", networks(node));
    let _ = writeln!(config, "[tunnel]\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]");
    if on_demand {
        let _ = writeln!(config, "[dlep]\nmodem = \"{MODEM}\"\non_demand = true");
        config += &voice_class(preset).unwrap_or_default();
    }
    config
}

/// Returns a class for voice that is marked for the terminal's modem, if that has a constant rate
/// for voice.
fn voice_class(preset: &Preset) -> Option<String> {
    let terminal = &preset.dama.as_ref()?.terminal;
    (terminal.categories.of(TrafficClass::Voice) == CapacityKind::Cra).then(|| {
        format!(
            "[[class]]\nname = \"voice\"\ndscp = [\"EF\", \"VA\", \"CS5\"]\nguaranteed = \"{}\"\n\
             channel = \"none\"\nmark = \"EF\"\n",
            terminal.cra
        )
    })
}

/// Returns the configuration of the sending rate on a link; a changing rate is measured.
fn rate(preset: &Preset, sends: &LinkSpec) -> String {
    let greatest = sends.peak_rate(preset.mtu);
    if sends.rate_changes() {
        format!("rate = \"auto\"\nmaximum_rate = \"{greatest}\"")
    } else {
        format!("rate = \"{greatest}\"")
    }
}

/// Returns the configuration of the sending rate on a return link with capacity on demand: the rate
/// that the modem reports as granted. A small part of the link while there is no modem. There is no
/// maximum: to make up for slots without a packet, the modem reports a little more than the link
/// carries.
fn rate_on_demand(preset: &Preset) -> String {
    let greatest = preset.ret.peak_rate(preset.mtu);
    let initial = BitRate::from_bits_per_second(greatest.bits_per_second() / 8);
    format!("rate = \"modem\"\ninitial_rate = \"{initial}\"")
}

/// Returns the settings common to both sides: the key, the sending rate, and windows of at least
/// two BDP.
fn common(preset: &Preset, key: &PrivateKey, rate: &str) -> String {
    let window = window(preset);
    // Four windows, as in the gateway's defaults of 64 and 256 MB.
    let memory = ByteCount::new(window.get().saturating_mul(4));
    format!(
        "private_key = \"{}\"\n{rate}\nmtu = {}\nstream_window = \"{window}\"\nmemory = \
         \"{memory}\"\n",
        key.to_base64(),
        preset.mtu
    )
}

/// Returns the window of one stream: twice the BDP of the faster link, or the minimum.
pub(crate) fn window(preset: &Preset) -> ByteCount {
    let [forward, ret] = [&preset.forward, &preset.ret].map(|link| link.peak_rate(preset.mtu));
    forward.max(ret).bytes_in(2 * preset.rtt()).max(LEAST_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voice_is_marked_where_the_modem_has_a_rate_for_it() {
        let class = |name: &str| voice_class(&Preset::load(name).unwrap());
        let voice = class("vsat-dama-voice").unwrap();
        assert!(voice.contains("guaranteed = \"120 kbit/s\"") && voice.contains("mark = \"EF\""));
        assert_eq!((class("vsat-dama-cra"), class("geo")), (None, None));
    }
}
