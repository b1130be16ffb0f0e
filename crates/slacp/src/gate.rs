//! What keeps strangers from costing a hub much (`docs/slacp.md`, Under load):
//! cookies, and how many handshakes and answers it grants. Its size is fixed; a
//! stranger leaves nothing behind but a count among a thousand.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use ring::hmac;
use units::Instant;

use crate::knock::{self, Mac};

/// A cookie is good in the period in which it was made and in the next one.
const COOKIE_PERIOD: Duration = Duration::from_secs(120);
/// Addresses share so many counters.
const COUNTERS: usize = 1024;
/// Handshakes with a cookie that a counter allows in a second.
const HANDSHAKES_EACH: u8 = 4;
/// Hints to unknown sessions that a counter allows in a second.
const HINTS_EACH: u8 = 2;

/// Decides what a datagram from before any session is worth.
pub(crate) struct Gate {
    secret: hmac::Key,
    handshakes: Budget,
    per_address: Counters,
    hints: Counters,
}

impl Gate {
    /// A gate that lets so many handshakes a second pass without a cookie.
    pub(crate) fn new(handshakes_per_second: u32, rng: &mut ChaCha20Rng) -> Self {
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        Self {
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            handshakes: Budget::new(handshakes_per_second),
            per_address: Counters::new(HANDSHAKES_EACH),
            hints: Counters::new(HINTS_EACH),
        }
    }

    /// Whether a handshake may cost its Diffie–Hellman operations though nobody
    /// knows that its sender's address is true.
    pub(crate) fn admits_unproven(&mut self, now: Instant) -> bool {
        self.handshakes.take(now)
    }

    /// The same for a sender with a cookie.
    pub(crate) fn admits_proven(&mut self, now: Instant, from: SocketAddr) -> bool {
        let slot = self.slot(now, from);
        self.per_address.take(now, slot)
    }

    /// Whether somebody who speaks of a session that there is not is to be
    /// told.
    pub(crate) fn admits_hint(&mut self, now: Instant, from: SocketAddr) -> bool {
        let slot = self.slot(now, from);
        self.hints.take(now, slot)
    }

    /// The cookie of an address.
    pub(crate) fn cookie(&self, now: Instant, from: SocketAddr) -> Mac {
        self.cookie_of(period(now), from)
    }

    /// Whether `cookie` was made here for this address, 2 to 4 minutes ago at
    /// most.
    pub(crate) fn is_cookie(&self, now: Instant, from: SocketAddr, cookie: &Mac) -> bool {
        let now = period(now);
        let made = |period| knock::same(&self.cookie_of(period, from), cookie);
        made(now) || now.checked_sub(1).is_some_and(made)
    }

    fn cookie_of(&self, period: u64, from: SocketAddr) -> Mac {
        let mut context = self.context(b"cookie", period, from.ip());
        context.update(&from.port().to_be_bytes());
        knock::truncate(context.sign())
    }

    /// The counter of an address: of a /24 or /48, of which one stranger may
    /// have many. Which ones share a counter changes with the cookies.
    fn slot(&self, now: Instant, from: SocketAddr) -> usize {
        let tag = self.context(b"counter", period(now), network(from.ip())).sign();
        let bytes = tag.as_ref();
        usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) % COUNTERS
    }

    fn context(&self, label: &[u8], period: u64, ip: IpAddr) -> hmac::Context {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(label);
        context.update(&period.to_be_bytes());
        match ip {
            IpAddr::V4(ip) => context.update(&ip.octets()),
            IpAddr::V6(ip) => context.update(&ip.octets()),
        }
        context
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / COOKIE_PERIOD.as_nanos() as u64
}

/// The /24 or /48 of an address: who has one of it may have many.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() & !0xff).into()),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !((1 << 80) - 1)).into()),
    }
}

/// So many in a second, of which one second's worth is saved up.
struct Budget {
    per_second: u32,
    left: f64,
    since: Instant,
}

impl Budget {
    fn new(per_second: u32) -> Self {
        Self { per_second, left: f64::from(per_second), since: Instant::ZERO }
    }

    fn take(&mut self, now: Instant) -> bool {
        let most = f64::from(self.per_second);
        let earned = now.saturating_since(self.since).as_secs_f64() * most;
        self.left = (self.left + earned).min(most);
        self.since = now;
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

/// Counts in slots, begun anew every second.
struct Counters {
    each: u8,
    second: u64,
    taken: Box<[u8; COUNTERS]>,
}

impl Counters {
    fn new(each: u8) -> Self {
        Self { each, second: 0, taken: Box::new([0; COUNTERS]) }
    }

    fn take(&mut self, now: Instant, slot: usize) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.taken.fill(0);
        }
        let enough = self.taken[slot] < self.each;
        self.taken[slot] += u8::from(enough);
        enough
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    fn gate(handshakes: u32) -> Gate {
        Gate::new(handshakes, &mut ChaCha20Rng::from_seed([1; 32]))
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn address(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], port))
    }

    #[test]
    fn a_cookie_is_good_for_its_address_and_for_two_to_four_minutes() {
        let gate = gate(1);
        let cookie = gate.cookie(at(119), address(1, 1));
        assert!(gate.is_cookie(at(119), address(1, 1), &cookie));
        assert!(gate.is_cookie(at(239), address(1, 1), &cookie));
        assert!(!gate.is_cookie(at(240), address(1, 1), &cookie));
        for other in [address(2, 1), address(1, 2)] {
            assert!(!gate.is_cookie(at(119), other, &cookie));
        }
        assert!(!gate.is_cookie(at(1), address(1, 1), &[0; 16]));
    }

    #[test]
    fn unproven_handshakes_are_bounded_and_return_with_time() {
        assert!(!gate(0).admits_unproven(at(9)));
        let mut gate = gate(10);
        let granted = |gate: &mut Gate, now| (0..100).filter(|_| gate.admits_unproven(now)).count();
        assert_eq!(granted(&mut gate, at(5)), 10);
        assert_eq!(granted(&mut gate, at(5) + Duration::from_millis(300)), 3);
        assert_eq!(granted(&mut gate, at(100)), 10);
    }

    #[test]
    fn one_network_cannot_take_the_handshakes_of_another() {
        let mut gate = gate(10);
        let from = |gate: &mut Gate, net: u8| {
            let address = |i: u8| SocketAddr::from(([10, 0, net, i], u16::from(i)));
            (0..200).filter(|i| gate.admits_proven(at(3), address(*i))).count()
        };
        assert_eq!((from(&mut gate, 1), from(&mut gate, 2)), (4, 4));
        assert!(gate.admits_proven(at(4), address(1, 1)));
    }
}
