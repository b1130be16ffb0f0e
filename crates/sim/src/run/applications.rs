//! Starts the applications of a case.

use core::time::Duration;
use std::sync::Arc;

use scenario::{
    Direction, FlowSize, FlowTraffic, GatewaysSpec, IpVersion, ScenarioCase, ScenarioFlow,
    SplitMode,
};
use tcp::Config;
use units::Instant;

use super::network::{ConnectionNodes, NodesByRole, RelayHop};
use crate::apps::{
    BulkAmount, BulkTransfer, BundleTransfer, CbrSource, FtpTransfer, MailTransfer, PageLoads,
    RequestReply, ResolutionSetup, WebUsers,
};
use crate::connection::contents::StreamContents;
use crate::connection::path::{ConnectionPath, PathLeg};
use crate::connection::turn::ExchangeSizes;
use crate::ids::{AppId, NodeId};
use crate::network::packet::headers_of;
use crate::world::{App, World};

/// Size of a TCP header without options, in bytes.
const TCP_HEADER: usize = 20;

/// Starts the applications of a case on its nodes.
pub(super) struct AppStarter<'a> {
    pub(super) case: &'a ScenarioCase,
    pub(super) nodes: &'a NodesByRole,
}

impl AppStarter<'_> {
    /// Adds all applications to the world; returns the name of each flow with its applications.
    pub(super) fn start(&self, world: &mut World) -> Vec<(String, Vec<AppId>)> {
        let flow = |flow: &ScenarioFlow| {
            let all = (0..flow.count).map(|number| self.start_one(world, flow, number));
            (flow.name.clone(), all.collect())
        };
        self.case.flows.iter().map(flow).collect()
    }

    fn start_one(&self, world: &mut World, flow: &ScenarioFlow, number: u32) -> AppId {
        let start = Instant::ZERO + flow.start + flow.spacing * number;
        let ends = self.nodes.ends(number, flow.platform, self.case.network.mesh);
        let path = || Arc::new(self.path(ends, flow));
        let until = |time: Option<Duration>| start + time.unwrap_or(self.case.time);
        let app: Box<dyn App> = match &flow.traffic {
            FlowTraffic::Bulk { direction, amount } => {
                let amount = bulk_amount(amount, start);
                let mut bulk = BulkTransfer::new(path(), *direction, amount, start);
                bulk.watch = recording_name(flow, number);
                Box::new(bulk)
            }
            FlowTraffic::Request { request, reply, think, repeat } => {
                let turn = ExchangeSizes { request: *request, reply: *reply };
                let requests = RequestReply::new(path(), turn, *think, *repeat, start);
                Box::new(requests.by_name(self.resolution(world, flow, vec![ends])))
            }
            FlowTraffic::Ftp { direction, bytes, think, repeat } => {
                Box::new(FtpTransfer::new(path(), *direction, *bytes, start, *repeat, *think))
            }
            FlowTraffic::Mail { bytes, pipelining, think, repeat } => {
                Box::new(MailTransfer::new(path(), *bytes, *pipelining, start, *repeat, *think))
            }
            FlowTraffic::Bundles { direction, bytes, bundle, window } => {
                let hops = path().hops(*direction);
                Box::new(BundleTransfer::new(hops, [*bytes, *bundle], *window, start))
            }
            FlowTraffic::Page { method, request, objects, names, think, repeat } => {
                let objects = Arc::clone(objects);
                let page =
                    PageLoads::new(path(), *method, *request, objects, start, *repeat, *think);
                Box::new(page.on_names(*names, self.resolution(world, flow, vec![ends])))
            }
            FlowTraffic::Users { every, request, sizes, time } => {
                let span = [start, until(*time)];
                let paths = self.all_paths(flow);
                let seed = world.draw_seed();
                let users = WebUsers::new(paths, *every, *request, *sizes, span, seed);
                let ends = self.all_ends(flow).collect();
                Box::new(users.by_name(self.resolution(world, flow, ends)))
            }
            FlowTraffic::Udp { direction, rate, size, dscp, time } => {
                let [from, to] = sender_first(ends, *direction);
                Box::new(CbrSource {
                    from,
                    to,
                    rate: *rate,
                    size: *size,
                    dscp: *dscp,
                    ip: flow.ip,
                    start,
                    stop: until(*time),
                })
            }
        };
        world.add_app(app)
    }

    /// Reduces the MSS so that segments with IPv6 headers fit the hop. The MSS for IPv4 is the file's.
    fn fitting(&self, config: &Arc<Config>, ip: IpVersion) -> Arc<Config> {
        let headers = (headers_of(ip) + TCP_HEADER) as u16;
        let most = self.case.hop.mtu - headers;
        if ip == IpVersion::Ipv4 || config.mss <= most {
            return Arc::clone(config);
        }
        Arc::new(Config { mss: most, ..(**config).clone() })
    }

    /// Returns the paths of users, one for each client.
    fn all_paths(&self, flow: &ScenarioFlow) -> Vec<Arc<ConnectionPath>> {
        self.all_ends(flow).map(|ends| Arc::new(self.path(ends, flow))).collect()
    }

    fn all_ends(&self, flow: &ScenarioFlow) -> impl Iterator<Item = ConnectionNodes> {
        let on = flow.platform;
        let mesh = self.case.network.mesh;
        (0..self.nodes.count_clients(on)).map(move |number| self.nodes.ends(number, on, mesh))
    }

    /// Returns the name resolution of the flow's clients at these ends, if the case has one.
    fn resolution(
        &self,
        world: &mut World,
        flow: &ScenarioFlow,
        ends: Vec<ConnectionNodes>,
    ) -> Option<ResolutionSetup> {
        let spec = self.case.names?;
        let nodes = |ConnectionNodes { client, terminal, hub, .. }| [client, terminal, hub];
        let nodes = ends.into_iter().map(nodes).collect();
        let seed = world.draw_seed();
        Some(ResolutionSetup { spec, nodes, ip: flow.ip, seed })
    }

    fn path(&self, ends: ConnectionNodes, flow: &ScenarioFlow) -> ConnectionPath {
        let is_http = matches!(
            flow.traffic,
            FlowTraffic::Request { .. } | FlowTraffic::Page { .. } | FlowTraffic::Users { .. }
        );
        let Some((spec, cache)) = self.case.cache.zip(ends.cache).filter(|_| is_http) else {
            return self.path_of(ends, flow);
        };
        // Towards the server, the cache is a host with the server's settings.
        let far = self.fitting(&self.case.tcp[&flow.tcp[1]], flow.ip);
        let origin =
            ConnectionPath::direct(cache, ends.server, [Arc::clone(&far), far]).over(flow.ip);
        self.path_of(ConnectionNodes { server: cache, ..ends }, flow).to_cache(spec, origin)
    }

    fn path_of(&self, ends: ConnectionNodes, flow: &ScenarioFlow) -> ConnectionPath {
        let path = self.route(ends, flow).over(flow.ip);
        let compress =
            self.case.gateways.as_ref().is_some_and(|gateways| gateways.compression.compress);
        if compress { path.carrying(StreamContents::new(&flow.contents)) } else { path }
    }

    /// Returns the case's gateways if they split connections, which some kinds do not.
    fn splitting_gateways(&self) -> Option<&GatewaysSpec> {
        self.case.gateways.as_ref().filter(|gateways| match gateways.split {
            SplitMode::Packets | SplitMode::Window | SplitMode::Spacing => false,
            SplitMode::Two | SplitMode::ThreeTcp | SplitMode::ThreeSlacp => true,
        })
    }

    fn route(
        &self,
        ConnectionNodes { client, terminal, hub, server, .. }: ConnectionNodes,
        flow: &ScenarioFlow,
    ) -> ConnectionPath {
        let tcp = |name: &String| self.fitting(&self.case.tcp[name], flow.ip);
        let [near, far] = flow.tcp.each_ref().map(tcp);
        let Some(gateways) = self.splitting_gateways() else {
            return ConnectionPath::direct(client, server, [near, far]);
        };
        let [lan, hop] = [&gateways.lan_tcp, &gateways.tcp].map(tcp);
        let between = |tcp: &Arc<Config>| PathLeg::Tcp(Arc::clone(tcp), Arc::clone(tcp));
        let is_slacp = gateways.split == SplitMode::ThreeSlacp;
        let mut nodes = vec![hub];
        let mut legs = Vec::new();
        if gateways.split == SplitMode::Two {
            // The only gateway is at the hub, so its TCP towards the client is the one on the hop.
            legs.push(PathLeg::Tcp(near, Arc::clone(&hop)));
        } else {
            nodes.insert(0, terminal);
            legs.push(PathLeg::Tcp(near, Arc::clone(&lan)));
            legs.push(if is_slacp { PathLeg::Slacp } else { between(&hop) });
        }
        // A SLACP hop has a gateway at both ends; TCP splits at each hub only.
        for RelayHop { station, hub } in self.nodes.relays(hub) {
            if is_slacp {
                nodes.extend([*station, *hub]);
                legs.extend([between(&lan), PathLeg::Slacp]);
            } else {
                nodes.push(*hub);
                legs.push(between(&hop));
            }
        }
        legs.push(PathLeg::Tcp(lan, far));
        ConnectionPath::split(client, &nodes, server, legs)
    }
}

fn sender_first(ends: ConnectionNodes, direction: Direction) -> [NodeId; 2] {
    match direction {
        Direction::Down => [ends.server, ends.client],
        Direction::Up => [ends.client, ends.server],
    }
}

fn bulk_amount(size: &FlowSize, start: Instant) -> BulkAmount {
    match size {
        FlowSize::Bytes(bytes) => BulkAmount::Bytes(*bytes),
        FlowSize::Time(time) => BulkAmount::Until(start + *time),
    }
}

/// Returns the name under which a flow's transfer is recorded; [`None`] if it is not to be.
fn recording_name(flow: &ScenarioFlow, number: u32) -> Option<String> {
    flow.watch.then(|| match flow.count {
        1 => flow.name.clone(),
        _ => format!("{}-{}", flow.name, number + 1),
    })
}
