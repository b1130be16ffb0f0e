//! The gateway pair with real programs and real kernels: the real binary in the lab, as root (if
//! the tests run as root) and as an ordinary user.
//!
//! Functions named `inside_…` are [programs](common::program) that tests run in a lab.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "a benchmark uses the rest")]
#[path = "../common/quic.rs"]
mod quic_hosts;

mod blocked;
mod bundles;
mod clean_up;
mod clients;
mod code_points;
mod compression;
mod crowds;
mod dashboard;
mod demo;
mod devices;
mod directions;
mod dlep;
mod egress;
mod endings;
mod enrol;
mod eyeballs;
mod fail_open;
mod fairness;
mod faults;
mod gateways;
mod gateways_option;
mod hostile;
mod http;
mod hubs;
mod inside;
mod links;
mod machines;
mod monitoring;
mod names;
mod one_address;
mod operate;
mod overload;
mod policy;
mod programs;
mod protocols;
mod proxy;
mod quic;
mod refusals;
mod refused;
mod rotation;
mod semantics;
mod shares;
mod shown;
mod solo;
mod stack;
mod stalled;
mod takeover;
mod transfer;
mod translated;
mod transparent;
mod tunnel;
mod two_terminals;
mod unread;
mod upgrade;
mod voice;
mod workers;

/// The link of most tests, with the pair: long and lossy enough to hurt, yet quick.
const LOSSY: [&str; 9] = [
    "--gateways",
    "--rate",
    "100Mbit/s",
    "--return-rate",
    "50Mbit/s",
    "--delay",
    "50ms",
    "--per",
    "1%",
];

/// The same link without the pair, for tests that start and stop gateways themselves.
fn bare() -> &'static [&'static str] {
    &LOSSY[1..]
}

/// The same link without losses, and with a queue that no test fills. Plain TCP does not retransmit a lost RST,
/// so the other end would wait for ever (RFC 9293 §3.5.1, half-open connections).
fn lossless() -> &'static [&'static str] {
    &["--rate", "100Mbit/s", "--return-rate", "50Mbit/s", "--delay", "50ms", "--queue", "32MB"]
}

/// Runs the program that a test has started in a lab.
#[test]
fn program() {
    common::program::run(programs::PROGRAMS);
}
