//! Which packets from the tunnel the kernel may route on: those of known connections (mostly
//! replies), and new ones that [`Egress`] permits.
//!
//! The kernel itself decides, by rules in our table: it always knows its own addresses, and which
//! packet is a reply. It cannot see through IPv6-to-IPv4 translation: an own address in that form
//! is routed to the translator.

use pep::egress::{Egress, SPECIAL, Target, forms};
use pep::traffic::{Prefix, TCP, UDP, Version};

use crate::intercept::nft_table::Rule;
use crate::intercept::rule::Term;

/// Rules for a set of sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Addresses of the peers, which belong to no other. Empty matches any.
    pub(crate) sources: Vec<Prefix>,
    pub(crate) egress: Egress,
}

impl Admitted {
    /// Rules for one peer, whatever its addresses.
    pub(crate) fn from_anyone(egress: &Egress) -> Vec<Self> {
        vec![Self { sources: vec![], egress: egress.clone() }]
    }

    /// A rule for each source and each form of the destination, ending with these terms.
    fn rules(&self, prefixes: &[Prefix], target: &Target, end: &[Term]) -> Vec<Rule> {
        let ports = ports(target);
        let mut rules = Vec::new();
        for prefix in prefixes {
            let version = Version::of(prefix.address());
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

    fn denied(&self) -> Vec<Rule> {
        let rules = |target: &Target| self.rules(&forms(target.prefix), target, &REFUSED);
        self.egress.deny.iter().flat_map(rules).collect()
    }

    /// Rules for the lines that open special or own addresses.
    fn opened(&self) -> Vec<Rule> {
        let lines = self.egress.reach.iter().filter(|target| opens(target));
        let rules = |target: &Target| {
            let own = target.prefix.is_host() || target.prefix.address().is_loopback();
            let end: &[Term] =
                if own { &[Term::Return] } else { &[Term::ToElsewhere, Term::Return] };
            self.rules(&[target.prefix], target, end)
        };
        lines.flat_map(rules).collect()
    }

    fn reached(&self) -> Vec<Rule> {
        let lines = self.egress.reach.iter().filter(|target| !opens(target));
        let end = [Term::ToElsewhere, Term::ToOneHost, Term::Return];
        lines.flat_map(|target| self.rules(&[target.prefix], target, &end)).collect()
    }
}

const REFUSED: [Term; 2] = [Term::CountRefused, Term::Drop];

/// Multicast from the far end of a veth device to its neighbours. It can be dropped without
/// counting: no packet from the hop has such a destination.
const OWN_TALK: [Term; 3] = [
    Term::Version(Version::V6),
    Term::To(Prefix::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8)),
    Term::Drop,
];

/// Whether a line opens a special range or an address of this machine.
fn opens(target: &Target) -> bool {
    target.prefix.is_host() || SPECIAL.iter().any(|special| special.range.covers(target.prefix))
}

fn sources(prefixes: &[Prefix], version: Version) -> Vec<Vec<Term>> {
    if prefixes.is_empty() {
        return vec![vec![]];
    }
    let fitting = prefixes.iter().filter(|prefix| Version::of(prefix.address()) == version);
    fitting.map(|prefix| vec![Term::FromAddress(*prefix)]).collect()
}

/// Empty for all addresses, which the version already matches.
fn to(prefix: Prefix) -> Vec<Term> {
    if prefix.length() == 0 { vec![] } else { vec![Term::To(prefix)] }
}

fn ports(target: &Target) -> Vec<Vec<Term>> {
    let Some(ports) = target.ports else { return vec![vec![]] };
    let fitting = [TCP, UDP].into_iter().filter(|protocol| ports.of(*protocol));
    fitting.map(|protocol| vec![Term::ToPorts(protocol, ports.first, ports.last)]).collect()
}

/// Rules of a chain that returns for permitted packets and drops everything else.
pub(super) fn rules(admitted: &[Admitted]) -> Vec<Rule> {
    let special = SPECIAL.iter().flat_map(|special| forms(special.range));
    let special = special.map(|range| {
        let version = Term::Version(Version::of(range.address()));
        [&[version, Term::To(range)], &REFUSED[..]].concat()
    });
    let mut rules = vec![vec![Term::OfKnownConnection, Term::Return], OWN_TALK.to_vec()];
    rules.extend(admitted.iter().flat_map(Admitted::denied));
    rules.extend(admitted.iter().flat_map(Admitted::opened));
    rules.extend(special);
    rules.extend(admitted.iter().flat_map(Admitted::reached));
    rules.push(REFUSED.to_vec());
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(reach: &[&str], deny: &[&str], sources: &[&str]) -> Vec<String> {
        let targets =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let egress = Egress { reach: targets(reach), deny: targets(deny) };
        let sources = sources.iter().map(|text| text.parse().unwrap()).collect();
        let line = |rule: &Rule| rule.iter().map(Term::to_string).collect::<Vec<_>>().join(" ");
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
