//! Policies for new connections and for packets other than TCP: the first match decides; without a
//! match, TCP is split and other packets are tunnelled. The kernel evaluates them, with rules made
//! here; a connection is decided once, by its SYN.
//!
//! The lists of a policy expand to single rules rather than nftables sets: the kernel refuses sets
//! with overlapping elements, and a TCP connection passes the rules only once.

use std::collections::BTreeMap;

use pep::traffic::{Ports, Prefix, TCP, UDP, Version};

use crate::rule::Term;
use crate::status::PolicyStatus;

/// Maximum number of rules for all policies of a gateway.
pub(crate) const MOST_RULES: usize = 1000;

/// What to do with traffic. Sections `[[policy]]`, key `action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The default: split TCP, and tunnel other packets if there is a tunnel.
    Split,
    /// Send it unsplit through the tunnel.
    Tunnel,
    /// Leave it alone, as without skyhop.
    Bypass,
}

impl Action {
    /// All actions.
    pub(crate) const ALL: [Self; 3] = [Self::Split, Self::Tunnel, Self::Bypass];

    /// The action's name, as in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Tunnel => "tunnel",
            Self::Bypass => "bypass",
        }
    }
}

/// A section `[[policy]]`. Matches traffic that matches one element of each non-empty list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(crate) name: String,
    /// Destinations.
    pub(crate) to: Vec<Prefix>,
    /// Sources.
    pub(crate) from: Vec<Prefix>,
    /// Destination ports.
    pub(crate) ports: Vec<Ports>,
    /// Code points, 0 to 63.
    pub(crate) dscp: Vec<u8>,
    pub(crate) action: Action,
}

/// Which packets a chain of rules sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// TCP SYNs.
    Connections,
    /// Everything except TCP.
    Packets,
}

impl Seen {
    fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Packets => "packets",
        }
    }
}

impl Policy {
    /// A policy that matches everything.
    pub(crate) fn new(name: &str, action: Action) -> Self {
        let name = name.to_owned();
        Self { name, to: vec![], from: vec![], ports: vec![], dscp: vec![], action }
    }

    /// Whether it matches everything.
    pub(crate) fn fits_all(&self) -> bool {
        *self == Self::new(&self.name, self.action)
    }

    /// Whether it can match TCP.
    pub(crate) fn fits_tcp(&self) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|ports| ports.of(TCP))
    }

    /// The matches of its rules: a packet matches the policy if it passes all terms of one of them.
    fn tests(&self, seen: Seen) -> Vec<Vec<Term>> {
        let protocol = if seen == Seen::Connections { TCP } else { UDP };
        let fitting = self.ports.iter().filter(|ports| ports.of(protocol));
        let ports: Vec<Term> =
            fitting.map(|ports| Term::ToPorts(protocol, ports.first, ports.last)).collect();
        if ports.is_empty() && !self.ports.is_empty() {
            return vec![];
        }
        if self.to.is_empty() && self.from.is_empty() && self.dscp.is_empty() {
            return either(vec![vec![]], &ports);
        }
        [Version::V4, Version::V6]
            .into_iter()
            .flat_map(|version| either(self.of_version(version), &ports))
            .collect()
    }

    fn of_version(&self, version: Version) -> Vec<Vec<Term>> {
        let of = |prefixes: &[Prefix], term: fn(Prefix) -> Term| -> Option<Vec<Term>> {
            let fitting = prefixes.iter().filter(|prefix| Version::of(prefix.address()) == version);
            let terms: Vec<Term> = fitting.map(|prefix| term(*prefix)).collect();
            (prefixes.is_empty() || !terms.is_empty()).then_some(terms)
        };
        let lists = (of(&self.to, Term::To), of(&self.from, Term::FromAddress));
        let (Some(to), Some(from)) = lists else { return vec![] };
        let dscp: Vec<Term> = self.dscp.iter().map(|dscp| Term::Dscp(version, *dscp)).collect();
        let rules = either(vec![vec![Term::Version(version)]], &to);
        either(either(rules, &from), &dscp)
    }
}

/// Combines each rule with each term; without terms the rules stay as they are.
fn either(rules: Vec<Vec<Term>>, terms: &[Term]) -> Vec<Vec<Term>> {
    if terms.is_empty() {
        return rules;
    }
    let with = |rule: &Vec<Term>| {
        let rule = rule.clone();
        terms.iter().map(move |term| [&rule[..], std::slice::from_ref(term)].concat())
    };
    rules.iter().flat_map(with).collect()
}

/// A chain of rules that applies the first matching policy to each packet, and `usual` if none
/// matches. With `counted`, each policy counts its packets.
pub(crate) fn chain(
    policies: &[Policy],
    seen: Seen,
    counted: bool,
    usual: Vec<Term>,
    verdict: impl Fn(Action) -> Vec<Term>,
) -> Vec<Vec<Term>> {
    let rules = policies.iter().enumerate().flat_map(|(index, policy)| {
        let count = counted.then_some(Term::Count(index, seen));
        let end: Vec<Term> = count.into_iter().chain(verdict(policy.action)).collect();
        policy.tests(seen).into_iter().map(move |tests| [&tests[..], &end].concat())
    });
    rules.chain([usual]).collect()
}

/// Number of rules of the longest chain.
pub(crate) fn rules(policies: &[Policy]) -> usize {
    let of = |seen| policies.iter().map(|policy| policy.tests(seen).len()).sum::<usize>();
    of(Seen::Connections).max(of(Seen::Packets))
}

/// Name of a policy's counter in our nftables tables.
pub(crate) fn counter(index: usize, seen: Seen) -> String {
    format!("policy-{}-{}", index + 1, seen.as_str())
}

/// Names of all policies' counters.
pub(crate) fn counters(policies: &[Policy], seen: Seen) -> Vec<String> {
    (0..policies.len()).map(|index| counter(index, seen)).collect()
}

/// Counts of each policy, from the counters of our tables.
pub(crate) fn status(policies: &[Policy], counts: &BTreeMap<String, u64>) -> Vec<PolicyStatus> {
    let count = |index, seen| counts.get(&counter(index, seen)).copied().unwrap_or(0);
    let row = |(index, policy): (usize, &Policy)| PolicyStatus {
        name: policy.name.clone(),
        action: policy.action.as_str().to_owned(),
        connections: count(index, Seen::Connections),
        packets: count(index, Seen::Packets),
    };
    policies.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests;
