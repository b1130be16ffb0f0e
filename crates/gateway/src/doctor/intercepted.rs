//! Checks of settings on this machine that affect intercepted connections.

use config::InterceptConfig;
use control::status::{GatewayStatus, SharedInterface};

use super::CheckFinding;
use crate::intercept::bridges::find_filtered;
use crate::intercept::netfilter::claimed_interfaces;
use crate::intercept::{firewall, shared_interfaces};

/// Warns of bridges with filtered frames, and of FORWARD rules that intercepted connections bypass.
pub(super) fn examine(config: &InterceptConfig) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    findings.extend(find_filtered(&config.interfaces).iter().map(|bridge| {
        let text = format!(
            "frames of {} pass through netfilter (br_netfilter): each SYN takes a detour, and `[dns]` \
             does not answer questions from there",
            bridge.name
        );
        CheckFinding::warn("bridge", text, bridge.fix_advice())
    }));
    let unasked = firewall::forward_filter_chains();
    findings.extend((!unasked.is_empty()).then(|| {
        let text = format!(
            "forwarding rules (nftables: {}) do not see intercepted connections, which end here",
            unasked.join(", ")
        );
        let mend =
            "for what they refuse, add a policy with `action = \"bypass\"`; then they decide";
        CheckFinding::warn("forward rules", text, mend)
    }));
    findings
}

/// Checks how the running gateway with this file gets connections, if there is one, and which other gateways
/// would get them.
pub(super) fn examine_running(
    config: &InterceptConfig,
    running: Option<&GatewayStatus>,
) -> Vec<CheckFinding> {
    let mut findings: Vec<CheckFinding> = running.and_then(unanswered).into_iter().collect();
    match running.and_then(|status| status.interception.as_ref()) {
        Some(status) => findings.extend(shared(&status.shared, SHARED_MEND)),
        None => {
            let claimed = claimed_interfaces(&config.interfaces, config.own_traffic);
            let mend = format!("{SHARED_MEND}; it is no fault if that gateway runs with this file");
            findings.extend(shared(&shared_interfaces::find(&claimed, None), &mend));
        }
    }
    findings
}

const SHARED_MEND: &str = "end one of them, or give each its own `intercept.interfaces`";

/// Warns of interfaces that another gateway intercepts as well.
fn shared(interfaces: &[SharedInterface], mend: &str) -> impl Iterator<Item = CheckFinding> {
    interfaces.iter().map(move |shared| CheckFinding::warn("shared", shared.to_string(), mend))
}

/// Warns if clients of the running gateway get no answers.
fn unanswered(status: &GatewayStatus) -> Option<CheckFinding> {
    let unanswered = status.interception.as_ref()?.unanswered.as_ref()?;
    let text = format!(
        "{} clients were redirected and never answered: they pass unaccelerated",
        unanswered.clients
    );
    Some(CheckFinding::warn("answers", text, unanswered.suspects.clone()))
}

#[cfg(test)]
mod tests {
    use control::status::{InterceptionStatus, UnansweredStatus};

    use super::*;

    #[test]
    fn clients_without_answers_are_reported_with_what_may_be_the_cause() {
        let mut status = GatewayStatus::default();
        assert_eq!(unanswered(&status), None);
        status.interception = Some(InterceptionStatus::default());
        assert_eq!(unanswered(&status), None);
        let suspects = "a firewall".to_owned();
        let unanswered_clients = Some(UnansweredStatus { clients: 2, suspects: suspects.clone() });
        status.interception =
            Some(InterceptionStatus { unanswered: unanswered_clients, ..Default::default() });
        let found = unanswered(&status).unwrap();
        assert!(found.text.starts_with("2 clients") && found.mend == Some(suspects), "{found:?}");
    }
}
