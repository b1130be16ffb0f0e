//! The gateway's nftables table, which redirects new TCP connections to its listeners.
//!
//! The chain `prerouting` is on the hook. It passes SYNs to `intercept` (where clients are), then
//! to `policies`, then to `takeover`. All but the first are emptied when interception stops:
//! packets of relayed connections must keep reaching their sockets, while new connections pass
//! unaccelerated. Only SYNs are redirected: a later packet of a connection that passed must never
//! reach a listener, which would reset the connection.
//!
//! A SYN whose route leads to other clients passes ([`LanRoutes`]). The hook runs after the operator's
//! translation of destinations, so it is the route of the final destination. A withheld SYN is reinjected
//! on loopback without that translation, so SYNs with a translated destination are not withheld.
//!
//! On a bridge whose frames pass through these hooks ([`FilteredBridge`]) the kernel loses the socket that
//! `tproxy` chose. SYNs from there are withheld, and reinjected on loopback at once.
//!
//! Redirected SYNs and the answers to them are logged to the gateway ([`AnswerTap`]), which compares the
//! two.
//!
//! [`AnswerTap`]: crate::intercept::answer_tap::AnswerTap
//!
//! The chain `interfaces` is never called. Its rules name the interfaces whose connections are this gateway's,
//! also while none is intercepted, for other gateways of the machine ([`shared_interfaces`]).
//!
//! [`shared_interfaces`]: crate::intercept::shared_interfaces
//!
//! SYNs and UDP datagrams that a policy refuses are dropped and logged to the gateway, which answers them
//! ([`Refuser`]). UDP comes to `datagrams`, and from there to `datagram-policies`. What begins a QUIC flow,
//! which the rules recognise as [`begins_quic`] does, passes when there is too much of it to log.
//!
//! [`Refuser`]: crate::intercept::refuser::Refuser
//! [`begins_quic`]: pep::traffic::quic::begins_quic
//!
//! A resolver adds chains that are called first: `names`, for SYNs and packets other than TCP, and `pool`,
//! for other segments that belong to no connection of the gateway. Packets to addresses that stand for
//! names are redirected or rejected as long as the gateway runs; DNS queries are redirected only while
//! they are answered.
//!
//! Interception of the machine's own connections adds four chains: `output` on the hook, `own`,
//! `own-policies` and `own-takeover`. Their SYNs are marked, and thereby routed to loopback, where
//! they come in again and are intercepted. Later packets must take the same path, which the
//! connection mark (conntrack) selects: a set of addresses and ports would need a time-out, and an
//! idle connection outlives any. The gateway's own packets bear another mark, [`PASS_MARK`], and pass.

mod refusals;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use pep::traffic::{IpFamily, PolicyAction, PolicySubject, Prefix, TCP, TrafficPolicy, UDP};

use crate::figures::refused_connections::PassExemptions;
use crate::intercept::bridges::FilteredBridge;
use crate::intercept::lan_routes::LanRoutes;
use crate::network::namespace_slot::{NamespaceSlot, SLOTS};
use crate::network::nft::rule::{FirewallMark, PASS_MARK, Term};
use crate::network::nft::table::{Hook, NftChain, NftRule, NftTable};
use crate::network::nft::{self, policy};

