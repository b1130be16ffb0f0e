//! The gateway pair with real programs and real kernels: the real binary in the
//! lab, as root (where the tests are) and as an ordinary user.
//!
//! The tests called `inside_…` are programs for the others: they run in a lab.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "a benchmark uses the rest")]
#[path = "../common/quic.rs"]
mod quic_hosts;

mod clean_up;
mod clients;
mod code_points;
mod demo;
mod directions;
mod dlep;
mod egress;
mod endings;
mod eyeballs;
mod fail_open;
mod faults;
mod gateways;
mod gateways_option;
mod inside;
mod machines;
mod operate;
mod policy;
mod protocols;
mod proxy;
mod quic;
mod refusals;
mod semantics;
mod shares;
mod shown;
mod solo;
mod stalled;
mod transfer;
mod transparent;
mod tunnel;

/// The link of most tests: long and lossy enough to hurt, and quick. With the
/// pair.
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

/// The same link without the pair: tests that start and end gateways themselves.
fn bare() -> &'static [&'static str] {
    &LOSSY[1..]
}

/// The same without the loss: nobody repeats a reset that plain TCP has lost, so
/// its other end would wait for ever (RFC 9293 §3.5.1, a half-open connection).
fn lossless() -> &'static [&'static str] {
    &LOSSY[1..LOSSY.len() - 2]
}
