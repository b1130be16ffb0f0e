//! Checks for configurations that break protocols which carry addresses in their data, or compare the
//! addresses of several connections: mainly FTP.

use pep::traffic::{PolicyAction, TCP, TrafficPolicy};

use super::CheckFinding;

/// The control connection of FTP (RFC 959 §8).
const FTP: u16 = 21;

/// Warns that servers see the gateway's address instead of the clients', unless it is `transparent`.
pub(super) fn of_dialler(transparent: bool) -> Option<CheckFinding> {
    let finding = || {
        CheckFinding::warn(
            "protocols",
            "servers see this machine's address, not the client's: active FTP fails (`500 Illegal \
             PORT`), as does media by UDP to the address of a TCP connection",
            "nothing if clients use passive FTP; otherwise `transparent = true`",
        )
    };
    (!transparent).then(finding)
}

/// Warns of a policy that separates the connections of an FTP session.
pub(super) fn of_policies(policies: &[TrafficPolicy]) -> Option<CheckFinding> {
    let parts = |policy: &&TrafficPolicy| {
        let takes_ftp = policy.ports.iter().any(|ports| ports.has(TCP, FTP));
        policy.action != PolicyAction::Split && takes_ftp
    };
    let policy = policies.iter().find(parts)?;
    let name = &policy.name;
    let action = policy.action.as_str();
    Some(CheckFinding::warn(
        "protocols",
        format!(
            "policy {name:?}: `{action}` for port {FTP} alone breaks FTP, whose data connections \
             then come from another address"
        ),
        "give the policy the servers' addresses (`to`) instead of the port",
    ))
}

#[cfg(test)]
mod tests {
    use pep::traffic::PortRange;

    use super::*;

    #[test]
    fn a_policy_that_parts_control_and_data_connections_is_found() {
        let policy = |ports: &str, action| TrafficPolicy {
            ports: vec![PortRange::parse(ports).unwrap()],
            ..TrafficPolicy::new("old servers", action)
        };
        for (ports, action, parts) in [
            ("21", PolicyAction::Bypass, true),
            ("tcp/20-21", PolicyAction::Tunnel, true),
            ("udp/21", PolicyAction::Bypass, false),
            ("21", PolicyAction::Split, false),
            ("22", PolicyAction::Bypass, false),
        ] {
            let found = of_policies(&[policy(ports, action)]);
            assert_eq!(found.is_some(), parts, "{ports} {action:?}: {found:?}");
        }
        assert_eq!(of_policies(&[TrafficPolicy::new("all", PolicyAction::Bypass)]), None);
    }

    #[test]
    fn only_servers_that_see_the_gateway_are_spoken_of() {
        assert_eq!(of_dialler(true), None);
        assert!(of_dialler(false).unwrap().text.contains("500 Illegal PORT"));
    }
}
