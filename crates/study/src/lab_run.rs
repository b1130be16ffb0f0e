//! Cases of scenario files in the lab: real packets, real kernels, real gateways, and the metrics of
//! the simulator under the same names.
//!
//! [`can_run`] says which cases the lab can run; [`run`] runs one. Hosts have the kernel's TCP where
//! it can be what the case asks for, and otherwise this project's endpoint on a device
//! ([`crate::endpoint`]); gateways are the pair of [`crate::GatewayPair`].
//!
//! Not measured: the outstanding data and the SRTT of the kernel's senders. Traces and outages of
//! links count from the start of the lab, a second or two before the traffic if there are gateways.

mod beside;
mod datagrams;
mod hosts;
mod limits;
mod network;
mod stations;
#[cfg(test)]
mod tests;
mod traffic;

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use lab::{Lab, LinkGauge, LinkName, Node, StartError};
use link::{PacketCounters, Tally as Packets};
use meter::CongestionError;
use os::clock;
use os::station::StationError;
use scenario::{FlowTraffic, ScenarioCase, ScenarioFlow, SplitMode};
use sim::{AppStats, LinkUse, MetricValue, SenderSample, capacities};
use thiserror::Error;
use units::{ByteCount, Instant};

pub use self::beside::{BackEndComparison, compare, table};
use self::hosts::HostTcp;
pub use self::limits::{NotInLab, can_run};
use self::stations::Stations;
use crate::meter_server::{MeterServer, ServerError};
use crate::pair::{CarriageMode, GatewayPair, PairError};

