//! Bulk transfers of this project's endpoints: one station at the server, one at each client.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use lab::{LAN_DEVICE, Node};
use os::station::{Station, StationError, spare_addresses};
use scenario::{FlowTraffic, ScenarioFlow};
use sim::{AppStats, WorkUnit};
use units::Instant;

use super::traffic::at;
use super::{CaseInLab, FlowResults, LabRunError, limits};
use crate::endpoint::{
    ConnectionOpening, EndRecord, StationEnds, TransferAmount, TransferEnd, drive,
};

/// The server's port of the first transfer; the others follow.
const SERVER_PORT: u16 = 6000;
/// The client's port of the first transfer.
const CLIENT_PORT: u16 = 50_000;

/// All transfers of a case that run on stations.
pub(super) struct Stations {
    server: Vec<TransferEnd>,
    clients: BTreeMap<Node, Vec<TransferEnd>>,
    /// The transfers, in the order of the server's ends.
    transfers: Vec<StationTransfer>,
    addresses: BTreeMap<Node, IpAddr>,
}

struct StationTransfer {
    flow: usize,
    number: u32,
    up: bool,
    client: Node,
    /// Index among the client's ends.
    place: usize,
}

impl Stations {
    /// Prepares the transfers of a case whose hosts have this project's TCP.
    pub(super) fn of(stage: &CaseInLab<'_>) -> Result<Self, LabRunError> {
        let mut all = Self {
            server: Vec::new(),
            clients: BTreeMap::new(),
            transfers: Vec::new(),
            addresses: BTreeMap::new(),
        };
        for (index, flow) in stage.case.flows.iter().enumerate() {
            if stage.is_on_stations(flow) {
                for number in 0..flow.count {
                    all.add(stage, index, flow, number)?;
                }
            }
        }
        Ok(all)
    }

    fn add(
        &mut self,
        stage: &CaseInLab<'_>,
        index: usize,
        flow: &ScenarioFlow,
        number: u32,
    ) -> Result<(), LabRunError> {
        let FlowTraffic::Bulk { direction, amount } = &flow.traffic else { return Ok(()) };
        let start = stage.origin + CaseInLab::start(flow, number);
        let amount = match amount {
            scenario::FlowSize::Bytes(bytes) => TransferAmount::Bytes(bytes.get()),
            scenario::FlowSize::Time(time) => TransferAmount::Until(start + *time),
        };
        let up = limits::is_up(*direction);
        let client = stage.client(number);
        // The transfers of a station are told apart by their ports.
        let order = self.transfers.len() as u16;
        // `can_run` admits 64 applications, so the ports do not overflow.
        let from = SocketAddr::new(self.address(stage, client)?, CLIENT_PORT + order);
        let to = SocketAddr::new(self.address(stage, Node::Server)?, SERVER_PORT + order);
        let key = meter::fresh_key()?;
        let over = Arc::new(AtomicBool::new(false));
        let end = |side: usize, opening, sends| TransferEnd {
            config: stage.case.tcp[&flow.tcp[side]].as_ref().clone(),
            opening,
            sends,
            amount,
            key,
            over: Arc::clone(&over),
        };
        let ends = self.clients.entry(client).or_default();
        self.transfers.push(StationTransfer { flow: index, number, up, client, place: ends.len() });
        ends.push(end(0, ConnectionOpening::Active { at: start, from, to }, up));
        self.server.push(end(1, ConnectionOpening::Passive { port: to.port() }, !up));
        Ok(())
    }

    /// Returns the station's IPv4 address on a host.
    fn address(&mut self, stage: &CaseInLab<'_>, node: Node) -> Result<IpAddr, LabRunError> {
        if let Some(address) = self.addresses.get(&node) {
            return Ok(*address);
        }
        // Not the host's own address, because its kernel would answer our segments with resets.
        let spare = stage.lab.node(node).run(|| spare_addresses(LAN_DEVICE))?;
        let missing = || StationError::NoAddress { device: LAN_DEVICE.to_owned() };
        let address = spare.into_iter().find(IpAddr::is_ipv4).ok_or_else(missing)?;
        self.addresses.insert(node, address);
        Ok(address)
    }

    /// Runs all transfers; returns the results of each flow, by its index.
    pub(super) fn run(
        self,
        stage: &CaseInLab<'_>,
    ) -> Result<BTreeMap<usize, FlowResults>, LabRunError> {
        if self.transfers.is_empty() {
            return Ok(BTreeMap::new());
        }
        let Self { server, clients, transfers, addresses } = self;
        let run = |node: Node, ends: Vec<TransferEnd>| station(stage, node, addresses[&node], ends);
        let (server, clients) = thread::scope(|scope| {
            let server = scope.spawn(|| run(Node::Server, server));
            let clients: Vec<_> = clients
                .into_iter()
                .map(|(node, ends)| (node, scope.spawn(move || run(node, ends))))
                .collect();
            let mut seen = BTreeMap::new();
            for (node, thread) in clients {
                seen.insert(node, thread.join().map_err(|_| LabRunError::Panicked)??);
            }
            let server = server.join().map_err(|_| LabRunError::Panicked)??;
            Ok::<_, LabRunError>((server, seen))
        })?;
        let mut all: BTreeMap<usize, FlowResults> = BTreeMap::new();
        for (transfer, server) in transfers.into_iter().zip(server) {
            let client = clients[&transfer.client][transfer.place].clone();
            let (sender, receiver) = if transfer.up { (client, server) } else { (server, client) };
            let played = all.entry(transfer.flow).or_default();
            played.tallies.push(transfer.tally(stage, &sender, &receiver)?);
            played.states = sender.samples;
        }
        Ok(all)
    }
}

/// Runs the ends on one station.
fn station(
    stage: &CaseInLab<'_>,
    node: Node,
    own: IpAddr,
    ends: Vec<TransferEnd>,
) -> Result<Vec<EndRecord>, LabRunError> {
    stage.lab.node(node).clone().enter()?;
    let mut station = Station::open(LAN_DEVICE, &[own])?;
    let end = stage.origin + stage.case.time;
    let mut ends = StationEnds::new(own, ends, stage.case.sample, [stage.origin, end]);
    drive(&mut station, &mut ends)?;
    Ok(ends.seen())
}

impl StationTransfer {
    fn tally(
        &self,
        stage: &CaseInLab<'_>,
        sender: &EndRecord,
        receiver: &EndRecord,
    ) -> Result<AppStats, LabRunError> {
        let flow = &stage.case.flows[self.flow];
        let after = |time: Instant| at(time.saturating_since(stage.origin));
        let began = at(CaseInLab::start(flow, self.number));
        // Only the receiver verifies the bytes, so its reason says more.
        let failure = receiver.failure.as_ref().or(sender.failure.as_ref());
        if let Some(what) = failure {
            tracing::warn!(flow = flow.name, what, "a connection broke");
        }
        let deed = |end: Instant| WorkUnit { begin: began, end: after(end), bytes: receiver.bytes };
        Ok(AppStats {
            bytes: receiver.bytes,
            first: receiver.first.map(after),
            last: receiver.last.map(after),
            began,
            work_units: receiver.complete.map(deed).into_iter().collect(),
            failures: failure.is_some().into(),
            done: receiver.complete.is_some() || failure.is_some(),
            ..AppStats::default()
        })
    }
}
