//! An nftables table of our own that marks packets for the tunnel. All chains except those on hooks
//! are empty while no packets are to be taken.
//!
//! TCP is decided once, at the SYN, and remembered in the connection mark (conntrack). Deciding per
//! packet would fail: replies have no destination port that a policy could match, programs change
//! the DSCP of open connections, and a changed policy would move live ones. Packets from the tunnel
//! mark their connection too, so that replies return through the tunnel.
//!
//! While a terminal translates its clients to an address of the hub's ([`Translation::ToDevice`]), every flow is
//! decided once, at its first packet: its translation cannot change later. If the route of a translated flow changes
//! because the tunnel closes, the kernel forgets it (`nf_nat_oif_changed`), or when the device goes; its next packet
//! begins another one. A flow that has begun outside of the tunnel has no translation, so it stays outside. It is
//! marked and counted, and forgotten within half a second ([`crate::services::tunnel`]), which lets its next packet in.

use pep::traffic::{IpFamily, PolicyAction, PolicySubject, Prefix, TrafficPolicy};

use super::admit::{self, Admitted};
use crate::intercept::lan_routes::LanRoutes;
use crate::intercept::netfilter::to;
use crate::network::nft::policy;
use crate::network::nft::rule::{FirewallMark, REFUSED, Term};
use crate::network::nft::table::{Hook, NftChain, NftRule};
use crate::network::tun::table::{BEHIND_INTERCEPTION, DeviceRules};

/// Chain that selects traffic by source and destination.
const CHAIN: &str = "tunnel";
/// Chain that selects traffic of this machine itself.
const OWN_CHAIN: &str = "own";
/// Chain for packets from the tunnel.
const ADMITTED: &str = "admitted";
/// Chain for traffic that may cross the hop unsplit.
const WHOLE: &str = "whole";
/// Chain for packets that take the tunnel if their flow is translated.
const TRANSLATED: &str = "translated";
/// Chain that translates source addresses.
const SOURCES: &str = "sources";
const V4: Term = Term::Version(IpFamily::V4);
const CONNECTIONS: &str = "new-connections";
const PACKETS: &str = "other-packets";
const FORWARDED: &str = "prerouting";
const OUTPUT: &str = "output";
/// Connection mark of flows that have begun outside of the tunnel, but should be in it. They are forgotten, those that pass
/// by a policy ([`PASSING`]) are not.
pub(super) const OUTSIDE: FirewallMark = FirewallMark { value: 1 << 29, mask: 1 << 29 };
/// Connection mark of QUIC flows that a policy lets pass.
const PASSING: FirewallMark = FirewallMark { value: 1 << 30, mask: 1 << 30 };
/// Packet mark bits of interception and tunnels of all gateways.
const ALL_MARKS: u32 = 0x1ff0_0000;

/// Selection of the packets that go through the tunnel.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) traffic: Traffic,
    pub(crate) policies: Vec<TrafficPolicy>,
    /// Rules for packets from the tunnel.
    pub(crate) admitted: Vec<Admitted>,
    /// Set if this table counts connections, because nothing intercepts them.
    pub(crate) counts_connections: bool,
    /// Translation of source addresses; `None` if clients' addresses are routed.
    pub(crate) translation: Option<Translation>,
    /// Set while the kernel forgets flows that have begun outside of a terminal's tunnel. An answer to one of them
    /// that is still under way would begin it anew, in the other direction, and so keep it outside.
    pub(crate) is_moving: bool,
}

/// Translation of source addresses, IPv4 only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translation {
    /// On a terminal: what enters the tunnel gets the address of the device.
    ToDevice,
    /// On a hub: what comes from these addresses gets that of the interface by which it leaves.
    Of(Prefix),
}

impl Translation {
    /// Order among other programs' chains. On a terminal ours comes first: a rule of the operator's for all
    /// interfaces would give packets an address that the hub does not accept. On a hub the operator may choose.
    fn hook(self) -> Hook {
        match self {
            Self::ToDevice => Hook::source_nat(-1),
            Self::Of(_) => Hook::source_nat(1),
        }
    }

    fn rules(self, device: &str) -> Vec<NftRule> {
        let device = Term::ToInterface(device.to_owned());
        match self {
            Self::ToDevice => vec![vec![V4, device, Term::Masquerade]],
            Self::Of(pool) => {
                vec![vec![device, Term::Return], vec![V4, Term::FromPrefix(pool), Term::Masquerade]]
            }
        }
    }
}

