//! Endpoints of `tcp` on a network device, with every option and congestion controller, against
//! real kernels: [`serve()`] test objects over HTTP, or [`get()`] one and verify every byte; for scenarios
//! in the lab, bulk transfers between two of them (`transfer`).

mod drive;
mod get;
mod report;
mod serve;
mod transfer;

use std::net::IpAddr;

use tcp::Config;

pub(crate) use drive::drive;
pub use get::{FetchResult, GetError, ObjectUrl, ParseUrlError, get};
pub use report::{ReceivedObject, ServedConnection};
pub(crate) use serve::head_of;
pub use serve::serve;
pub(crate) use transfer::{ConnectionOpening, EndRecord, StationEnds, TransferAmount, TransferEnd};

/// Adapts settings to an Ethernet, and gives them a seed of their own. The MSS is limited because
/// path MTU discovery is not modelled.
pub fn fit_to_ethernet(config: &Config, own: IpAddr) -> Config {
    // 1500 bytes without the headers of IP and TCP: 20 + 20 with IPv4, 40 + 20 with IPv6.
    let most = if own.is_ipv4() { 1460 } else { 1440 };
    Config { mss: config.mss.min(most), seed: random(), ..config.clone() }
}

/// Returns a random number for initial sequence numbers (RFC 6528), ports and seeds.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // Nothing here works without the system's random numbers.
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    u64::from_le_bytes(bytes)
}
