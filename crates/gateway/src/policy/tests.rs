use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

/// The fields that policies can match.
#[derive(Debug, Clone)]
struct Header {
    source: IpAddr,
    destination: IpAddr,
    /// `None` for a protocol without ports.
    port: Option<u16>,
    dscp: u8,
    seen: Seen,
}

impl Header {
    fn protocol(&self) -> u8 {
        if self.seen == Seen::Connections { TCP } else { UDP }
    }

    /// How the kernel evaluates a term.
    fn passes(&self, test: &Term) -> bool {
        match test {
            Term::Version(version) => Version::of(self.destination) == *version,
            Term::To(prefix) => prefix.contains(self.destination),
            Term::FromAddress(prefix) => prefix.contains(self.source),
            Term::ToPorts(protocol, first, last) => {
                *protocol == self.protocol()
                    && self.port.is_some_and(|port| (*first..=*last).contains(&port))
            }
            Term::Dscp(version, dscp) => {
                Version::of(self.destination) == *version && *dscp == self.dscp
            }
            other => panic!("no test: {other}"),
        }
    }

    /// The documented semantics.
    fn fits(&self, policy: &Policy) -> bool {
        let has = |list: &[Prefix], address| list.iter().any(|prefix| prefix.contains(address));
        let port = |ports: &Ports| {
            ports.of(self.protocol())
                && self.port.is_some_and(|port| (ports.first..=ports.last).contains(&port))
        };
        (policy.to.is_empty() || has(&policy.to, self.destination))
            && (policy.from.is_empty() || has(&policy.from, self.source))
            && (policy.ports.is_empty() || policy.ports.iter().any(port))
            && (policy.dscp.is_empty() || policy.dscp.contains(&self.dscp))
    }
}

/// A distinct verdict for each action.
fn verdict(action: Action) -> Vec<Term> {
    vec![match action {
        Action::Split => Term::Accept,
        Action::Tunnel => Term::Return,
        Action::Bypass => Term::Drop,
    }]
}

/// The verdict of the first rule that a packet passes.
fn run(rules: &[Vec<Term>], header: &Header) -> Term {
    let end = rules.iter().find_map(|rule| {
        let (end, tests) = rule.split_last().unwrap();
        tests.iter().all(|test| header.passes(test)).then_some(end)
    });
    end.unwrap().clone()
}

/// Addresses from a small set, so that many match.
fn address(v6: bool) -> impl Strategy<Value = IpAddr> {
    (0u8..4, 0u8..4).prop_map(move |(net, host)| {
        let text = if v6 { format!("fd00:{net}::{host}") } else { format!("10.{net}.0.{host}") };
        text.parse().unwrap()
    })
}

fn prefix() -> impl Strategy<Value = Prefix> {
    const TEXTS: &[&str] =
        &["10.1.0.0/16", "10.2.0.1", "10.0.0.0/8", "fd00:1::/32", "::/0", "fd00:2::3"];
    proptest::sample::select(TEXTS).prop_map(|text| text.parse().unwrap())
}

fn list<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::vec(of, 0..3)
}

fn ports() -> impl Strategy<Value = Ports> {
    let protocol = proptest::sample::select(&[None, Some(TCP), Some(UDP)][..]);
    (protocol, 1u16..6, 0u16..3).prop_map(|(protocol, first, more)| Ports {
        protocol,
        first,
        last: first + more,
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let action = proptest::sample::select(&Action::ALL[..]);
    (list(prefix()), list(prefix()), list(ports()), list(0u8..4), action).prop_map(
        |(to, from, ports, dscp, action)| {
            let name = "any".to_owned();
            Policy { name, to, from, ports, dscp, action }
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let seen = proptest::sample::select(&[Seen::Connections, Seen::Packets][..]);
    let addresses = any::<bool>().prop_flat_map(|v6| (address(v6), address(v6)));
    (addresses, proptest::option::weighted(0.9, 1u16..9), 0u8..4, seen).prop_map(
        |((source, destination), port, dscp, seen)| {
            let port = if seen == Seen::Connections { port.or(Some(80)) } else { port };
            Header { source, destination, port, dscp, seen }
        },
    )
}

proptest! {
    #[test]
    fn the_first_policy_that_fits_decides(
        policies in proptest::collection::vec(policy(), 0..5),
        header in header(),
    ) {
        let usual = Term::Goto("usual");
        let rules = chain(&policies, header.seen, false, vec![usual.clone()], verdict);
        let first = policies.iter().find(|policy| header.fits(policy));
        let expected = first.map_or(usual, |policy| verdict(policy.action).remove(0));
        prop_assert_eq!(run(&rules, &header), expected);
        prop_assert!(rules.len() <= super::rules(&policies) + 1);
    }
}

#[test]
fn a_policy_is_one_rule_for_each_choice_of_its_lists() {
    let prefixes = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let mut policy = Policy {
        to: prefixes(&["10.0.0.0/8", "192.0.2.0/24", "fd00::/8"]),
        dscp: vec![46, 8],
        ..Policy::new("some", Action::Tunnel)
    };
    assert_eq!(policy.tests(Seen::Connections).len(), 6);
    policy.from = prefixes(&["10.1.0.0/16"]);
    assert_eq!(policy.tests(Seen::Packets).len(), 4, "from IPv4 to IPv6 goes nothing");
    policy.ports = vec![Ports { protocol: Some(UDP), first: 443, last: 443 }];
    assert_eq!(policy.tests(Seen::Connections), Vec::<Vec<Term>>::new());
    assert_eq!(policy.tests(Seen::Packets).len(), 4);
    assert!(!policy.fits_tcp() && !policy.fits_all());
    assert!(Policy::new("all", Action::Split).fits_all());
}

#[test]
fn counts_are_told_by_policy() {
    let policies = [Policy::new("one", Action::Split), Policy::new("two", Action::Bypass)];
    let counts =
        BTreeMap::from([(counter(1, Seen::Connections), 7), (counter(0, Seen::Packets), 3)]);
    let told = status(&policies, &counts);
    assert_eq!((told[0].connections, told[0].packets), (0, 3));
    assert_eq!((&*told[1].name, &*told[1].action, told[1].connections), ("two", "bypass", 7));
}