/// The direction of a tunnel.
#[derive(Debug, Clone)]
pub(crate) enum Traffic {
    /// On a terminal: packets from its clients, except TCP unless a policy says otherwise.
    OfClients {
        /// Names of the interfaces towards the clients.
        interfaces: Vec<String>,
        /// Also this machine's own connections, as far as policies select them.
        own: bool,
        /// Routes to clients, whose packets stay outside of the tunnel.
        lans: LanRoutes,
    },
    /// On a hub: packets to its terminals' clients, from anywhere.
    ToTerminals {
        /// UDP port of the hop, whose packets must not enter the tunnel.
        hop: u16,
    },
}

impl Traffic {
    /// Names of the interfaces towards clients; none on a hub.
    pub(crate) fn interfaces(&self) -> &[String] {
        match self {
            Self::OfClients { interfaces, .. } => interfaces,
            Self::ToTerminals { .. } => &[],
        }
    }

    /// Rules that select traffic to decide about, while the tunnel serves `networks`.
    fn selected(&self, networks: &[Prefix]) -> Vec<NftRule> {
        let onward: Vec<NftRule> = match self {
            Self::OfClients { interfaces, lans, .. } => {
                let decide = [vec![Term::NotToThisMachine, Term::ToUnicast, Term::Goto(WHOLE)]];
                interfaces.iter().flat_map(|interface| lans.rules(interface, &decide)).collect()
            }
            Self::ToTerminals { .. } => networks
                .iter()
                .map(|network| [to(network), vec![Term::Goto(WHOLE)]].concat())
                .collect(),
        };
        // Marked packets are decided: by interception, or by another gateway's tunnel.
        [vec![Term::HasAnyMark(ALL_MARKS), Term::Return]].into_iter().chain(onward).collect()
    }

    /// Rules that select this machine's own traffic; only for a terminal's connections.
    fn own(&self) -> Option<Vec<NftRule>> {
        let Self::OfClients { interfaces, own: true, .. } = self else { return None };
        let mut rules = vec![vec![Term::HasAnyMark(ALL_MARKS), Term::Return]];
        // What goes to the clients does not cross the hop.
        let leave = |interface: &String| vec![Term::ToInterface(interface.clone()), Term::Return];
        rules.extend(interfaces.iter().map(leave));
        rules.push(vec![Term::Tcp, Term::NotToThisMachine, Term::ToUnicast, Term::Goto(WHOLE)]);
        Some(rules)
    }

    /// The chains that the kernel's hooks enter first.
    fn hooks(&self, device: &str, mark: FirewallMark) -> Vec<NftChain> {
        let came = [Term::FromInterface(device.to_owned()), Term::MarkConnection(mark)];
        let admitted = vec![Term::FromInterface(device.to_owned()), Term::Jump(ADMITTED)];
        // Packets from the device are checked before they mark their connection, by which replies return
        // through the tunnel.
        let forwarded = vec![admitted, came.to_vec(), vec![Term::Jump(CHAIN)]];
        let prerouting = Hook::prerouting(BEHIND_INTERCEPTION);
        let mut chains = vec![NftChain::on_hook(FORWARDED, prerouting, forwarded)];
        let output = match self {
            Self::OfClients { own: false, .. } => return chains,
            Self::OfClients { own: true, .. } => vec![vec![Term::Jump(OWN_CHAIN)]],
            Self::ToTerminals { hop } => {
                // The hop's own packets would enter the tunnel that they carry.
                vec![vec![Term::UdpFrom(*hop), Term::Return], vec![Term::Jump(CHAIN)]]
            }
        };
        chains.push(NftChain::on_hook(OUTPUT, Hook::output(BEHIND_INTERCEPTION), output));
        chains
    }
}

