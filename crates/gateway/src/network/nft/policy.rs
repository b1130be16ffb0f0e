//! Translation of policies to nftables rules, and their counters.

use std::collections::BTreeMap;

use control::status::PolicyStatus;
use pep::traffic::{PolicyAction, PolicyMatch, PolicySubject, TrafficPolicy};

use crate::network::nft::rule::Term;

/// Returns the terms of a match. The IP version comes first, since other terms depend on it; so do ports, on which
/// that for QUIC does.
fn terms(of: PolicyMatch) -> impl Iterator<Item = Term> {
    let ports = of.ports.and_then(|ports| Some((ports.protocol?, ports.first, ports.last)));
    let dscp = of.version.zip(of.dscp);
    let terms = [
        of.version.map(Term::Version),
        of.to.map(Term::ToPrefix),
        of.from.map(Term::FromPrefix),
        dscp.map(|(version, dscp)| Term::Dscp(version, dscp)),
        ports.map(|(protocol, first, last)| Term::ToPorts(protocol, first, last)),
        of.quic.map(Term::BeginsQuic),
    ];
    terms.into_iter().flatten()
}

/// Builds a chain that applies the first matching policy to each packet, or `usual` if no policy matches.
/// Policies with an action that is `counted` count their packets; one without a verdict is left out.
pub(crate) fn chain(
    policies: &[TrafficPolicy],
    subject: PolicySubject,
    counted: impl Fn(PolicyAction) -> bool,
    usual: Vec<Term>,
    verdict: impl Fn(&TrafficPolicy) -> Vec<Term>,
) -> Vec<Vec<Term>> {
    let decided = policies.iter().enumerate().filter(|(_, policy)| !verdict(policy).is_empty());
    let rules = decided.flat_map(|(index, policy)| {
        let count = counted(policy.action).then_some(Term::Count(index, subject));
        let end: Vec<Term> = count.into_iter().chain(verdict(policy)).collect();
        policy
            .matches(subject)
            .into_iter()
            .map(move |of| terms(of).chain(end.iter().cloned()).collect())
    });
    rules.chain([usual]).collect()
}

/// Returns `true` if one of the policies refuses anything.
pub(crate) fn refuse(policies: &[TrafficPolicy]) -> bool {
    policies.iter().any(|policy| policy.action == PolicyAction::Refuse)
}

/// Name of a policy's counter in the nftables tables. Policies are numbered from 1.
pub(crate) fn counter(index: usize, subject: PolicySubject) -> String {
    format!("policy-{}-{}", index + 1, subject.as_str())
}

/// Names of the counters of all policies, for each of these subjects.
pub(crate) fn counters(policies: &[TrafficPolicy], subjects: &[PolicySubject]) -> Vec<String> {
    let of = |subject: &PolicySubject| {
        let subject = *subject;
        (0..policies.len()).map(move |index| counter(index, subject))
    };
    subjects.iter().flat_map(of).collect()
}

/// Builds the status of each policy from the values of the tables' counters.
pub(crate) fn status(
    policies: &[TrafficPolicy],
    counts: &BTreeMap<String, u64>,
) -> Vec<PolicyStatus> {
    let row = |policy: &TrafficPolicy| PolicyStatus {
        name: policy.name.clone(),
        action: policy.action.as_str().to_owned(),
        connections: 0,
        packets: 0,
    };
    let mut rows: Vec<PolicyStatus> = policies.iter().map(row).collect();
    add_counts(&mut rows, counts);
    rows
}

/// Adds the counts of another table of ours.
pub(crate) fn add_counts(policies: &mut [PolicyStatus], counts: &BTreeMap<String, u64>) {
    let count = |index, subject| counts.get(&counter(index, subject)).copied().unwrap_or(0);
    for (index, policy) in policies.iter_mut().enumerate() {
        policy.connections += count(index, PolicySubject::Connections);
        policy.packets += count(index, PolicySubject::Packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, to: &[&str], ports: &[&str], action: PolicyAction) -> TrafficPolicy {
        TrafficPolicy {
            to: to.iter().map(|text| text.parse().unwrap()).collect(),
            ports: ports.iter().map(|text| pep::traffic::PortRange::parse(text).unwrap()).collect(),
            dscp: vec![46],
            ..TrafficPolicy::new(name, action)
        }
    }

    #[test]
    fn the_first_policy_comes_first_and_counts_and_the_usual_comes_last() {
        let policies = [
            policy("near", &["10.0.0.0/8"], &["udp/53", "443"], PolicyAction::Bypass),
            policy("left out", &[], &[], PolicyAction::Refuse),
            policy("far", &["fd00::/8"], &[], PolicyAction::Tunnel),
        ];
        let verdict = |policy: &TrafficPolicy| match policy.action {
            PolicyAction::Bypass => vec![Term::Return],
            PolicyAction::Refuse => vec![],
            _ => vec![Term::Drop],
        };
        let (subject, usual) = (PolicySubject::Connections, vec![Term::Accept]);
        let rules = chain(&policies, subject, |_| true, usual, verdict);
        let line =
            |rule: &Vec<Term>| rule.iter().map(Term::to_string).collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = rules.iter().map(line).collect();
        let expected = [
            "meta nfproto ipv4 ip daddr 10.0.0.0/8 ip dscp 46 tcp dport 443 \
             counter name \"policy-1-connections\" return",
            "meta nfproto ipv6 ip6 daddr fd00::/8 ip6 dscp 46 \
             counter name \"policy-3-connections\" drop",
            "accept",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn counts_are_shown_by_policy() {
        let policies = [
            TrafficPolicy::new("one", PolicyAction::Split),
            TrafficPolicy::new("two", PolicyAction::Bypass),
        ];
        let counts = BTreeMap::from([
            (counter(1, PolicySubject::Connections), 7),
            (counter(0, PolicySubject::Packets), 3),
        ]);
        let rows = status(&policies, &counts);
        assert_eq!((rows[0].connections, rows[0].packets), (0, 3));
        assert_eq!((&*rows[1].name, &*rows[1].action, rows[1].connections), ("two", "bypass", 7));
    }
}