const HOOK_CHAIN: &str = "prerouting";
const INTERCEPT_CHAIN: &str = "intercept";
const POLICY_CHAIN: &str = "policies";
const TAKEOVER_CHAIN: &str = "takeover";
/// The chain that names the clients' interfaces.
pub(crate) const INTERFACE_CHAIN: &str = "interfaces";
/// The chain that watches answers to clients.
const ANSWER_CHAIN: &str = "answers";
const NAMES_CHAIN: &str = "names";
const POOL_CHAIN: &str = "pool";
const DATAGRAM_CHAIN: &str = "dns-policies-udp";
const CONNECTION_CHAIN: &str = "dns-policies-tcp";
const QUESTION_CHAIN: &str = "dns";
const OUTPUT_CHAIN: &str = "output";
const UDP_CHAIN: &str = "datagrams";
const UDP_POLICY_CHAIN: &str = "datagram-policies";
const REFUSAL_CHAIN: &str = "refusals";
const QUIC_REFUSAL_CHAIN: &str = "quic-refusals";
const OWN_CHAIN: &str = "own";
const OWN_POLICY_CHAIN: &str = "own-policies";
const OWN_TAKEOVER_CHAIN: &str = "own-takeover";
/// Deciding chains for clients' traffic, callees first.
const CLIENT_CHAINS: [&str; 7] = [
    REFUSAL_CHAIN,
    QUIC_REFUSAL_CHAIN,
    TAKEOVER_CHAIN,
    POLICY_CHAIN,
    INTERCEPT_CHAIN,
    UDP_POLICY_CHAIN,
    UDP_CHAIN,
];
/// Number of deciding chains for the machine's own connections.
const OWN_CHAINS: usize = 3;
const DNS: u16 = 53;
const LOOPBACK: &str = "lo";
/// Netlink log group of the first slot.
const FIRST_GROUP: u16 = 5900;
/// Maximum SYNs and answers logged per second. The limit of answers is the higher one: a SYN whose answer
/// was not logged would count as unanswered.
const LOGGED_SYNS: u32 = 200;
pub(crate) const LOGGED_ANSWERS: u32 = 2000;
/// Priority of the chain that logs answers, relative to NF_IP_PRI_MANGLE: after the operator's filters of
/// outgoing packets, so that an answer that they drop is not logged.
const BEHIND_FILTERS: i32 = 400;

/// A gateway's slot in a network namespace. It determines the names of its table, packet mark and
/// routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GatewaySlot(pub(crate) u32);

/// Its mark is that of packets for our listeners.
impl NamespaceSlot for GatewaySlot {
    const TABLE_PREFIX: &'static str = "skyhop";
    const MARK_SHIFT: u32 = 20;
    const FIRST_ROUTING_TABLE: u32 = 5900;
    const IS_LOCAL: bool = true;

    fn new(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

impl GatewaySlot {
    /// Mark of withheld SYNs that are reinjected.
    pub(crate) fn reinjection_mark(self) -> FirewallMark {
        let mark = self.mark();
        FirewallMark { value: mark.value | PASS_MARK.value, mask: mark.mask | PASS_MARK.mask }
    }

    /// Mark of this machine's own SYNs on their way through loopback.
    fn loopback_mark(self) -> FirewallMark {
        FirewallMark { value: self.mark().value, ..self.reinjection_mark() }
    }

    /// Log group for withheld SYNs.
    pub(crate) fn log_group(self) -> u16 {
        FIRST_GROUP + self.0 as u16
    }

    /// Log group for redirected SYNs and answers.
    pub(crate) fn watch_group(self) -> u16 {
        self.log_group() + SLOTS as u16
    }

    /// Log group for packets to refuse.
    pub(crate) fn refusal_group(self) -> u16 {
        self.watch_group() + SLOTS as u16
    }
}

/// Destinations whose new connections are intercepted now, as far as the configuration allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    Nothing,
    Everything,
    /// These networks. Not empty: see [`Self::only`].
    Only(Vec<Prefix>),
    /// These TCP ports. Not empty: see [`Self::ports`].
    Ports(Vec<u16>),
}

impl Scope {
    /// Scope of these networks; [`Self::Nothing`] if the list is empty.
    pub(crate) fn only(networks: Vec<Prefix>) -> Self {
        if networks.is_empty() { Self::Nothing } else { Self::Only(networks) }
    }

    /// Scope of these ports; [`Self::Nothing`] if the list is empty.
    pub(crate) fn ports(ports: &[u16]) -> Self {
        if ports.is_empty() { Self::Nothing } else { Self::Ports(ports.to_vec()) }
    }

