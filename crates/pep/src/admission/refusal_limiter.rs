//! Limit of the refusals that a gateway sends in the name of destinations.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use shaping::TokenBucket;
use slacp::client_network;
use units::Instant;

/// Refusals of one client at once. A page with 40 hosts takes 160: an attempt by each IP version, of two datagrams,
/// as ClientHellos with post-quantum keys have.
const BURST: u32 = 400;
/// Refusals of one client a second, after the burst.
const PER_SECOND: u32 = 100;
/// Most clients with a bucket of their own; further ones share one.
const MOST_CLIENTS: usize = 1024;
/// Interval between two searches for clients that have rested.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Limits the refusals for each client: an IPv4 address, or the /64 of an IPv6 address.
#[derive(Debug)]
pub struct RefusalLimiter {
    clients: BTreeMap<IpAddr, TokenBucket>,
    /// The bucket of all clients without one.
    others: TokenBucket,
    /// Time before which no bucket is dropped.
    next_sweep: Instant,
}

impl Default for RefusalLimiter {
    fn default() -> Self {
        Self { clients: BTreeMap::new(), others: bucket(), next_sweep: Instant::ZERO }
    }
}

impl RefusalLimiter {
    /// Returns whether a refusal may be sent to this client now, and counts it if so.
    pub fn take(&mut self, now: Instant, client: IpAddr) -> bool {
        let client = client_network(client);
        if let Some(own) = self.clients.get_mut(&client) {
            return own.take(now);
        }
        if self.clients.len() >= MOST_CLIENTS {
            self.sweep(now);
        }
        if self.clients.len() >= MOST_CLIENTS {
            return self.others.take(now);
        }
        self.clients.entry(client).or_insert_with(bucket).take(now)
    }

    /// Drops full buckets, which equal new ones. Not more often than once a second: a flood from ever new addresses
    /// would look at all of them for each packet.
    fn sweep(&mut self, now: Instant) {
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.clients.retain(|_, own| !own.is_full(now));
        }
    }
}

fn bucket() -> TokenBucket {
    TokenBucket::new(PER_SECOND, BURST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn v4(host: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + host).into())
    }

    fn taken(limiter: &mut RefusalLimiter, now: Instant, client: IpAddr, tries: u32) -> u32 {
        (0..tries).filter(|_| limiter.take(now, client)).count() as u32
    }

    #[test]
    fn a_page_of_forty_hosts_is_refused_at_once_and_a_flood_is_not() {
        let mut limiter = RefusalLimiter::default();
        assert_eq!(taken(&mut limiter, at(0), v4(1), 160), 160);
        assert_eq!(taken(&mut limiter, at(0), v4(1), 10_000), BURST - 160);
        assert_eq!(taken(&mut limiter, at(1000), v4(1), 10_000), PER_SECOND);
        assert_eq!(taken(&mut limiter, at(1000), v4(2), 160), 160, "another client");
    }

    #[test]
    fn the_addresses_of_a_network_share_a_limit() {
        let mut limiter = RefusalLimiter::default();
        let [one, other, elsewhere] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(taken(&mut limiter, at(0), one, 1000), BURST);
        assert_eq!(taken(&mut limiter, at(0), other, 1000), 0);
        assert_eq!(taken(&mut limiter, at(0), elsewhere, 1000), BURST);
    }

    #[test]
    fn forged_addresses_take_neither_memory_nor_the_limit_of_known_clients() {
        let mut limiter = RefusalLimiter::default();
        assert!(limiter.take(at(0), v4(0)));
        let granted = (1..100_000).filter(|host| limiter.take(at(0), v4(*host))).count();
        assert_eq!(limiter.clients.len(), MOST_CLIENTS);
        assert_eq!(granted, MOST_CLIENTS - 1 + BURST as usize);
        assert!(limiter.take(at(0), v4(0)));
        // They have rested by then, and give way.
        assert!(limiter.take(at(2000), v4(200_000)));
        assert_eq!(limiter.clients.len(), 1);
    }
}
