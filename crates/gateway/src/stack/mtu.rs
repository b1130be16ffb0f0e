//! Path MTUs reported by routers (RFC 1191, RFC 8201).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use units::Instant;

/// Time after which a report expires, since the path may have changed (RFC 8201 §4).
const REPORT_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum paths remembered. The path with the oldest report is forgotten first.
const MOST: usize = 4096;

/// The MTUs of paths to hosts, by the host's address.
#[derive(Debug)]
pub(super) struct PathMtus {
    /// MTU of the device, for paths without a report.
    device_mtu: u16,
    narrow: BTreeMap<IpAddr, (u16, Instant)>,
}

impl PathMtus {
    /// Creates an empty table. `usual`: the device's MTU.
    pub(super) fn new(usual: u16) -> Self {
        Self { device_mtu: usual, narrow: BTreeMap::new() }
    }

    /// Returns the MTU of the path to `host`, in bytes.
    pub(super) fn of(&self, now: Instant, host: IpAddr) -> u16 {
        match self.narrow.get(&host) {
            Some((mtu, since)) if now.saturating_since(*since) < REPORT_LIFETIME => *mtu,
            _ => self.device_mtu,
        }
    }

    /// Applies a router's report about the path to `host`.
    pub(super) fn lower(&mut self, now: Instant, host: IpAddr, mtu: u16) {
        // A report must not raise the path MTU (RFC 8201 §4).
        if mtu >= self.of(now, host) {
            return;
        }
        if self.narrow.len() >= MOST && !self.narrow.contains_key(&host) {
            let oldest = self.narrow.iter().min_by_key(|(_, (_, since))| *since);
            let oldest = oldest.map(|(host, _)| *host);
            oldest.into_iter().for_each(|host| {
                self.narrow.remove(&host);
            });
        }
        self.narrow.insert(host, (mtu, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_narrows_the_path_to_its_host_for_a_while() {
        let mut mtus = PathMtus::new(1500);
        let host = |last| IpAddr::from([192, 0, 2, last]);
        let now = Instant::ZERO + REPORT_LIFETIME;
        mtus.lower(now, host(1), 1400);
        mtus.lower(now, host(1), 1450);
        mtus.lower(now, host(2), 9000);
        assert_eq!([1, 2].map(|last| mtus.of(now, host(last))), [1400, 1500]);
        assert_eq!(mtus.of(now + REPORT_LIFETIME, host(1)), 1500);
    }

    #[test]
    fn the_oldest_reports_make_room() {
        let mut mtus = PathMtus::new(1500);
        let host = |number: usize| IpAddr::from((number as u32).to_be_bytes());
        for number in 0..MOST + 10 {
            let now = Instant::ZERO + Duration::from_millis(number as u64);
            mtus.lower(now, host(number), 1400);
        }
        assert_eq!(mtus.narrow.len(), MOST);
        let now = Instant::ZERO + Duration::from_secs(1);
        assert_eq!([0, 9, 10].map(|number| mtus.of(now, host(number))), [1500, 1500, 1400]);
    }
}