    /// Returns the matches of the destinations, one rule for each network or port.
    fn terms(&self) -> Vec<NftRule> {
        match self {
            Self::Nothing => vec![],
            Self::Everything => vec![vec![]],
            Self::Only(networks) => networks.iter().map(to).collect(),
            Self::Ports(ports) => {
                ports.iter().map(|port| vec![Term::ToPorts(TCP, *port, *port)]).collect()
            }
        }
    }
}

/// Matches a destination network: its IP version, then the address.
pub(crate) fn to(network: &Prefix) -> NftRule {
    vec![Term::Version(IpFamily::of(network.address())), Term::ToPrefix(*network)]
}

/// Selection of the connections to intercept, from which the table's rules are generated.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) interfaces: Vec<String>,
    pub(crate) policies: Vec<TrafficPolicy>,
    /// Destinations and clients that pass unaccelerated, whatever the policies say.
    pub(crate) exemptions: PassExemptions,
    /// Clients that pass unaccelerated because they get no answers.
    pub(crate) unanswered: Vec<Prefix>,
    /// Destinations that are routed to clients, and so pass.
    pub(crate) lans: LanRoutes,
    /// Those of the interfaces on which `tproxy` does not work.
    pub(crate) bridges: Vec<FilteredBridge>,
    /// Withhold SYNs from these bridges; otherwise they pass.
    pub(crate) can_withhold: bool,
    /// Log SYNs and answers, to find clients without answers.
    pub(crate) watched: bool,
    /// Drop and log what policies refuse; otherwise these policies have no effect.
    pub(crate) can_refuse: bool,
    /// Loopback ports of the listeners.
    pub(crate) listeners: Vec<(IpFamily, u16)>,
    /// Withhold and log SYNs instead of redirecting them.
    pub(crate) deferred: bool,
    /// Intercept this machine's own connections too.
    pub(crate) own_traffic: bool,
    /// Redirection to the resolver; [`None`] without a resolver.
    pub(crate) names: Option<NameRules>,
}

/// Selection of the packets to redirect to a terminal's resolver.
#[derive(Debug, Clone)]
pub(crate) struct NameRules {
    /// Loopback ports of the listeners for connections.
    pub(crate) connections: Vec<(IpFamily, u16)>,
    /// Sockets for queries over UDP.
    pub(crate) questions: Vec<SocketAddr>,
    /// Addresses that stand for names.
    pub(crate) pool: Vec<Prefix>,
    /// Resolvers to which queries pass.
    pub(crate) bypass: Vec<Prefix>,
    /// Addresses of this machine at which the resolver answers.
    pub(crate) listen: Vec<IpAddr>,
    /// Set while queries are answered.
    pub(crate) answering: bool,
    /// Redirect queries to any resolver, not only to `listen`.
    pub(crate) intercept: bool,
}

impl NameRules {
    /// Reduces the listeners to the versions whose packets can be redirected.
    fn of_versions(&self, usable: impl Fn(IpFamily) -> bool) -> Self {
        let mut names = self.clone();
        names.connections.retain(|(version, _)| usable(*version));
        names.questions.retain(|socket| usable(IpFamily::of(socket.ip())));
        names
    }

    /// Returns the chains for names, callees first.
    fn chains(
        &self,
        slot: GatewaySlot,
        interfaces: &[&String],
        policies: &[TrafficPolicy],
    ) -> Vec<NftChain> {
        let policies = |subject| {
            let usual = || vec![Term::Goto(QUESTION_CHAIN)];
            policy::chain(
                policies,
                subject,
                |_| false,
                usual(),
                |policy| match policy.action {
                    PolicyAction::Split | PolicyAction::Tunnel => usual(),
                    // What is refused is so in other chains.
                    PolicyAction::Bypass | PolicyAction::Refuse => vec![Term::Return],
                },
            )
        };
        let mut chains = vec![
            NftChain::plain(QUESTION_CHAIN, self.questions(slot)),
            NftChain::plain(DATAGRAM_CHAIN, policies(PolicySubject::Packets)),
            NftChain::plain(CONNECTION_CHAIN, policies(PolicySubject::Connections)),
        ];
        if !self.answering {
            chains.iter_mut().for_each(|chain| chain.rules.clear());
        }
        let each =
            || interfaces.iter().map(|interface| vec![Term::FromInterface((*interface).clone())]);
        let names = each().flat_map(|from| self.names(slot, &from)).collect();
        let pool = each().flat_map(|from| {
            let refused = [Term::Tcp, Term::RejectReset];
            self.pool.iter().map(move |pool| [&from[..], &to(pool), &refused].concat())
        });
        let pool = pool.collect();
        chains.extend([NftChain::plain(NAMES_CHAIN, names), NftChain::plain(POOL_CHAIN, pool)]);
        chains
    }

