//! Checks for configured local addresses that no interface has. A gateway starts without them and serves
//! them once they exist, so that a typing error would go unnoticed.

use std::net::IpAddr;

use config::{HubConfig, OperationConfig, SoloConfig, TerminalConfig};

use super::CheckFinding;
use crate::network::presence::is_absent;

pub(super) fn of_terminal(config: &TerminalConfig) -> Vec<CheckFinding> {
    let mut keys = of_operation(&config.operation);
    keys.extend(config.listen.map(|address| ("listen", address.ip())));
    keys.extend(config.proxy.iter().map(|proxy| ("proxy.listen", proxy.listen.ip())));
    let bundles = config.bundles.iter().filter_map(|bundles| bundles.listen);
    keys.extend(bundles.map(|address| ("bundles.listen", address.ip())));
    keys.extend(config.links.iter().filter_map(|link| Some(("link.source", link.source?))));
    if let Some(dns) = &config.dns {
        keys.extend(dns.keys.listen.iter().map(|address| ("dns.listen", address.ip())));
        let secure = dns.secure.iter().flat_map(|secure| secure.tls.iter().chain(&secure.https));
        keys.extend(secure.map(|address| ("dns", address.ip())));
    }
    findings(keys)
}

pub(super) fn of_hub(config: &HubConfig) -> Vec<CheckFinding> {
    let mut keys = of_operation(&config.operation);
    keys.extend(config.listen.map(|address| ("listen", address.ip())));
    keys.extend(config.listen_tcp.map(|address| ("listen_tcp", address.ip())));
    let bundles = config.bundles.iter().filter_map(|bundles| bundles.listen);
    keys.extend(bundles.map(|address| ("bundles.listen", address.ip())));
    findings(keys)
}

pub(super) fn of_solo(config: &SoloConfig) -> Vec<CheckFinding> {
    let mut keys = of_operation(&config.operation);
    keys.extend(config.proxy.iter().map(|proxy| ("proxy.listen", proxy.listen.ip())));
    findings(keys)
}

fn of_operation(operation: &OperationConfig) -> Vec<(&'static str, IpAddr)> {
    operation.metrics.iter().map(|metrics| ("metrics.listen", metrics.listen.ip())).collect()
}

fn findings(keys: Vec<(&'static str, IpAddr)>) -> Vec<CheckFinding> {
    let absent = keys.into_iter().filter(|(_, address)| is_absent(*address));
    let finding = |(key, address): (&str, IpAddr)| {
        let text = format!("no interface has {address} (`{key}`); it is served once one has it");
        CheckFinding::warn("address", text, "correct the key, or see `ip address` once all are up")
    };
    absent.map(finding).collect()
}
