//! Rules for packets from the tunnel. The kernel may route on those of known connections (mostly
//! replies), and new ones that [`EgressRules`] permits.
//!
//! The kernel itself decides, by rules in our table: it always knows its own addresses, and which
//! packet is a reply. It cannot see through IPv6-to-IPv4 translation: an own address in that form
//! is routed to the translator.

use pep::egress::{EgressRules, EgressTarget, SPECIAL, forms};
use pep::traffic::{IpFamily, Prefix, TCP, UDP};

use crate::network::nft::rule::Term;
use crate::network::nft::table::NftRule;

/// Rules for a set of sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Addresses of the peers, which belong to no other. Empty matches any.
    pub(crate) sources: Vec<Prefix>,
    pub(crate) egress: EgressRules,
}

impl Admitted {
    /// Rules for one peer, whatever its addresses.
    pub(crate) fn from_anyone(egress: &EgressRules) -> Vec<Self> {
        vec![Self { sources: vec![], egress: egress.clone() }]
    }

    /// A rule for each source and each form of the destination, ending with these terms.
    fn rules(&self, prefixes: &[Prefix], target: &EgressTarget, end: &[Term]) -> Vec<NftRule> {
        let ports = ports(target);
        let mut rules = Vec::new();
        for prefix in prefixes {
            let version = IpFamily::of(prefix.address());
            for source in sources(&self.sources, version) {
                for port in &ports {
                    let tests = [source.as_slice(), &to(*prefix), port.as_slice()].concat();
                    let begins = [Term::Version(version)].into_iter().chain(tests);
                    rules.push(begins.chain(end.iter().cloned()).collect());
                }
            }
        }
        rules
    }

    fn denied(&self) -> Vec<NftRule> {
        let rules = |target: &EgressTarget| self.rules(&forms(target.prefix), target, &REFUSED);
        self.egress.deny.iter().flat_map(rules).collect()
    }

    /// Rules for the lines that open special or own addresses.
    fn opened(&self) -> Vec<NftRule> {
        let lines = self.egress.reach.iter().filter(|target| opens(target));
        let rules = |target: &EgressTarget| {
            let own = target.prefix.is_host() || target.prefix.address().is_loopback();
            let end: &[Term] = if own {
                &[Term::Return]
            } else {
                // A broadcast or anycast address of a listed network is this machine's, too.
                &[Term::NotToThisMachine, Term::ToUnicast, Term::Return]
            };
            self.rules(&[target.prefix], target, end)
        };
        lines.flat_map(rules).collect()
    }

    fn reached(&self) -> Vec<NftRule> {
        let lines = self.egress.reach.iter().filter(|target| !opens(target));
        let end = [Term::NotToThisMachine, Term::ToUnicast, Term::Return];
        lines.flat_map(|target| self.rules(&[target.prefix], target, &end)).collect()
    }
}

const REFUSED: [Term; 2] = [Term::CountRefused, Term::Drop];

/// Multicast from the far end of a veth device to its neighbours. It can be dropped without
/// counting: no packet from the hop has such a destination.
const OWN_TALK: [Term; 3] = [
    Term::Version(IpFamily::V6),
    Term::ToPrefix(Prefix::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8)),
    Term::Drop,
];

/// Returns `true` if a line opens a special range or an address of this machine.
fn opens(target: &EgressTarget) -> bool {
    target.prefix.is_host() || SPECIAL.iter().any(|special| special.range.covers(target.prefix))
}

fn sources(prefixes: &[Prefix], version: IpFamily) -> Vec<Vec<Term>> {
    if prefixes.is_empty() {
        return vec![vec![]];
    }
    let fitting = prefixes.iter().filter(|prefix| IpFamily::of(prefix.address()) == version);
    fitting.map(|prefix| vec![Term::FromPrefix(*prefix)]).collect()
}

/// Empty for all addresses, which the version already matches.
fn to(prefix: Prefix) -> Vec<Term> {
    if prefix.length() == 0 { vec![] } else { vec![Term::ToPrefix(prefix)] }
}