    /// Returns the rules for packets from an interface: connections to the pool, other packets to the
    /// pool, queries.
    fn names(&self, slot: GatewaySlot, from: &[Term]) -> Vec<NftRule> {
        let mut rules = Vec::new();
        for pool in &self.pool {
            let version = IpFamily::of(pool.address());
            let taken = self.connections.iter().filter(|(of, _)| *of == version);
            rules.extend(taken.map(|(version, port)| {
                [from, &to(pool), &[Term::Tcp], &tproxy(slot, *version, *port)].concat()
            }));
            // Nothing else can be reached at an address that stands for a name.
            rules.push([from, &to(pool), &[Term::Tcp, Term::RejectReset]].concat());
            rules.push([from, &to(pool), &[Term::NotTcp, Term::RejectUnreachable]].concat());
        }
        if !self.answering {
            return rules;
        }
        let here = self.listen.iter().map(|address| to(&Prefix::host(*address)));
        let elsewhere = self.intercept.then(|| vec![Term::NotToThisMachine]);
        for destination in here.chain(elsewhere) {
            // A resolver behind the terminal asks without recursion, and would take our answers for those
            // of a lame server.
            let question = [Term::ToPorts(UDP, DNS, DNS), Term::RecursionDesired];
            let datagrams = [&question[..], &[Term::Goto(DATAGRAM_CHAIN)]].concat();
            let connections = [Term::ToPorts(TCP, DNS, DNS), Term::Goto(CONNECTION_CHAIN)];
            rules.push([from, &destination, &datagrams].concat());
            rules.push([from, &destination, &connections].concat());
        }
        rules
    }

    /// Returns the rules that redirect queries to the resolver.
    fn questions(&self, slot: GatewaySlot) -> Vec<NftRule> {
        let left_alone = self.bypass.iter().map(|prefix| [to(prefix), vec![Term::Return]].concat());
        let over_udp = self.questions.iter().map(|socket| {
            let version = IpFamily::of(socket.ip());
            let end = [Term::TproxyTo(*socket), Term::SetMark(slot.mark()), Term::Accept];
            [&[Term::Version(version), Term::Udp], &end[..]].concat()
        });
        let over_tcp = self.connections.iter().map(|(version, port)| {
            [&[Term::Version(*version), Term::Tcp], &tproxy(slot, *version, *port)[..]].concat()
        });
        left_alone.chain(over_udp).chain(over_tcp).collect()
    }
}

impl Rules {
    /// Returns the chains that decide which connections are intercepted, callees first.
    fn deciding_chains(&self, slot: GatewaySlot, scope: &Scope) -> Vec<NftChain> {
        let rules_of = |name: &str| match name {
            REFUSAL_CHAIN => self.refusal(slot),
            QUIC_REFUSAL_CHAIN => self.quic_refusal(slot),
            TAKEOVER_CHAIN => self.takeover(slot),
            POLICY_CHAIN => self.policy(TAKEOVER_CHAIN, scope),
            INTERCEPT_CHAIN => self.intercept(slot, scope),
            UDP_POLICY_CHAIN => self.datagram_policies(scope),
            _ => self.datagrams(scope),
        };
        let mut chains: Vec<NftChain> =
            CLIENT_CHAINS.map(|name| NftChain::plain(name, rules_of(name))).into();
        if self.own_traffic {
            chains.extend([
                NftChain::plain(OWN_TAKEOVER_CHAIN, self.own_takeover(slot)),
                NftChain::plain(OWN_POLICY_CHAIN, self.policy(OWN_TAKEOVER_CHAIN, scope)),
                NftChain::plain(OWN_CHAIN, self.own(scope)),
            ]);
        }
        // Emptied, not removed: the chains on hooks jump to them.
        if *scope == Scope::Nothing {
            chains.iter_mut().for_each(|chain| chain.rules.clear());
        }
        if let Some(names) = &self.names {
            let usable = |version| self.listeners.iter().any(|(of, _)| *of == version);
            let names = names.of_versions(usable);
            // On bridges with filtered frames, redirected queries would be lost.
            let usable = self.interfaces.iter().filter(|name| self.bridge(name).is_none());
            chains.extend(names.chains(slot, &usable.collect::<Vec<_>>(), &self.policies));
        }
        chains.push(interface_chain(&self.claimed_interfaces()));
        chains
    }

    /// Returns the interfaces whose connections are this gateway's; loopback stands for the machine's own.
    pub(crate) fn claimed_interfaces(&self) -> Vec<String> {
        claimed_interfaces(&self.interfaces, self.own_traffic)
    }

