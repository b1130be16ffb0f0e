//! An nftables table of our own that marks packets for the tunnel. All chains except those on hooks
//! are empty while no packets are to be taken.
//!
//! TCP is decided once, at the SYN, and remembered in the connection mark (conntrack). Deciding per
//! packet would fail: replies have no destination port that a policy could match, programs change
//! the DSCP of open connections, and a changed policy would move live ones. Packets from the tunnel
//! mark their connection too, so that replies return through the tunnel.

use pep::traffic::{PolicyAction, PolicySubject, Prefix, TrafficPolicy};

use super::admit::{self, Admitted};
use crate::intercept::lan_routes::LanRoutes;
use crate::intercept::netfilter::to;
use crate::network::nft::policy;
use crate::network::nft::rule::{FirewallMark, PASS_MARK, REFUSED, Term};
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
const CONNECTIONS: &str = "new-connections";
const PACKETS: &str = "other-packets";
const FORWARDED: &str = "prerouting";
const OUTPUT: &str = "output";
/// Mark bits of interception and tunnels of all gateways.
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
        let mut chains = vec![
            NftChain::plain(CONNECTIONS, self.connections(mark)),
            NftChain::plain(PACKETS, self.packets(mark)),
            NftChain::plain(WHOLE, self.whole(mark)),
            NftChain::plain(CHAIN, self.traffic.selected(networks)),
        ];
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

    /// A SYN that passes must not keep the mark of an earlier connection. On a hub, replies to
    /// packets that came outside of the tunnel stay outside of it.
    fn whole(&self, mark: FirewallMark) -> Vec<NftRule> {
        let none = mark.cleared();
        let first =
            vec![Term::Tcp, Term::OnlySyn, Term::MarkConnection(none), Term::Goto(CONNECTIONS)];
        let later =
            vec![Term::Tcp, Term::ConnectionHasMark(mark), Term::SetMark(mark), Term::Accept];
        let answer = vec![Term::NotTcp, Term::IsReply, Term::ConnectionHasMark(none), Term::Return];
        let mut rules = vec![first, later];
        rules.extend(self.of_hub().then_some(answer));
        // Flows that began while a policy let them pass, also if it is gone.
        let passing = vec![Term::NotTcp, Term::ConnectionHasMark(PASS_MARK), Term::Return];
        rules.extend((!self.of_hub()).then_some(passing));
        rules.push(vec![Term::NotTcp, Term::Goto(PACKETS)]);
        rules
    }

    /// Applies the policies to a SYN that is not split.
    fn connections(&self, mark: FirewallMark) -> Vec<NftRule> {
        let take = || vec![Term::MarkConnection(mark), Term::SetMark(mark), Term::Accept];
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
        let take = || vec![Term::SetMark(mark), Term::Accept];
        let verdict = |policy: &TrafficPolicy| match policy.action {
            PolicyAction::Split | PolicyAction::Tunnel => take(),
            // Only its first datagram shows that a flow is QUIC: later ones follow the connection's mark.
            PolicyAction::Bypass if policy.only_quic => {
                vec![Term::MarkConnection(PASS_MARK), Term::Return]
            }
            PolicyAction::Bypass => vec![Term::Return],
            PolicyAction::Refuse => vec![],
        };
        policy::chain(&self.policies, PolicySubject::Packets, |_| true, take(), verdict)
    }
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

    fn selections() -> [Selection; 3] {
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
        [
            (clients(false), false),
            (clients(true), false),
            (Traffic::ToTerminals { hop: 5900 }, true),
        ]
        .map(|(traffic, counts_connections)| {
            let policies = policies.clone();
            let admitted = admitted();
            Selection { traffic, policies, admitted, counts_connections }
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
                let passing = "meta l4proto != tcp ct mark & 0x01000000 == 0x01000000 return";
                assert_eq!(ours.contains(passing), of_clients, "{ours}");
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