impl DeviceRules for Selection {
    /// Networks to take packets for.
    type Scope = Vec<Prefix>;
    const LASTING_COUNTERS: &'static [&'static str] = &[REFUSED];

    fn policies(&self) -> &[TrafficPolicy] {
        &self.policies
    }

    fn counted(&self) -> &'static [PolicySubject] {
        if self.counts_connections {
            &[PolicySubject::Packets, PolicySubject::Connections]
        } else {
            &[PolicySubject::Packets]
        }
    }

    /// The deciding chains while the tunnel serves `networks`; without rules if there are none.
    fn deciding_chains(&self, networks: &Vec<Prefix>, mark: FirewallMark) -> Vec<NftChain> {
        let mut chains = Vec::new();
        // Without a translation, it is empty and not called.
        chains.extend((!self.of_hub()).then(|| NftChain::plain(TRANSLATED, self.translated(mark))));
        chains.extend([
            NftChain::plain(CONNECTIONS, self.connections(mark)),
            NftChain::plain(PACKETS, self.packets(mark)),
            NftChain::plain(WHOLE, self.whole(mark)),
            NftChain::plain(CHAIN, self.selected(networks, mark)),
        ]);
        chains.extend(self.traffic.own().map(|rules| NftChain::plain(OWN_CHAIN, rules)));
        if networks.is_empty() {
            chains.iter_mut().for_each(|chain| chain.rules.clear());
        }
        chains.push(NftChain::plain(ADMITTED, admit::rules(&self.admitted)));
        chains
    }

    fn hooks(&self, device: &str, mark: FirewallMark) -> Vec<NftChain> {
        self.traffic.hooks(device, mark)
    }

    fn translation(&self, device: &str) -> Option<NftChain> {
        let translation = self.translation?;
        Some(NftChain::on_hook(SOURCES, translation.hook(), translation.rules(device)))
    }
}

impl Selection {
    /// Applies changed routes to clients, whose packets stay outside of the tunnel.
    pub(super) fn set_lans(&mut self, routes: LanRoutes) {
        if let Traffic::OfClients { lans, .. } = &mut self.traffic {
            *lans = routes;
        }
    }

    fn of_hub(&self) -> bool {
        matches!(self.traffic, Traffic::ToTerminals { .. })
    }

    /// Returns `true` on a terminal that translates its clients.
    fn translates_clients(&self) -> bool {
        self.translation == Some(Translation::ToDevice)
    }

    /// Rules that select traffic to decide about, while the tunnel serves `networks`.
    fn selected(&self, networks: &[Prefix], mark: FirewallMark) -> Vec<NftRule> {
        let mut rules = self.traffic.selected(networks);
        if self.translates_clients() {
            // Only IPv4 is translated.
            rules.insert(0, vec![Term::Version(IpFamily::V6), Term::Return]);
            if self.is_moving {
                rules.extend(begun_elsewhere(self.traffic.interfaces(), mark));
            }
        }
        rules
    }

    fn whole(&self, mark: FirewallMark) -> Vec<NftRule> {
        if self.translates_clients() { whole_translated(mark) } else { self.whole_routed(mark) }
    }

    /// A SYN that passes must not keep the mark of an earlier connection. On a hub, replies to
    /// packets that came outside of the tunnel stay outside of it.
    fn whole_routed(&self, mark: FirewallMark) -> Vec<NftRule> {
        let none = mark.cleared();
        let first =
            vec![Term::Tcp, Term::OnlySyn, Term::MarkConnection(none), Term::Goto(CONNECTIONS)];
        let later =
            vec![Term::Tcp, Term::ConnectionHasMark(mark), Term::SetMark(mark), Term::Accept];
        let answer = vec![Term::NotTcp, Term::IsReply, Term::ConnectionHasMark(none), Term::Return];
        let mut rules = vec![first, later];
        rules.extend(self.of_hub().then_some(answer));
        // Flows that began while a policy let them pass, also if it is gone.
        let passing = vec![Term::NotTcp, Term::ConnectionHasMark(PASSING), Term::Return];
        rules.extend((!self.of_hub()).then_some(passing));
        rules.push(vec![Term::NotTcp, Term::Goto(PACKETS)]);
        rules
    }

    /// Rules for packets that take the tunnel if their flow is translated or new.
    fn translated(&self, mark: FirewallMark) -> Vec<NftRule> {
        if !self.translates_clients() {
            return Vec::new();
        }
        // An ICMP error has no flow of its own, and that of its connection is not to be forgotten.
        let related = vec![Term::IsRelated, Term::Return];
        let outside = vec![
            Term::IsOfKnownConnection,
            Term::MarkConnection(OUTSIDE),
            Term::CountBegunOutside,
            Term::Return,
        ];
        vec![related, outside, take_connection(mark)]
    }

    /// Applies the policies to a SYN that is not split.
    fn connections(&self, mark: FirewallMark) -> Vec<NftRule> {
        let take = || match self.translates_clients() {
            true => vec![Term::Goto(TRANSLATED)],
            false => take_connection(mark),
        };
        // On a terminal, TCP enters the tunnel only by a policy: otherwise it is split, or passes.
        let usual = || if self.of_hub() { take() } else { vec![Term::Return] };
        policy::chain(
            &self.policies,
            PolicySubject::Connections,
            |_| self.counts_connections,
            usual(),
            |policy| match policy.action {
                PolicyAction::Split => usual(),
                PolicyAction::Tunnel => take(),
                PolicyAction::Bypass => vec![Term::Return],
                // Interception refuses; what it lets through is carried as without the policy.
                PolicyAction::Refuse => vec![],
            },
        )
    }