    /// Returns the rules that match new connections by interface and destination.
    fn intercept(&self, slot: GatewaySlot, scope: &Scope) -> Vec<NftRule> {
        let from = |interface: &str| Term::FromInterface(interface.to_owned());
        let mut rules = Vec::new();
        if self.deferred || !self.bridges.is_empty() {
            // Reinjected SYNs come in by loopback.
            for &(version, port) in &self.listeners {
                let let_in = [from(LOOPBACK), Term::HasMark(slot.reinjection_mark())];
                let listener = tproxy(slot, version, port);
                rules.push([&let_in[..], &[Term::Version(version), Term::Tcp], &listener].concat());
            }
        }
        if self.own_traffic {
            let round =
                [from(LOOPBACK), Term::HasMark(slot.loopback_mark()), Term::Goto(TAKEOVER_CHAIN)];
            rules.push(round.to_vec());
        }
        let decide = |within: NftRule| {
            [&within[..], &[Term::NotToThisMachine, Term::Tcp, Term::Goto(POLICY_CHAIN)]].concat()
        };
        let decide: Vec<NftRule> = scope.terms().into_iter().map(decide).collect();
        rules.extend(self.client_rules(scope, &decide));
        rules
    }

    /// Returns the rules that apply `decide` to what comes from clients and does not stay on their side.
    fn client_rules(&self, scope: &Scope, decide: &[NftRule]) -> Vec<NftRule> {
        let from = |interface: &str| Term::FromInterface(interface.to_owned());
        let mut rules = Vec::new();
        // Configured networks lie across the hop, whatever other routes there are.
        let nowhere = LanRoutes::default();
        let lans = if matches!(scope, Scope::Only(_)) { &nowhere } else { &self.lans };
        for interface in &self.interfaces {
            // A frame that the bridge forwards from client to client is not for this machine.
            let station = self.bridge(interface).map(|bridge| Term::NotToMac(bridge.station));
            rules.extend(station.map(|other| vec![from(interface), other, Term::Return]));
            rules.extend(lans.rules(interface, decide));
        }
        rules
    }

    /// Finds the interface among the bridges on which `tproxy` does not work.
    fn bridge(&self, interface: &str) -> Option<&FilteredBridge> {
        self.bridges.iter().find(|bridge| bridge.name == interface)
    }

    /// Returns the rules that match this machine's own new connections. Connections to the clients' side
    /// would gain nothing and pass.
    fn own(&self, scope: &Scope) -> Vec<NftRule> {
        let nearby = |interface: &String| vec![Term::ToInterface(interface.clone()), Term::Return];
        let decide = [Term::NotToThisMachine, Term::Goto(OWN_POLICY_CHAIN)];
        let wanted = scope.terms().into_iter().map(|within| [&within[..], &decide].concat());
        self.interfaces.iter().map(nearby).chain(wanted).collect()
    }

    /// Returns the rules of the policies. Connections to split continue in `takeover`; others pass, or are
    /// refused.
    fn policy(&self, takeover: &'static str, scope: &Scope) -> Vec<NftRule> {
        let usual = vec![Term::Goto(takeover)];
        policy::chain(
            &self.policies,
            PolicySubject::Connections,
            |_| true,
            usual,
            |policy| match policy.action {
                PolicyAction::Split => vec![Term::Goto(takeover)],
                PolicyAction::Tunnel | PolicyAction::Bypass => vec![Term::Return],
                PolicyAction::Refuse if self.refuses(scope) => vec![Term::Goto(REFUSAL_CHAIN)],
                PolicyAction::Refuse => vec![],
            },
        )
    }

    /// Returns the rules that redirect or withhold a SYN that the policies have selected.
    fn takeover(&self, slot: GatewaySlot) -> Vec<NftRule> {
        let each = self.listeners.iter();
        let withhold = [Term::Log(slot.log_group()), Term::Drop];
        let mut rules: Vec<NftRule> = self.exemption_rules().collect();
        if self.deferred {
            // Reinjected without the translation, the SYN would go to its original destination.
            rules.push(vec![Term::HasTranslatedDestination, Term::Return]);
            let of = |version| [&[Term::Version(version), Term::Tcp][..], &withhold].concat();
            rules.extend(each.map(|(version, _)| of(*version)));
            return rules;
        }
        for bridge in &self.bridges {
            let from = Term::FromInterface(bridge.name.clone());
            rules.push(vec![from.clone(), Term::HasTranslatedDestination, Term::Return]);
            let lost = each.clone().filter(|(version, _)| bridge.loses_socket(*version));
            let end = if self.can_withhold { &withhold[..] } else { &[Term::Return] };
            rules.extend(lost.map(|(version, _)| {
                [&[from.clone(), Term::Version(*version), Term::Tcp], end].concat()
            }));
        }
        if self.watched {
            // A rule of its own: SYNs beyond the limit are redirected without being logged.
            rules.push(vec![Term::RateLimit(LOGGED_SYNS), Term::Log(slot.watch_group())]);
        }
        rules.extend(each.map(|(version, port)| {
            [&[Term::Version(*version), Term::Tcp], &tproxy(slot, *version, *port)[..]].concat()
        }));
        rules
    }

