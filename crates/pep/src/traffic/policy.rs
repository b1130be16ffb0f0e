//! Policies for new connections and for packets other than TCP: the first match decides; without a
//! match, TCP is split and other packets are tunnelled. A connection is decided once, by its SYN.

use super::ports::{PortRange, TCP, UDP};
use super::prefix::{IpFamily, Prefix};
use super::quic::{HTTP_3, QuicVersions};

/// Maximum number of rules for all policies of a gateway.
pub const MOST_RULES: usize = 1000;

/// Treatment of traffic. Sections `[[policy]]`, key `action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyAction {
    /// The default: split TCP, and tunnel other packets if there is a tunnel.
    Split,
    /// Send it unsplit through the tunnel.
    Tunnel,
    /// Leave it alone, as without skyhop.
    Bypass,
    /// Answer SYNs and UDP datagrams with an error in the name of their destination. Other packets are not
    /// concerned.
    Refuse,
}

impl PolicyAction {
    /// All actions, the default first.
    pub const ALL: [Self; 4] = [Self::Split, Self::Tunnel, Self::Bypass, Self::Refuse];

    /// The action's name, as in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Tunnel => "tunnel",
            Self::Bypass => "bypass",
            Self::Refuse => "refuse",
        }
    }
}

/// A section `[[policy]]`. Matches traffic that matches one element of each non-empty list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficPolicy {
    /// Name for people, in status, log and counters.
    pub name: String,
    /// Destinations.
    pub to: Vec<Prefix>,
    /// Sources.
    pub from: Vec<Prefix>,
    /// Destination ports of TCP or UDP.
    pub ports: Vec<PortRange>,
    /// Code points, 0 to 63.
    pub dscp: Vec<u8>,
    /// Matches only the first datagram of a QUIC flow.
    pub only_quic: bool,
    /// Treatment of traffic for which this policy matches first.
    pub action: PolicyAction,
}

/// The traffic that policies decide about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicySubject {
    /// TCP SYNs, each of which decides about its connection.
    Connections,
    /// Everything except TCP.
    Packets,
}

impl PolicySubject {
    /// The subject's name, for counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Packets => "packets",
        }
    }
}

impl TrafficPolicy {
    /// A policy that matches everything.
    pub fn new(name: &str, action: PolicyAction) -> Self {
        let name = name.to_owned();
        let only_quic = false;
        Self { name, to: vec![], from: vec![], ports: vec![], dscp: vec![], only_quic, action }
    }

    /// The policy for new QUIC flows to web servers, which the key `quic` stands for.
    pub fn of_quic(action: PolicyAction) -> Self {
        Self { ports: vec![HTTP_3], only_quic: true, ..Self::new("quic", action) }
    }

    /// Returns `true` if it matches everything.
    pub fn fits_all(&self) -> bool {
        *self == Self::new(&self.name, self.action)
    }

    /// Expands the policy into rules that together match the same traffic.
    ///
    /// Lists expand to single rules instead of sets: the kernel refuses sets with overlapping elements, and
    /// a TCP connection passes the rules only once.
    pub fn matches(&self, subject: PolicySubject) -> Vec<PolicyMatch> {
        // Ports of packets other than TCP are those of UDP.
        let protocol = if subject == PolicySubject::Connections { TCP } else { UDP };
        let ports = choices(&self.ports, |ports| ports.of(protocol));
        let ports: Vec<_> = ports
            .into_iter()
            .map(|ports| ports.map(|ports| PortRange { protocol: Some(protocol), ..ports }))
            .collect();
        let of_any_version = self.to.is_empty() && self.from.is_empty() && self.dscp.is_empty();
        let versions_of_quic: &[QuicVersions] =
            if self.only_quic { &QuicVersions::KNOWN } else { &[] };
        let quic = choices(versions_of_quic, |_| true);
        let payloads: Vec<_> =
            ports.iter().flat_map(|ports| quic.iter().map(move |quic| (*ports, *quic))).collect();
        // The rules for addresses and code points differ between the versions, those for ports do not.
        let versions: &[_] =
            if of_any_version { &[None] } else { &[Some(IpFamily::V4), Some(IpFamily::V6)] };
        let mut matches = Vec::new();
        for version in versions {
            let of = |prefix: &Prefix| Some(IpFamily::of(prefix.address())) == *version;
            for to in choices(&self.to, of) {
                for from in choices(&self.from, of) {
                    for dscp in choices(&self.dscp, |_| true) {
                        let same = PolicyMatch {
                            version: *version,
                            to,
                            from,
                            dscp,
                            ..PolicyMatch::default()
                        };
                        for &(ports, quic) in &payloads {
                            matches.push(PolicyMatch { ports, quic, ..same });
                        }
                    }
                }
            }
        }
        matches
    }

    /// Returns `true` if it can match TCP.
    pub fn fits_tcp(&self) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|ports| ports.of(TCP))
    }
}

/// A rule, which matches traffic that has all of the given fields; by default it matches everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyMatch {
    /// IP version; given with addresses and code points, whose encoding depends on the version.
    pub version: Option<IpFamily>,
    /// Destination.
    pub to: Option<Prefix>,
    /// Source.
    pub from: Option<Prefix>,
    /// Code point, 0 to 63.
    pub dscp: Option<u8>,
    /// Destination ports; the protocol is given.
    pub ports: Option<PortRange>,
    /// The packet is the first datagram of a QUIC flow of one of these versions.
    pub quic: Option<QuicVersions>,
}

/// The elements that fit, one of which must match; a single [`None`] if the list is empty.
fn choices<T: Copy>(list: &[T], fits: impl Fn(&T) -> bool) -> Vec<Option<T>> {
    match list {
        [] => vec![None],
        _ => list.iter().filter(|element| fits(element)).map(|element| Some(*element)).collect(),
    }
}

/// Number of rules that all policies take: the larger of both subjects.
pub fn policy_rules(policies: &[TrafficPolicy]) -> usize {
    let of = |subject| policies.iter().map(|policy| policy.matches(subject).len()).sum::<usize>();
    of(PolicySubject::Connections).max(of(PolicySubject::Packets))
}

#[cfg(test)]
mod tests;
