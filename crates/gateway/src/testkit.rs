//! Shared test helpers: network namespaces, and the ends of connections.

mod ends;
mod hops;
mod prompt;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use config::{ControlPath, OperationConfig, PermittedTerminal};
use control::Role;
use os::netlink::RouteSocket;
use os::testkit::skip;
use pep::egress::EgressRules;
use pep::routes::TerminalQuota;
use slacp::PublicKey;
use tokio::task::JoinSet;
use units::Instant;

use crate::figures::counters::GatewayCounters;
use crate::hop::peers::PeerTable;
use crate::operate::GatewayOperations;
use crate::process::clock;
use crate::services::{Surroundings, Uplink};

pub(crate) use os::testkit::in_namespace;

pub(crate) use self::ends::{
    abort, assert_reset, connect_from, connected, dialer, payload, read_all, read_to_reset,
    speak_urgently,
};
pub(crate) use self::hops::{Alarm, Hops, address};
pub(crate) use self::prompt::{Prompt, Watch, prompt};

/// The operator's interface to a solo gateway without a control socket. Needs a runtime.
pub(crate) fn operations() -> GatewayOperations {
    operations_of(Role::Solo)
}

/// The same for a gateway in this role.
pub(crate) fn operations_of(role: Role) -> GatewayOperations {
    let config = OperationConfig { control: ControlPath::None, ..OperationConfig::default() };
    GatewayOperations::start(clock::now(), role, None, &config, PeerTable::none()).unwrap()
}

/// Runs `work` in the surroundings of a gateway without a hop. The tasks that it starts end with it.
pub(crate) fn without_hop<R>(
    counters: &Arc<GatewayCounters>,
    uplink: Uplink,
    work: impl FnOnce(&mut Surroundings<'_>) -> R,
) -> R {
    let (mut relays, mut peers) = (JoinSet::new(), PeerTable::none());
    work(&mut Surroundings {
        now: Instant::ZERO,
        hop: None,
        counters,
        relays: &mut relays,
        peers: &mut peers,
        uplink,
        hub: None,
        keys: None,
    })
}

/// A terminal that a hub permits, without limits.
pub(crate) fn permitted(name: &str, key: PublicKey) -> PermittedTerminal {
    PermittedTerminal {
        name: name.to_owned(),
        key,
        networks: Vec::new(),
        egress: EgressRules::everywhere(),
        carrier: None,
        cache: None,
        quota: TerminalQuota::default(),
        classes: BTreeMap::new(),
        links: BTreeMap::new(),
        volume: None,
        expires: None,
        address: None,
        invited: false,
    }
}

/// Asserts that the kernel's table of this name has the chains and rules of the printed one. Returns it as nft
/// lists it; `None` without nft.
pub(crate) fn assert_printed(name: &str, printed: &str) -> Option<String> {
    let ours = nft(&["list", "table", "inet", name], "")?;
    nft(&["-f", "-"], &printed.replace(name, "printed")).unwrap();
    let theirs = nft(&["list", "table", "inet", "printed"], "").unwrap();
    nft(&["delete", "table", "inet", "printed"], "").unwrap();
    assert_eq!(chains(&ours), chains(&theirs));
    Some(ours)
}

/// A table's chains as nft lists them, without name, comment and owner.
fn chains(listed: &str) -> Vec<&str> {
    let lines = listed.lines().skip(1).map(str::trim);
    let is_of_table = |line: &str| line == "flags owner" || line.starts_with("comment ");
    lines.filter(|line| !line.is_empty() && !is_of_table(line)).collect()
}

/// Adds an IPv4 address of a /24 subnet to a device.
pub(crate) fn give_address(name: &str, address: Ipv4Addr) {
    RouteSocket::open().unwrap().add_address(name, address.into(), 24).unwrap();
}

/// Output of `nft` in the caller's namespace, given `input`; skips the test if `nft` is missing.
pub(crate) fn nft(arguments: &[&str], input: &str) -> Option<String> {
    // The PATH of an ordinary user may lack /usr/sbin.
    let Some(mut child) = ["nft", "/usr/sbin/nft"].iter().find_map(|nft| spawn(nft, arguments))
    else {
        skip("no nft to list the rules with");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn spawn(program: &str, arguments: &[&str]) -> Option<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().ok()
}
