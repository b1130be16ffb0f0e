//! Translation of policies to nftables rules, and their counters.

use std::collections::BTreeMap;

use pep::traffic::{Action, Match, Policy, Subject};

use crate::figures::status::PolicyStatus;
use crate::intercept::rule::Term;

/// Returns the terms of a match. The IP version comes first, since other terms depend on it.
fn terms(of: Match) -> impl Iterator<Item = Term> {
    let ports = of.ports.and_then(|ports| Some((ports.protocol?, ports.first, ports.last)));
    let dscp = of.version.zip(of.dscp);
    let terms = [
        of.version.map(Term::Version),
        of.to.map(Term::To),
        of.from.map(Term::FromAddress),
        dscp.map(|(version, dscp)| Term::Dscp(version, dscp)),
        ports.map(|(protocol, first, last)| Term::ToPorts(protocol, first, last)),
    ];
    terms.into_iter().flatten()
}

/// Builds a chain that applies the first matching policy to each packet, or `usual` if no policy matches.
/// With `counted`, each policy counts its packets.
pub(crate) fn chain(
    policies: &[Policy],
    subject: Subject,
    counted: bool,
    usual: Vec<Term>,
    verdict: impl Fn(Action) -> Vec<Term>,
) -> Vec<Vec<Term>> {
    let rules = policies.iter().enumerate().flat_map(|(index, policy)| {
        let count = counted.then_some(Term::Count(index, subject));
        let end: Vec<Term> = count.into_iter().chain(verdict(policy.action)).collect();
        policy
            .matches(subject)
            .into_iter()
            .map(move |of| terms(of).chain(end.iter().cloned()).collect())
    });
    rules.chain([usual]).collect()
}

/// Name of a policy's counter in the nftables tables. Policies are numbered from 1.
pub(crate) fn counter(index: usize, subject: Subject) -> String {
    format!("policy-{}-{}", index + 1, subject.as_str())
}

/// Names of the counters of all policies.
pub(crate) fn counters(policies: &[Policy], subject: Subject) -> Vec<String> {
    (0..policies.len()).map(|index| counter(index, subject)).collect()
}

/// Builds the status of each policy from the values of the tables' counters.
pub(crate) fn status(policies: &[Policy], counts: &BTreeMap<String, u64>) -> Vec<PolicyStatus> {
    let row = |policy: &Policy| PolicyStatus {
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
        policy.connections += count(index, Subject::Connections);
        policy.packets += count(index, Subject::Packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, to: &[&str], ports: &[&str], action: Action) -> Policy {
        Policy {
            to: to.iter().map(|text| text.parse().unwrap()).collect(),
            ports: ports.iter().map(|text| pep::traffic::Ports::parse(text).unwrap()).collect(),
            dscp: vec![46],
            ..Policy::new(name, action)
        }
    }

    #[test]
    fn the_first_policy_comes_first_and_counts_and_the_usual_comes_last() {
        let policies = [
            policy("near", &["10.0.0.0/8"], &["udp/53", "443"], Action::Bypass),
            policy("far", &["fd00::/8"], &[], Action::Tunnel),
        ];
        let verdict =
            |action| vec![if action == Action::Bypass { Term::Return } else { Term::Drop }];
        let rules = chain(&policies, Subject::Connections, true, vec![Term::Accept], verdict);
        let line =
            |rule: &Vec<Term>| rule.iter().map(Term::to_string).collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = rules.iter().map(line).collect();
        let expected = [
            "meta nfproto ipv4 ip daddr 10.0.0.0/8 ip dscp 46 tcp dport 443 \
             counter name \"policy-1-connections\" return",
            "meta nfproto ipv6 ip6 daddr fd00::/8 ip6 dscp 46 \
             counter name \"policy-2-connections\" drop",
            "accept",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn counts_are_shown_by_policy() {
        let policies = [Policy::new("one", Action::Split), Policy::new("two", Action::Bypass)];
        let counts = BTreeMap::from([
            (counter(1, Subject::Connections), 7),
            (counter(0, Subject::Packets), 3),
        ]);
        let rows = status(&policies, &counts);
        assert_eq!((rows[0].connections, rows[0].packets), (0, 3));
        assert_eq!((&*rows[1].name, &*rows[1].action, rows[1].connections), ("two", "bypass", 7));
    }
}