    /// Returns the rules that let exempt destinations and clients pass.
    fn exemption_rules(&self) -> impl Iterator<Item = NftRule> {
        let destinations = self.exemptions.destinations.iter().map(|destination| {
            let port = Term::ToPorts(TCP, destination.port(), destination.port());
            [to(&Prefix::host(destination.ip())), vec![port, Term::Return]].concat()
        });
        destinations.chain(self.exempt_clients())
    }

    /// Returns the rules that let exempt clients pass.
    fn exempt_clients(&self) -> impl Iterator<Item = NftRule> {
        let refused = self.exemptions.clients.iter().map(|client| Prefix::of_client(*client));
        refused.chain(self.unanswered.iter().copied()).map(|client| {
            let version = Term::Version(IpFamily::of(client.address()));
            vec![version, Term::FromPrefix(client), Term::Return]
        })
    }

    /// Returns the rules that send a selected SYN of this machine through loopback.
    fn own_takeover(&self, slot: GatewaySlot) -> Vec<NftRule> {
        let round = |&(version, _): &(IpFamily, u16)| {
            let mark = [Term::MarkConnection(slot.mark()), Term::SetMark(slot.mark())];
            [&[Term::Version(version)], &mark[..], &[Term::Accept]].concat()
        };
        let translated = self.deferred.then(|| vec![Term::HasTranslatedDestination, Term::Return]);
        self.exemption_rules().chain(translated).chain(self.listeners.iter().map(round)).collect()
    }

    /// Formats the whole table in nft syntax, as `nft -f` accepts it.
    pub(crate) fn display(&self, slot: GatewaySlot, scope: &Scope) -> String {
        let mut chains = self.deciding_chains(slot, scope);
        // Callees come first: each chain on a hook follows the chains that it jumps to.
        let mut own = chains.split_off(CLIENT_CHAINS.len());
        chains.extend(own.split_off(if self.own_traffic { OWN_CHAINS } else { 0 }));
        chains.push(hook(slot, self.names.is_some()));
        chains.extend(own);
        chains.extend(self.own_traffic.then(|| output(slot)));
        chains.extend(self.watched.then(|| answers(slot)));
        let counters = policy::counters(&self.policies, self.counted());
        nft::table::display(&slot.table_name(), &counters, &chains)
    }
}

/// Returns the terms that redirect a SYN to a listener.
fn tproxy(slot: GatewaySlot, version: IpFamily, port: u16) -> [Term; 3] {
    [Term::Tproxy(version, port), Term::SetMark(slot.mark()), Term::Accept]
}

/// Builds the chain for incoming packets.
fn hook(slot: GatewaySlot, names: bool) -> NftChain {
    let mut rules = vec![
        vec![Term::Udp, Term::Jump(UDP_CHAIN)],
        vec![Term::Tcp, Term::OnlySyn, Term::Jump(INTERCEPT_CHAIN)],
        // Later packets of relayed connections, also after interception has stopped.
        vec![Term::Tcp, Term::OfTransparentSocket, Term::SetMark(slot.mark()), Term::Accept],
    ];
    if names {
        // First: packets to addresses that stand for names are taken as long as the gateway runs. What
        // policies refuse is refused before, by the gateway: the kernel answers about one datagram a second of each client.
        rules.insert(1, vec![Term::Tcp, Term::OnlySyn, Term::Jump(NAMES_CHAIN)]);
        rules.insert(2, vec![Term::NotTcp, Term::Jump(NAMES_CHAIN)]);
        // Last: segments of connections that the gateway carries have been accepted by then.
        rules.push(vec![Term::Tcp, Term::Jump(POOL_CHAIN)]);
    }
    NftChain::on_hook(HOOK_CHAIN, Hook::prerouting(0), rules)
}