    /// Applies the policies to other packets.
    fn packets(&self, mark: FirewallMark) -> Vec<NftRule> {
        let take = || match self.translates_clients() {
            true => vec![Term::Goto(TRANSLATED)],
            false => vec![Term::SetMark(mark), Term::Accept],
        };
        let verdict = |policy: &TrafficPolicy| match policy.action {
            PolicyAction::Split | PolicyAction::Tunnel => take(),
            // Only its first datagram shows that a flow is QUIC: later ones follow the connection's mark.
            PolicyAction::Bypass if policy.only_quic => {
                vec![Term::MarkConnection(PASSING), Term::Return]
            }
            PolicyAction::Bypass => vec![Term::Return],
            PolicyAction::Refuse => vec![],
        };
        policy::chain(&self.policies, PolicySubject::Packets, |_| true, take(), verdict)
    }
}

/// Drops packets that would begin a flow to the clients of these `interfaces`. Those from clients themselves do not come
/// this far.
fn begun_elsewhere(interfaces: &[String], mark: FirewallMark) -> Vec<NftRule> {
    let mut rules = vec![
        vec![Term::IsOfKnownConnection, Term::Return],
        vec![Term::ConnectionHasMark(mark), Term::Return],
    ];
    let drop = |interface: &String| {
        vec![Term::NotTcp, Term::NotToThisMachine, Term::RoutedTo(interface.clone()), Term::Drop]
    };
    rules.extend(interfaces.iter().map(drop));
    rules
}

fn take_connection(mark: FirewallMark) -> NftRule {
    vec![Term::MarkConnection(mark), Term::SetMark(mark), Term::Accept]
}