fn ports(target: &EgressTarget) -> Vec<Vec<Term>> {
    let Some(ports) = target.ports else { return vec![vec![]] };
    let fitting = [TCP, UDP].into_iter().filter(|protocol| ports.of(*protocol));
    fitting.map(|protocol| vec![Term::ToPorts(protocol, ports.first, ports.last)]).collect()
}

/// Rules of a chain that returns for permitted packets and drops everything else.
pub(super) fn rules(admitted: &[Admitted]) -> Vec<NftRule> {
    let special = SPECIAL.iter().flat_map(|special| forms(special.range));
    let special = special.map(|range| {
        let version = Term::Version(IpFamily::of(range.address()));
        [&[version, Term::ToPrefix(range)], &REFUSED[..]].concat()
    });
    // The first match decides: denials go before all permissions, and what the operator opens of the special
    // ranges goes before the rules that close these.
    let mut rules = vec![vec![Term::IsEstablished, Term::Return], OWN_TALK.to_vec()];
    rules.extend(admitted.iter().flat_map(Admitted::denied));
    rules.extend(admitted.iter().flat_map(Admitted::opened));
    rules.extend(special);
    rules.extend(admitted.iter().flat_map(Admitted::reached));
    rules.push(REFUSED.to_vec());
    rules
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// How the kernel would route a packet's destination.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Elsewhere,
        Local,
        Broadcast,
    }

    /// A packet of a new TCP connection from the tunnel.
    #[derive(Debug, Clone, Copy)]
    struct New {
        from: IpAddr,
        to: SocketAddr,
        kind: Kind,
    }

    impl New {
        fn passes(&self, term: &Term) -> bool {
            match term {
                Term::IsEstablished => false,
                Term::Version(version) => *version == IpFamily::of(self.to.ip()),
                Term::ToPrefix(prefix) => prefix.contains(self.to.ip()),
                Term::FromPrefix(prefix) => prefix.contains(self.from),
                Term::ToPorts(protocol, first, last) => {
                    *protocol == TCP && (*first..=*last).contains(&self.to.port())
                }
                Term::NotToThisMachine => self.kind != Kind::Local,
                Term::ToUnicast => self.kind != Kind::Broadcast,
                Term::CountRefused => true,
                other => panic!("{other} is not expected here"),
            }
        }

        /// What the kernel does with it.
        fn is_admitted(&self, rules: &[NftRule]) -> bool {
            let verdict = rules.iter().find_map(|rule| {
                let (end, tests) = rule.split_last().unwrap();
                tests.iter().all(|term| self.passes(term)).then_some(end)
            });
            *verdict.expect("the last rule is for everything") == Term::Return
        }
    }

    const PREFIXES: [&str; 17] = [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.0.0.0/24",
        "10.0.0.1",
        "127.0.0.0/8",
        "127.0.0.1",
        "169.254.0.0/16",
        "169.254.128.0/17",
        "169.254.169.254",
        "192.0.2.0/24",
        "::/0",
        "fd00::/8",
        "fd00::1",
        "fd00:ec2::/32",
        "fe80::/10",
        "2001:db8::/32",
        "::1",
    ];
    const ADDRESSES: [&str; 12] = [
        "10.0.0.1",
        "10.0.0.255",
        "10.1.2.3",
        "127.0.0.1",
        "127.5.5.5",
        "169.254.169.254",
        "192.0.2.9",
        "100.100.100.200",
        "fd00::1",
        "fd00:ec2::254",
        "fe80::1",
        "2001:db8::1",
    ];

    fn target() -> impl Strategy<Value = EgressTarget> {
        let text = (select(&PREFIXES[..]), select(&["", ":443", ":80-90"][..])).prop_map(
            |(prefix, ports)| match (prefix.contains(':'), ports) {
                (true, ":443" | ":80-90") => format!("[{prefix}]{ports}"),
                _ => format!("{prefix}{ports}"),
            },
        );
        text.prop_filter_map("written otherwise", |text| text.parse().ok())
    }

    fn new_connection() -> impl Strategy<Value = New> {
        let kinds = [Kind::Elsewhere, Kind::Local, Kind::Broadcast];
        (select(&ADDRESSES[..]), select(vec![443, 85, 22]), select(kinds.to_vec())).prop_map(
            |(to, port, kind)| {
                let to: IpAddr = to.parse().unwrap();
                let kind = if to.is_loopback() { Kind::Local } else { kind };
                let from = if to.is_ipv4() { "10.9.0.1" } else { "fd09::1" };
                New { from: from.parse().unwrap(), to: (to, port).into(), kind }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// The tunnel's packets and split connections reach the same destinations.
        #[test]
        fn the_kernel_admits_what_a_split_connection_may_reach(
            reach in prop::collection::vec(target(), 0..5),
            deny in prop::collection::vec(target(), 0..2),
            new in new_connection(),
        ) {
            let egress = EgressRules { reach, deny };
            let checked = egress.check(new.to, |_| Some(new.kind != Kind::Elsewhere));
            let rules = rules(&Admitted::from_anyone(&egress));
            prop_assert_eq!(new.is_admitted(&rules), checked.is_ok(), "{:?}", checked);
        }

        /// What one terminal may reach is of no use to another.
        #[test]
        fn a_terminal_s_rights_are_its_own(
            reach in prop::collection::vec(target(), 0..5),
            deny in prop::collection::vec(target(), 0..2),
            new in new_connection(),
        ) {
            let of = |sources: [&str; 2], egress: EgressRules| Admitted {
                sources: sources.map(|text| text.parse().unwrap()).to_vec(),
                egress,
            };
            let ours = EgressRules { reach, deny };
            let other = of(["10.8.0.0/16", "fd08::/16"], EgressRules::everywhere().and_loopback());
            let both = rules(&[other, of(["10.9.0.0/16", "fd09::/16"], ours.clone())]);
            let alone = rules(&Admitted::from_anyone(&ours));
            prop_assert_eq!(new.is_admitted(&both), new.is_admitted(&alone));
        }
    }

    fn printed(reach: &[&str], deny: &[&str], sources: &[&str]) -> Vec<String> {
        let targets =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let egress = EgressRules { reach: targets(reach), deny: targets(deny) };
        let sources = sources.iter().map(|text| text.parse().unwrap()).collect();
        let line = |rule: &NftRule| rule.iter().map(Term::to_string).collect::<Vec<_>>().join(" ");
        rules(&[Admitted { sources, egress }]).iter().map(line).collect()
    }

    #[test]
    fn answers_come_first_then_denials_then_openings_and_last_the_end() {
        let rules = printed(&["10.0.0.0/8", "10.0.0.1:53"], &["10.9.0.0/16"], &[]);
        let at = |text: &str| rules.iter().position(|rule| rule.contains(text)).expect(text);
        assert_eq!(rules[0], "ct state established,related return");
        assert_eq!(rules[1], "meta nfproto ipv6 ip6 daddr ff00::/8 drop", "and is not counted");
        let denied = at("meta nfproto ipv4 ip daddr 10.9.0.0/16 counter name \"refused\" drop");
        let opened = at("ip daddr 10.0.0.1/32 udp dport 53 return");
        let special = at("ip daddr 169.254.0.0/16 counter name \"refused\" drop");
        let reached = at("ip daddr 10.0.0.0/8 fib daddr type != local");
        assert!(denied < opened && opened < special && special < reached);
        assert!(at("ip6 daddr 64:ff9b::a09:0/112") < opened, "the same behind NAT64");
        assert_eq!(rules.last().unwrap(), "counter name \"refused\" drop");
    }

    #[test]
    fn a_terminal_s_lines_are_about_its_own_addresses() {
        let rules = printed(&["0.0.0.0/0:443"], &[], &["10.1.0.0/16", "fd00:1::/64"]);
        let about = |text: &str| rules.iter().filter(|rule| rule.contains(text)).count();
        assert_eq!(about("ip saddr 10.1.0.0/16 tcp dport 443 fib daddr type != local"), 1);
        assert_eq!((about("udp dport 443"), about("ip6 saddr")), (1, 0));
    }

    #[test]
    fn where_nothing_is_listed_only_answers_go_on() {
        let rules = printed(&[], &[], &[]);
        assert_eq!(rules.iter().filter(|rule| rule.ends_with("return")).count(), 1, "{rules:?}");
    }
}