/// The reason why a case could not be run in the lab.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabRunError {
    /// The lab cannot do what the case asks for.
    #[error("the lab cannot run this: {0}")]
    NotInLab(#[from] NotInLab),
    /// The lab cannot be started.
    #[error("cannot start the lab: {0}")]
    Lab(#[from] StartError),
    /// The meter's server cannot be started.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A gateway could not be started, or failed.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The kernel lacks a congestion control.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// This project's endpoint cannot be started.
    #[error(transparent)]
    Station(#[from] StationError),
    /// A socket, a thread or a device failed.
    #[error("the lab's traffic failed: {0}")]
    System(#[from] io::Error),
    /// An application saw wrong bytes.
    #[error("flow {flow}: {what}")]
    Wrong {
        /// Name of the flow.
        flow: String,
        /// Description of the defect.
        what: String,
    },
    /// The machine was too slow for the links.
    #[error("this machine was too slow for the lab: its links missed {missed} packets")]
    TooSlow {
        /// Number of packets that arrived faster than the links could take them.
        missed: u64,
    },
    /// A thread panicked, which is a bug.
    #[error("an application in the lab panicked")]
    Panicked,
}

/// Time from the start of applications' threads to the time zero of the case.
const LEAD: Duration = Duration::from_millis(100);

/// Runs a case in a lab of its own, and returns the metrics of [`sim::SimulationRun::metrics`] that can be
/// measured there, in the same order. The process must have entered its own namespaces
/// ([`lab::enter`]). `seed` determines which packets the links lose; `program` is skyhop's own, which
/// runs the gateways. Takes as long as the case: its time at most, and some seconds for the gateways.
///
/// # Errors
/// If the lab cannot run the case, or something fails other than a connection; those that fail count
/// in the metric `broken`.
pub fn run(
    case: &ScenarioCase,
    seed: u64,
    program: &Path,
) -> Result<Vec<MetricValue>, LabRunError> {
    can_run(case)?;
    let preset = network::preset(case);
    let lab = Lab::start(&preset, seed)?;
    check_kernel(case, &lab)?;
    // Before the gateways: a cache needs the server's port in their configuration.
    let server = MeterServer::start(&lab, Node::Server)?;
    let start = |carry| GatewayPair::start_with_mode(carry, &lab, &preset, program);
    let mut pair = carriage(case, server.address.port()).map(start).transpose()?;
    let cached = case.cache.as_ref().map(|_| meter::fresh_key()).transpose()?;
    let at = |origin| CaseInLab { case, lab: &lab, server: server.address, cached, origin };
    let mut cross = || {
        if let (Some(pair), Some(_)) = (&mut pair, cached) {
            at(clock::now()).fill_caches()?;
            // Only the hub's cache is to have the pages, not the terminal's.
            pair.replace_terminals(&lab, &preset, program)?;
        }
        // Set only now: the case begins once gateways are in service and caches are filled.
        at(clock::now() + LEAD).measure()
    };
    let measured = cross();
    let missed = lab.faults().missed;
    // After a failure as well: killed, the gateways would lose what they are about to write.
    pair.map_or(Ok(()), GatewayPair::stop)?;
    match missed {
        0 => measured,
        missed => Err(LabRunError::TooSlow { missed }),
    }
}

/// Returns what the case's gateways do with connections, if it has any. [`can_run`] has refused
/// what the pair cannot do.
fn carriage(case: &ScenarioCase, port: u16) -> Option<CarriageMode> {
    let gateways = case.gateways.as_ref();
    match (gateways.map(|gateways| gateways.split), &case.cache) {
        (None, None) => None,
        (None, Some(_)) => Some(CarriageMode::CachedAtHub { port }),
        (Some(_), Some(_)) => Some(CarriageMode::Cached { port }),
        (Some(SplitMode::Packets), None) => {
            gateways.map(|gateways| CarriageMode::Packets { queue: gateways.queue })
        }
        (Some(_), None) => Some(CarriageMode::Streams),
    }
}

/// Checks that the hosts' kernel has the congestion controls of the flows.
fn check_kernel(case: &ScenarioCase, lab: &Lab) -> Result<(), LabRunError> {
    for flow in &case.flows {
        // Datagrams need no congestion control.
        let has_connections = !matches!(flow.traffic, FlowTraffic::Udp { .. });
        if let (HostTcp::Kernel(controls), true) = (limits::hosts_of(case, flow), has_connections) {
            for (node, control) in [Node::Client, Node::Server].into_iter().zip(controls) {
                lab.node(node).run(|| control.check())?;
            }
        }
    }
    Ok(())
}

/// A case in its lab.
struct CaseInLab<'a> {
    case: &'a ScenarioCase,
    lab: &'a Lab,
    /// Address of the meter's server.
    server: std::net::SocketAddr,
    /// The key of objects that the hub's cache has.
    cached: Option<u64>,
    /// The time zero of the case.
    origin: Instant,
}

/// The results of a flow's applications. Times count from the time zero of the case.
#[derive(Debug, Default)]
struct FlowResults {
    tallies: Vec<AppStats>,
    /// The states of the last application's sender, if they could be seen.
    states: Vec<SenderSample>,
}

impl CaseInLab<'_> {
    /// Runs all applications, and reads the links before and after.
    fn measure(&self) -> Result<Vec<MetricValue>, LabRunError> {
        // The gateways have used the links before.
        let before = self.lab.gauges().read();
        let played = self.run_applications()?;
        let after = self.lab.gauges().read();
        let mut all = Vec::new();
        for (flow, played) in self.case.flows.iter().zip(&played) {
            let tallies: Vec<&AppStats> = played.tallies.iter().collect();
            all.extend(sim::flow_metrics(&flow.name, &tallies));
            if flow.watch {
                all.extend(sim::sender_metrics(&flow.name, &played.states));
            }
        }
        let elapsed = self.elapsed(&played);
        // Traces run by the time of the lab, which began before the case.
        let from = self.origin.saturating_since(self.lab.origin());
        let [forward, ret, _] = capacities(self.case).offered(from, from + elapsed);
        let gauges = || before.iter().zip(&after);
        for (of, capacity) in [("forward", forward), ("return", ret)] {
            let mut used = LinkUse::new(capacity);
            for (before, after) in gauges().filter(|(gauge, _)| of_hop(gauge.link) == Some(of)) {
                used.add(&since(before, after), after.peak_queue);
            }
            all.extend(sim::link_metrics(of, &used));
        }
        Ok(all)
    }

    /// Runs all applications, each in a thread of its own but those on stations.
    fn run_applications(&self) -> Result<Vec<FlowResults>, LabRunError> {
        let stations = Stations::of(self)?;
        thread::scope(|scope| {
            let own = scope.spawn(|| stations.run(self));
            let threads = |flow| -> Vec<_> {
                (0..self.in_threads(flow))
                    .map(|number| scope.spawn(move || self.application(flow, number)))
                    .collect()
            };
            let running: Vec<Vec<_>> = self.case.flows.iter().map(threads).collect();
            let mut own = own.join().map_err(|_| LabRunError::Panicked)??;
            let mut all = Vec::new();
            for (index, threads) in running.into_iter().enumerate() {
                let mut played = own.remove(&index).unwrap_or_default();
                for thread in threads {
                    played.tallies.push(thread.join().map_err(|_| LabRunError::Panicked)??);
                }
                all.push(played);
            }
            Ok(all)
        })
    }

    /// Returns the number of a flow's applications that have a thread.
    fn in_threads(&self, flow: &ScenarioFlow) -> u32 {
        if self.is_on_stations(flow) { 0 } else { flow.count }
    }

    fn is_on_stations(&self, flow: &ScenarioFlow) -> bool {
        let is_udp = matches!(flow.traffic, FlowTraffic::Udp { .. });
        !is_udp && limits::hosts_of(self.case, flow) == HostTcp::Own
    }

    /// Returns the start of an application, from the time zero of the case.
    fn start(flow: &ScenarioFlow, number: u32) -> Duration {
        flow.start + flow.spacing * number
    }

    /// Returns the client of an application: assigned in turn, as in the simulator.
    fn client(&self, number: u32) -> Node {
        let number = number % self.case.network.terminals;
        // can_run has checked their number.
        u8::try_from(number + 1).ok().and_then(Node::client).unwrap_or(Node::Client)
    }

    /// Returns the propagation delay from server to client.
    fn downlink_delay(&self) -> Duration {
        let sides = self.case.server_side.iter().chain(&self.case.client_side);
        let sides: Duration = sides.map(|side| side.delay.greatest()).sum();
        self.case.hop.forward.delay.greatest() + sides
    }

    /// Returns the time until all applications were done, or that of the case.
    fn elapsed(&self, played: &[FlowResults]) -> Duration {
        let mut tallies = played.iter().flat_map(|played| &played.tallies);
        let ends = tallies
            .clone()
            .flat_map(|tally| tally.work_units.iter().map(|deed| deed.end).chain(tally.last));
        let last = ends.max().unwrap_or_default().saturating_since(Instant::ZERO);
        let all_done = tallies.all(|tally| tally.done);
        // As in the simulator, which ends a run early only once every application is done.
        if all_done { last.min(self.case.time) } else { self.case.time }
    }
}

/// Returns the subject of the metrics that a link counts in.
fn of_hop(link: LinkName) -> Option<&'static str> {
    match link {
        LinkName::Forward => Some("forward"),
        LinkName::Return(_) => Some("return"),
        _ => None,
    }
}

/// Returns the difference of a link's counters between two readings.
fn since(before: &LinkGauge, after: &LinkGauge) -> PacketCounters {
    let packets = |of: fn(&PacketCounters) -> Packets| {
        let [before, after] = [before, after].map(|gauge| of(&gauge.counters));
        Packets {
            packets: after.packets - before.packets,
            bytes: ByteCount::new(after.bytes.get() - before.bytes.get()),
        }
    };
    PacketCounters {
        dropped_queue: packets(|counters| counters.dropped_queue),
        lost: packets(|counters| counters.lost),
        delivered: packets(|counters| counters.delivered),
        delivered_with_encapsulation: ByteCount::new(
            after.counters.delivered_with_encapsulation.get()
                - before.counters.delivered_with_encapsulation.get(),
        ),
        ..PacketCounters::default()
    }
}
