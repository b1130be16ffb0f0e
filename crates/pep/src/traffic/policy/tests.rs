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
    subject: PolicySubject,
}

impl Header {
    fn protocol(&self) -> u8 {
        if self.subject == PolicySubject::Connections { TCP } else { UDP }
    }

    /// Whether a rule matches, as the kernel evaluates it.
    fn passes(&self, rule: &PolicyMatch) -> bool {
        let port =
            |ports: PortRange| self.port.is_some_and(|port| ports.has(self.protocol(), port));
        rule.version.is_none_or(|version| version == IpFamily::of(self.destination))
            && rule.to.is_none_or(|prefix| prefix.contains(self.destination))
            && rule.from.is_none_or(|prefix| prefix.contains(self.source))
            && rule.dscp.is_none_or(|dscp| dscp == self.dscp)
            && rule.ports.is_none_or(port)
    }

    /// The documented semantics.
    fn fits(&self, policy: &TrafficPolicy) -> bool {
        let has = |list: &[Prefix], address| list.iter().any(|prefix| prefix.contains(address));
        let port = |ports: &PortRange| {
            ports.of(self.protocol())
                && self.port.is_some_and(|port| (ports.first..=ports.last).contains(&port))
        };
        (policy.to.is_empty() || has(&policy.to, self.destination))
            && (policy.from.is_empty() || has(&policy.from, self.source))
            && (policy.ports.is_empty() || policy.ports.iter().any(port))
            && (policy.dscp.is_empty() || policy.dscp.contains(&self.dscp))
    }
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

fn ports() -> impl Strategy<Value = PortRange> {
    let protocol = proptest::sample::select(&[None, Some(TCP), Some(UDP)][..]);
    (protocol, 1u16..6, 0u16..3).prop_map(|(protocol, first, more)| PortRange {
        protocol,
        first,
        last: first + more,
    })
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    let action = proptest::sample::select(&PolicyAction::ALL[..]);
    (list(prefix()), list(prefix()), list(ports()), list(0u8..4), action).prop_map(
        |(to, from, ports, dscp, action)| TrafficPolicy {
            to,
            from,
            ports,
            dscp,
            ..TrafficPolicy::new("any", action)
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let subject =
        proptest::sample::select(&[PolicySubject::Connections, PolicySubject::Packets][..]);
    let addresses = any::<bool>().prop_flat_map(|v6| (address(v6), address(v6)));
    (addresses, proptest::option::weighted(0.9, 1u16..9), 0u8..4, subject).prop_map(
        |((source, destination), port, dscp, subject)| {
            let port = if subject == PolicySubject::Connections { port.or(Some(80)) } else { port };
            Header { source, destination, port, dscp, subject }
        },
    )
}

proptest! {
    #[test]
    fn the_rules_match_what_the_policy_does(policy in policy(), header in header()) {
        let rules = policy.matches(header.subject);
        let passes = rules.iter().any(|rule| header.passes(rule));
        prop_assert_eq!(passes, header.fits(&policy));
        prop_assert!(rules.len() <= policy_rules(std::slice::from_ref(&policy)));
    }
}

#[test]
fn a_policy_for_quic_is_a_rule_for_each_version_of_it() {
    let policy = TrafficPolicy::of_quic(PolicyAction::Refuse);
    let rules = policy.matches(PolicySubject::Packets);
    assert_eq!(rules.iter().filter_map(|rule| rule.quic).collect::<Vec<_>>(), QuicVersions::KNOWN);
    let udp = PortRange { protocol: Some(UDP), first: 443, last: 443 };
    assert!(rules.iter().all(|rule| rule.ports == Some(udp)), "{rules:?}");
    assert_eq!(policy.matches(PolicySubject::Connections), [], "TCP goes on as before");
    assert!(!policy.fits_all());
}

#[test]
fn a_policy_is_one_rule_for_each_choice_of_its_lists() {
    let prefixes = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let mut policy = TrafficPolicy {
        to: prefixes(&["10.0.0.0/8", "192.0.2.0/24", "fd00::/8"]),
        dscp: vec![46, 8],
        ..TrafficPolicy::new("some", PolicyAction::Tunnel)
    };
    assert_eq!(policy.matches(PolicySubject::Connections).len(), 6);
    policy.from = prefixes(&["10.1.0.0/16"]);
    assert_eq!(policy.matches(PolicySubject::Packets).len(), 4, "from IPv4 to IPv6 goes nothing");
    policy.ports = vec![PortRange { protocol: Some(UDP), first: 443, last: 443 }];
    assert_eq!(policy.matches(PolicySubject::Connections), []);
    assert_eq!(policy.matches(PolicySubject::Packets).len(), 4);
    assert!(!policy.fits_tcp() && !policy.fits_all());
    assert!(TrafficPolicy::new("all", PolicyAction::Split).fits_all());
}
