//! What becomes of a new connection, or of a packet that is not TCP: the first
//! policy that fits says it, and without one the usual thing happens. The kernel
//! decides, by rules made here; a connection is decided about once, by its SYN.

use std::collections::BTreeMap;

use crate::class::{Ports, TCP, UDP};
use crate::prefix::Prefix;
use crate::rule::{Term, Version};
use crate::status::PolicyStatus;

/// The most rules that all policies of a gateway may come to.
pub(crate) const MOST_RULES: usize = 1000;

/// What is done with traffic. Sections `[[policy]]`, key `action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The usual thing: TCP is split, and what is not TCP goes through the tunnel,
    /// if there is one.
    Split,
    /// It crosses the hop whole, as packets, through the tunnel.
    Tunnel,
    /// It passes as it would without skyhop.
    Bypass,
}

impl Action {
    /// Every action.
    pub(crate) const ALL: [Self; 3] = [Self::Split, Self::Tunnel, Self::Bypass];

    /// The word for it, as in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Tunnel => "tunnel",
            Self::Bypass => "bypass",
        }
    }
}

/// One section `[[policy]]`: what fits one element of each list that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(crate) name: String,
    /// Where the traffic goes to.
    pub(crate) to: Vec<Prefix>,
    /// Where it comes from.
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
    /// SYNs of TCP.
    Connections,
    /// Anything but TCP.
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
    /// The policy of everything.
    pub(crate) fn new(name: &str, action: Action) -> Self {
        let name = name.to_owned();
        Self { name, to: vec![], from: vec![], ports: vec![], dscp: vec![], action }
    }

    /// Whether there is nothing that it does not fit.
    pub(crate) fn fits_all(&self) -> bool {
        *self == Self::new(&self.name, self.action)
    }

    /// Whether it can fit TCP.
    pub(crate) fn fits_tcp(&self) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|ports| ports.of(TCP))
    }

    /// The tests of its rules: a packet that passes all tests of one fits.
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

/// Each rule with each of the terms; the rules as they are if there are none.
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

/// A chain of rules that does with each packet what the first fitting policy says,
/// and `usual` if none fits. With `counted`, each policy counts what it fits.
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

/// How many rules the policies come to, in the longest chain.
pub(crate) fn rules(policies: &[Policy]) -> usize {
    let of = |seen| policies.iter().map(|policy| policy.tests(seen).len()).sum::<usize>();
    of(Seen::Connections).max(of(Seen::Packets))
}

/// The name of a policy's counter in our nftables tables.
pub(crate) fn counter(index: usize, seen: Seen) -> String {
    format!("policy-{}-{}", index + 1, seen.as_str())
}

/// The counters of all policies.
pub(crate) fn counters(policies: &[Policy], seen: Seen) -> Vec<String> {
    (0..policies.len()).map(|index| counter(index, seen)).collect()
}

/// What each policy has decided about, by the counters of our tables.
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