/// Builds the chain for locally sent packets.
fn output(slot: GatewaySlot) -> NftChain {
    let rules = vec![
        vec![Term::Tcp, Term::HasMark(PASS_MARK), Term::Accept],
        // A SYN that passes must not keep the mark of an earlier connection.
        vec![
            Term::Tcp,
            Term::OnlySyn,
            Term::MarkConnection(slot.mark().cleared()),
            Term::Goto(OWN_CHAIN),
        ],
        vec![
            Term::Tcp,
            Term::ConnectionHasMark(slot.mark()),
            Term::SetMark(slot.mark()),
            Term::Accept,
        ],
    ];
    NftChain::on_hook(OUTPUT_CHAIN, Hook::output(0), rules)
}

/// Builds the chain that logs the SYN-ACKs which this machine sends from the addresses of destinations.
fn answers(slot: GatewaySlot) -> NftChain {
    let answer = [Term::Tcp, Term::SynAck, Term::NotFromThisMachine];
    let log = [Term::RateLimit(LOGGED_ANSWERS), Term::Log(slot.watch_group())];
    let rules = vec![[&answer[..], &log].concat()];
    NftChain::on_hook(ANSWER_CHAIN, Hook::sent(BEHIND_FILTERS), rules)
}

/// See [`Rules::claimed_interfaces`].
pub(crate) fn claimed_interfaces(clients: &[String], own_traffic: bool) -> Vec<String> {
    clients.iter().cloned().chain(own_traffic.then(|| LOOPBACK.to_owned())).collect()
}

/// Builds the chain that names interfaces.
fn interface_chain(interfaces: &[String]) -> NftChain {
    let named = interfaces.iter().map(|name| vec![Term::FromInterface(name.clone())]);
    NftChain::plain(INTERFACE_CHAIN, named.collect())
}

/// Builds plain chains without rules.
fn empty<const N: usize>(names: [&'static str; N]) -> Vec<NftChain> {
    names.map(|name| NftChain::plain(name, vec![])).into()
}

/// The gateway's table in the kernel. Removed when dropped.
pub(crate) struct InterceptTable {
    table: NftTable,
    slot: GatewaySlot,
}

impl InterceptTable {
    /// Creates a table in the first free slot of this network namespace; with `names`, also the chains of
    /// a resolver. It names the interfaces ([`Rules::claimed_interfaces`]), and intercepts nothing yet.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn claim(names: bool, interfaces: &[String]) -> io::Result<Self> {
        let chains = |slot| {
            let mut chains = empty(CLIENT_CHAINS);
            if names {
                let questions = [QUESTION_CHAIN, DATAGRAM_CHAIN, CONNECTION_CHAIN];
                chains.extend(empty(questions));
                chains.extend(empty([NAMES_CHAIN, POOL_CHAIN]));
            }
            chains.extend(empty([INTERFACE_CHAIN]));
            chains.push(hook(slot, names));
            chains
        };
        let (slot, mut table) = NftTable::claim(GatewaySlot::all(), chains)?;
        table.refill(&[interface_chain(interfaces)], &[], &[PolicySubject::Connections])?;
        Ok(Self { table, slot })
    }

    pub(crate) fn slot(&self) -> GatewaySlot {
        self.slot
    }

    /// Adds the chains for the machine's own connections.
    pub(crate) fn add_own(&self) -> io::Result<()> {
        let mut chains = empty([OWN_TAKEOVER_CHAIN, OWN_POLICY_CHAIN, OWN_CHAIN]);
        chains.push(output(self.slot));
        self.table.add(&chains)
    }

    /// Adds the chain that logs answers.
    pub(crate) fn add_watch(&self) -> io::Result<()> {
        self.table.add(&[answers(self.slot)])
    }

    /// Intercepts the connections that `rules` select within `scope` from now on. Existing connections
    /// are kept. If the policies have changed, all counters restart at 0.
    pub(crate) fn apply(&mut self, rules: &Rules, scope: &Scope) -> io::Result<()> {
        let chains = rules.deciding_chains(self.slot, scope);
        self.table.refill(&chains, &rules.policies, rules.counted())
    }

    /// Reads the number of connections and datagrams decided by each policy, by the counter's name.
    pub(crate) fn counts(&self) -> io::Result<BTreeMap<String, u64>> {
        self.table.counts()
    }
}

#[cfg(test)]
mod tests;
