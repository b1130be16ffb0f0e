//! Checks for operations of a configuration that the kernel would refuse, mostly for lack of privileges.
//!
//! The user who runs the check may have fewer privileges than the gateway, so missing privileges are only
//! a warning.

use std::fs::OpenOptions;

use config::{AnswerTiming, HubConfig, InterceptConfig, TunnelConfig, TunnelDevice};
use pep::traffic::{IpFamily, TrafficPolicy};

use super::CheckFinding;
use super::machine::has_net_admin;
use crate::intercept::netfilter::GatewaySlot;
use crate::intercept::syn_tap::{SynInjector, raw_socket};
use crate::network::nft::policy;
use crate::network::routing::is_loopback_up;
use crate::process::capability::Capability;
use crate::process::refusal::{KernelOperation, KernelRefusal};
use crate::services::tunnel::addresses::TerminalAddresses;

/// Checks the requirements of deferred answers, of intercepting the machine's own connections, and of policies that
/// refuse.
pub(super) fn interception(
    config: &InterceptConfig,
    policies: &[TrafficPolicy],
) -> Vec<CheckFinding> {
    let deferred = config.answer == AnswerTiming::Deferred;
    let mut findings = Vec::new();
    if (deferred || config.own_traffic) && !is_loopback_up() {
        let refusal = KernelRefusal::expected(KernelOperation::Loopback, libc::ENETDOWN);
        findings.push(finding("interception", &refusal));
    }
    if deferred {
        findings.push(answers());
    }
    if policy::refuse(policies) {
        findings.push(refusals());
    }
    findings
}

/// Checks that packets can be answered in the name of their destination. A gateway that cannot lets them pass.
fn refusals() -> CheckFinding {
    const CHECK: &str = "refusals";
    match raw_socket(IpFamily::V4, None).map_err(KernelRefusal::wrap(KernelOperation::Packets)) {
        Ok(_) => CheckFinding::ok(CHECK, "may be sent"),
        Err(refusal) => {
            let mend = refusal.fix().unwrap_or("see the gateway's log");
            CheckFinding::warn(CHECK, refusal.what(), mend)
        }
    }
}

/// Checks that SYNs can be reinjected, as deferred answers require.
fn answers() -> CheckFinding {
    const CHECK: &str = "answers";
    match SynInjector::new(&[IpFamily::V4], GatewaySlot(0).reinjection_mark()) {
        Ok(_) => CheckFinding::ok(CHECK, "may be deferred"),
        Err(error) => finding(CHECK, &KernelRefusal::wrap(KernelOperation::Packets)(error)),
    }
}

/// Checks that the tunnel's device can be created.
pub(super) fn tunnel(config: &TunnelConfig) -> CheckFinding {
    const CHECK: &str = "tunnel";
    match device(config.device) {
        Ok(kind) => {
            CheckFinding::ok(CHECK, format!("{} can be created as a {kind} device", config.name))
        }
        Err(refusal) => finding(CHECK, &refusal),
    }
}

/// Checks that terminals without networks can have addresses of the pool.
pub(super) fn pool(config: &HubConfig) -> Option<CheckFinding> {
    let checked = TerminalAddresses::load(config)?.check(&config.terminals);
    let mend = "choose another `tunnel.pool`, or give every terminal its `networks`";
    checked.err().map(|error| CheckFinding::fail("tunnel", error.to_string(), mend))
}

/// Returns the type of device that would be used, without creating one.
fn device(wanted: TunnelDevice) -> Result<&'static str, KernelRefusal> {
    let may = |needed: &[Capability]| needed.iter().all(|capability| capability.is_held());
    let denied = |operation| KernelRefusal::expected(operation, libc::EPERM);
    let tun = || OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let tun = || tun().map(|_| "TUN").map_err(KernelRefusal::wrap(KernelOperation::Tun));
    let veth = || match may(&[Capability::SysAdmin, Capability::NetRaw]) {
        true => Ok("veth"),
        false => Err(denied(KernelOperation::Veth)),
    };
    if !has_net_admin() {
        return Err(denied(KernelOperation::Device));
    }
    match wanted {
        TunnelDevice::Tun => tun(),
        TunnelDevice::Veth => veth(),
        TunnelDevice::Auto => tun().or_else(|_| veth()),
    }
}

fn finding(check: &str, refusal: &KernelRefusal) -> CheckFinding {
    let mend = refusal.fix().unwrap_or("see the gateway's log");
    // The gateway may have privileges that the user of this check lacks.
    if refusal.is_denial() && !has_net_admin() {
        return CheckFinding::warn(check, refusal.what(), mend);
    }
    CheckFinding::fail(check, refusal.what(), mend)
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::doctor::FindingSeverity;
    use crate::testkit::in_namespace;

    #[test]
    fn deferred_answers_and_own_traffic_need_the_loopback_device() {
        in_namespace(|| {
            let config = |answer, own_traffic| InterceptConfig {
                answer,
                own_traffic,
                ..InterceptConfig::nowhere()
            };
            let configs = [
                config(AnswerTiming::Early, false),
                config(AnswerTiming::Early, true),
                config(AnswerTiming::Deferred, false),
            ];
            let failures = |config: &InterceptConfig| {
                let findings = interception(config, &[]);
                findings.iter().filter(|finding| finding.verdict == FindingSeverity::Fail).count()
            };
            assert_eq!(configs.each_ref().map(failures), [0, 0, 0]);
            // The loopback device of a new namespace is down.
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            assert_eq!(configs.each_ref().map(failures), [0, 1, 1]);
        });
    }

    #[test]
    fn a_refusal_for_lack_of_privilege_is_a_warning_to_those_who_lack_it() {
        let denied = finding("tunnel", &KernelRefusal::expected(KernelOperation::Tun, libc::EPERM));
        let expected = if has_net_admin() { FindingSeverity::Fail } else { FindingSeverity::Warn };
        assert_eq!(denied.verdict, expected);
        let missing =
            finding("tunnel", &KernelRefusal::expected(KernelOperation::Tun, libc::ENOENT));
        assert_eq!(missing.verdict, FindingSeverity::Fail);
        assert!(missing.mend.unwrap().contains("modprobe tun"));
        let unknown =
            finding("tunnel", &KernelRefusal::expected(KernelOperation::Tun, libc::EBUSY));
        assert_eq!(unknown.mend.unwrap(), "see the gateway's log");
    }
}