/// A translated flow stays in the tunnel, whatever the policies say now. Answers to what has come another way go back
/// that way.
fn whole_translated(mark: FirewallMark) -> Vec<NftRule> {
    vec![
        // This machine's own connections come here, too.
        vec![Term::Version(IpFamily::V6), Term::Return],
        vec![Term::ConnectionHasMark(mark), Term::SetMark(mark), Term::Accept],
        vec![Term::NotTcp, Term::ConnectionHasMark(PASSING), Term::Return],
        vec![Term::IsReply, Term::Return],
        vec![Term::Tcp, Term::OnlySyn, Term::Goto(CONNECTIONS)],
        vec![Term::NotTcp, Term::Goto(PACKETS)],
    ]
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use pep::egress::EgressRules;
    use pep::traffic::{PortRange, UDP};

    use super::*;
    use crate::network::tun::table::DeviceTable;
    use crate::testkit::{assert_printed, in_namespace, nft};

    fn networks() -> Vec<Prefix> {
        ["10.1.0.0/16", "fd00:1::/64"].map(|text| text.parse().unwrap()).to_vec()
    }

    /// Two terminals, one of them with its own lists.
    fn admitted() -> Vec<Admitted> {
        let targets =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let reach = targets(&["192.0.2.0/24:443", "10.0.0.1:udp/53", "fd00:9::/64"]);
        let egress = EgressRules { reach, deny: targets(&["10.0.0.0/8", "[fd00::/8]:25-26"]) };
        let sources = vec!["10.1.0.0/16".parse().unwrap(), "fd00:1::/64".parse().unwrap()];
        let other = vec!["10.2.0.0/16".parse().unwrap()];
        vec![
            Admitted { sources, egress },
            Admitted { sources: other, egress: EgressRules::everywhere() },
        ]
    }

    fn selections() -> [Selection; 5] {
        let interfaces = || vec!["lan0".to_owned(), "lan1".to_owned()];
        let lans = || LanRoutes::example(&["lan0", "lan1"]);
        let clients = |own| Traffic::OfClients { interfaces: interfaces(), own, lans: lans() };
        let web = vec![PortRange { protocol: Some(UDP), first: 443, last: 443 }];
        let to = vec!["192.0.2.0/24".parse().unwrap()];
        let policies = vec![
            TrafficPolicy { to, ..TrafficPolicy::new("bypass", PolicyAction::Bypass) },
            TrafficPolicy { ports: web, ..TrafficPolicy::new("quic", PolicyAction::Bypass) },
            TrafficPolicy { dscp: vec![8], ..TrafficPolicy::new("bulk", PolicyAction::Tunnel) },
            TrafficPolicy { dscp: vec![9], ..TrafficPolicy::new("refused", PolicyAction::Refuse) },
            TrafficPolicy::of_quic(PolicyAction::Bypass),
        ];
        let pool = Translation::Of("10.213.0.0/16".parse().unwrap());
        [
            (clients(false), None),
            (clients(true), None),
            (Traffic::ToTerminals { hop: 5900 }, None),
            (clients(true), Some(Translation::ToDevice)),
            (Traffic::ToTerminals { hop: 5900 }, Some(pool)),
        ]
        .map(|(traffic, translation)| {
            let (policies, admitted) = (policies.clone(), admitted());
            let counts_connections = traffic.interfaces().is_empty();
            let is_moving = translation.is_some();
            Selection { traffic, policies, admitted, counts_connections, translation, is_moving }
        })
    }

    #[test]
    fn the_kernel_has_the_rules_that_we_print() {
        in_namespace(|| {
            for selection in selections() {
                let mut table = DeviceTable::claim(selection.clone(), "skyhop0").unwrap();
                table.set_scope(networks()).unwrap();
                let printed = selection.display(&networks(), "skyhop0", table.slot());
                let Some(ours) = assert_printed("skyhop-tunnel-0", &printed) else { return };
                let leaves_lans_alone = ours.contains("fib daddr . mark oifname \"lan1\" return");
                let of_clients = !selection.traffic.interfaces().is_empty();
                assert_eq!(leaves_lans_alone, of_clients, "{ours}");
                for part in ["meta mark set", "udp dport 443", "ip6 dscp cs1", "ct state new"] {
                    assert!(ours.contains(part), "{part} is not in {ours}");
                }
                assert!(
                    !ours.contains("dscp 0x09"),
                    "what is not refused is as without the policy"
                );
                let passing = "meta l4proto != tcp ct mark & 0x40000000 == 0x40000000 return";
                assert_eq!(ours.contains(passing), of_clients, "{ours}");
            }
        });
    }

    #[test]
    fn a_terminal_translates_only_while_its_hub_gives_it_an_address() {
        in_namespace(|| {
            let [selection, ..] = selections();
            let mut table = DeviceTable::claim(selection, "skyhop0").unwrap();
            table.set_scope(networks()).unwrap();
            let Some(routed) = nft(&["list", "ruleset"], "") else { return };
            assert!(
                !routed.contains("nat"),
                "the kernel need not look at every connection: {routed}"
            );
            for translation in [Some(Translation::ToDevice), None, Some(Translation::ToDevice)] {
                table.update(|rules| rules.translation = translation).unwrap();
                let listed = nft(&["list", "ruleset"], "").unwrap();
                for part in ["masquerade", "ct status confirmed", "meta nfproto ipv6 return"] {
                    assert_eq!(listed.contains(part), translation.is_some(), "{part}: {listed}");
                }
            }
        });
    }

    #[test]
    fn counts_of_refusals_survive_a_change_of_policies() {
        in_namespace(|| {
            let [selection, ..] = selections();
            let mut table = DeviceTable::claim(selection, "lo").unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let refused = |table: &DeviceTable<Selection>| {
                socket.send_to(b"to loopback, out of the tunnel", "127.0.0.1:9").unwrap();
                table.counts().unwrap()[REFUSED]
            };
            assert_eq!(refused(&table), 1);
            table.update(|rules| rules.policies.clear()).unwrap();
            assert_eq!(refused(&table), 2);
            assert_eq!(table.counts().unwrap().len(), 1, "those of the policies are gone");
        });
    }

    #[test]
    fn while_nothing_is_open_nothing_is_marked() {
        in_namespace(|| {
            for selection in selections() {
                let mut table = DeviceTable::claim(selection, "skyhop0").unwrap();
                let Some(idle) = nft(&["list", "ruleset"], "") else { return };
                table.set_scope(networks()).unwrap();
                let once = nft(&["list", "ruleset"], "").unwrap();
                table.set_scope(networks()).unwrap();
                assert_eq!(nft(&["list", "ruleset"], "").unwrap(), once);
                assert!(once.contains("meta mark set") && !idle.contains("meta mark set"));
                table.set_scope(vec![]).unwrap();
                assert_eq!(nft(&["list", "ruleset"], "").unwrap(), idle);
                drop(table);
                assert_eq!(nft(&["list", "ruleset"], "").unwrap(), "");
            }
        });
    }
}
