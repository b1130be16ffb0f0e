//! Protection of a hub against load from strangers (`docs/slacp.md`, Under load): cookies, and
//! limits on handshakes and answers. Its size is fixed; a stranger leaves no state except in one of
//! a thousand shared counters.

use core::cell::Cell;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use ring::hmac;
use shaping::TokenBucket;
use units::Instant;

use crate::ids::networks::network;
use crate::keys::handshake::knock;
use crate::wire::packet::{MAC, Mac};

/// A cookie is valid in the period in which it was made and in the next one.
const COOKIE_PERIOD: Duration = Duration::from_secs(120);
/// Number of counters per kind, 1 kB each, shared by senders through a keyed hash. One network in a
/// thousand shares a counter with a given other one.
const COUNTERS: usize = 1024;
/// Handshakes with a cookie per second that each network's counter allows, whatever others do.
/// Together with [`PROVEN_PER_SECOND`] at most 4,072 a second, which at 250 µs each is one core.
const HANDSHAKES_EACH: u8 = 3;
/// Further handshakes with a cookie per second, for any network: a thousand terminals behind one
/// address come up within a second of receiving their cookies.
const PROVEN_PER_SECOND: u32 = 1000;
/// Failed handshakes per second after which a network gets none of [`PROVEN_PER_SECOND`] any more.
/// It is an eighth of these, so eight networks with true addresses are needed to exhaust them.
const MAX_FAILED_EACH: u8 = 125;
/// Hints about unknown sessions per second that a counter allows.
const HINTS_EACH: u8 = 2;

/// Decides how much work a datagram without a session is worth.
pub(crate) struct AdmissionGate {
    secret: hmac::Key,
    buckets: SenderHash,
    unproven: TokenBucket,
    proven: TokenBucket,
    per_network: SecondCounters,
    /// Failed handshakes by network, and recently failed senders.
    failed_networks: SecondCounters,
    failed_sources: RecentSenders,
    hints: SecondCounters,
    hashes: Cell<u64>,
}

impl AdmissionGate {
    /// Creates a gate that admits `handshakes_per_second` without a cookie.
    pub(crate) fn new(handshakes_per_second: u32, rng: &mut ChaCha20Rng) -> Self {
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        Self::with_secret(handshakes_per_second, &secret)
    }

    /// Creates a gate with a given `secret` for the cookies. Gates with the same secret accept each
    /// other's.
    pub(crate) fn with_secret(handshakes_per_second: u32, secret: &[u8; 32]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        Self {
            buckets: SenderHash::new(0, &secret),
            secret,
            unproven: a_second_of(handshakes_per_second),
            proven: a_second_of(PROVEN_PER_SECOND),
            per_network: SecondCounters::new(HANDSHAKES_EACH),
            failed_networks: SecondCounters::new(MAX_FAILED_EACH),
            failed_sources: RecentSenders::new(),
            hints: SecondCounters::new(HINTS_EACH),
            hashes: Cell::new(0),
        }
    }

    /// Number of hashes computed for cookies.
    pub(crate) fn hashes(&self) -> u64 {
        self.hashes.get()
    }

    /// Returns whether to spend Diffie–Hellman operations on a handshake whose source address may
    /// be forged.
    pub(crate) fn admits_unproven(&mut self, now: Instant) -> bool {
        self.unproven.take(now)
    }

    /// Returns the same for a sender with a cookie. It may use its network's own allowance, the
    /// shared one, and whatever senders without a cookie leave, so a cookie is never a
    /// disadvantage.
    pub(crate) fn admits_proven(&mut self, now: Instant, from: SocketAddr) -> bool {
        let network = self.network_bucket(now, from);
        let source = self.source_hash(now, from);
        // The network's own allowance first: others cannot use it.
        if self.per_network.take(now, network) {
            return true;
        }
        // A thousand terminals behind one address need the shared allowance, which networks of
        // strangers must not exhaust.
        let trusted =
            self.failed_networks.has_room(now, network) && !self.failed_sources.has(now, source);
        trusted && (self.proven.take(now) || self.unproven.take(now))
    }

    /// Records a failed handshake with a cookie: it was not authentic, its key is not served, or
    /// the same key had another handshake a moment ago.
    pub(crate) fn record_failure(&mut self, now: Instant, from: SocketAddr) {
        let network = self.network_bucket(now, from);
        let source = self.source_hash(now, from);
        self.failed_networks.take(now, network);
        self.failed_sources.put(now, source);
    }

    /// Returns whether to send a hint in reply to a packet of an unknown session.
    pub(crate) fn admits_hint(&mut self, now: Instant, from: SocketAddr) -> bool {
        let network = self.network_bucket(now, from);
        self.hints.take(now, network)
    }

    /// Computes the cookie of an address.
    pub(crate) fn cookie(&self, now: Instant, from: SocketAddr) -> Mac {
        self.cookie_of(period(now), from)
    }

    /// Returns whether `cookie` was made here for this address in this cookie period or the one
    /// before.
    pub(crate) fn is_cookie(&self, now: Instant, from: SocketAddr, cookie: &Mac) -> bool {
        // An initiation without a cookie costs no hash here.
        if *cookie == NO_COOKIE {
            return false;
        }
        let now = period(now);
        let made = |period| knock::same(&self.cookie_of(period, from), cookie);
        made(now) || now.checked_sub(1).is_some_and(made)
    }

    fn cookie_of(&self, period: u64, from: SocketAddr) -> Mac {
        self.hashes.set(self.hashes.get() + 1);
        let mut context = hmac::Context::with_key(&self.secret);
        // One secret serves the cookies and the counters; the label keeps them apart.
        context.update(b"cookie");
        context.update(&period.to_be_bytes());
        match from.ip() {
            IpAddr::V4(ip) => context.update(&ip.octets()),
            IpAddr::V6(ip) => context.update(&ip.octets()),
        }
        context.update(&from.port().to_be_bytes());
        knock::truncate(context.sign())
    }

    /// The counter of a sender's network, because a stranger may hold many of its addresses.
    fn network_bucket(&mut self, now: Instant, from: SocketAddr) -> usize {
        slot(self.buckets(now).hash(bits(network(from.ip())), 0))
    }

    fn source_hash(&mut self, now: Instant, from: SocketAddr) -> u64 {
        self.buckets(now).hash(bits(from.ip()), from.port())
    }

    /// The current hash key. It changes with the cookie period, and with it the senders that share
    /// a counter.
    fn buckets(&mut self, now: Instant) -> &SenderHash {
        let period = period(now);
        if self.buckets.period != period {
            self.buckets = SenderHash::new(period, &self.secret);
        }
        &self.buckets
    }
}

/// The cookie field of a terminal that has no cookie yet.
const NO_COOKIE: Mac = [0; MAC];

fn period(now: Instant) -> u64 {
    now.as_nanos() / COOKIE_PERIOD.as_nanos() as u64
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// A keyed hash of senders by multiplication with secret odd numbers. It takes a few nanoseconds,
/// because every datagram of a flood is hashed. Without the key, senders that collide cannot be
/// chosen.
struct SenderHash {
    period: u64,
    keys: [u64; 4],
}

impl SenderHash {
    fn new(period: u64, secret: &hmac::Key) -> Self {
        let mut context = hmac::Context::with_key(secret);
        context.update(b"counter");
        context.update(&period.to_be_bytes());
        let tag = context.sign();
        let mut keys = [0; 4];
        for (key, bytes) in keys.iter_mut().zip(tag.as_ref().chunks_exact(8)) {
            let bytes = bytes.try_into().expect("the chunk has 8 bytes");
            // Odd, so that multiplication modulo 2⁶⁴ is a bijection.
            *key = u64::from_be_bytes(bytes) | 1;
        }
        Self { period, keys }
    }

    fn hash(&self, ip: u128, port: u16) -> u64 {
        let words = [(ip >> 64) as u64, ip as u64, u64::from(port)];
        let sum = words.iter().zip(&self.keys).fold(0u64, |sum, (word, key)| {
            // Use both halves of the product, or the low bits of a word would not count.
            let product = u128::from(word ^ key) * u128::from(*key);
            sum.rotate_left(23) ^ (product >> 64) as u64 ^ product as u64
        });
        sum.wrapping_mul(self.keys[3])
    }
}

/// Maps a hash to a counter by its highest bits.
fn slot(hash: u64) -> usize {
    (hash >> (u64::BITS - COUNTERS.ilog2())) as usize
}

/// The number of the current second. Counters restart with each.
fn second(now: Instant) -> u64 {
    now.as_nanos() / 1_000_000_000
}

/// A full bucket that holds at most one second's worth; with 0 it grants nothing.
fn a_second_of(per_second: u32) -> TokenBucket {
    TokenBucket::every(Duration::from_secs(1) / per_second.max(1), per_second)
}

/// Counters that restart every second.
struct SecondCounters {
    each: u8,
    second: u64,
    taken: Box<[u8; COUNTERS]>,
}

impl SecondCounters {
    fn new(each: u8) -> Self {
        Self { each, second: 0, taken: Box::new([0; COUNTERS]) }
    }

    /// Counts an event; `false` if the counter is at its limit.
    fn take(&mut self, now: Instant, slot: usize) -> bool {
        let enough = self.has_room(now, slot);
        self.taken[slot] += u8::from(enough);
        enough
    }

    fn has_room(&mut self, now: Instant, slot: usize) -> bool {
        let second = second(now);
        if second != self.second {
            self.second = second;
            self.taken.fill(0);
        }
        self.taken[slot] < self.each
    }
}

/// Senders seen in the current second, by hash. One sender may overwrite another; it is mistaken
/// for another with a probability of 2⁻³¹.
struct RecentSenders {
    second: u64,
    tags: Box<[u32; COUNTERS]>,
}

impl RecentSenders {
    fn new() -> Self {
        Self { second: 0, tags: Box::new([0; COUNTERS]) }
    }

    fn put(&mut self, now: Instant, hash: u64) {
        let second = second(now);
        if second != self.second {
            self.second = second;
            self.tags.fill(0);
        }
        self.tags[slot(hash)] = tag(hash);
    }

    fn has(&self, now: Instant, hash: u64) -> bool {
        self.second == second(now) && self.tags[slot(hash)] == tag(hash)
    }
}

/// The low bits of a hash, never zero, because zero marks an empty slot.
fn tag(hash: u64) -> u32 {
    hash as u32 | 1
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    fn gate(handshakes: u32) -> AdmissionGate {
        AdmissionGate::new(handshakes, &mut ChaCha20Rng::from_seed([1; 32]))
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
        let granted =
            |gate: &mut AdmissionGate, now| (0..100).filter(|_| gate.admits_unproven(now)).count();
        assert_eq!(granted(&mut gate, at(5)), 10);
        assert_eq!(granted(&mut gate, at(5) + Duration::from_millis(300)), 3);
        assert_eq!(granted(&mut gate, at(100)), 10);
    }

    fn source(network: u8, i: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, network, i as u8], i))
    }

    fn granted(gate: &mut AdmissionGate, now: Instant, network: u8, asked: u16) -> usize {
        (0..asked).filter(|i| gate.admits_proven(now, source(network, *i))).count()
    }

    #[test]
    fn a_cookie_gives_a_network_its_own_the_common_ones_and_what_strangers_leave() {
        let (own, common) = (usize::from(HANDSHAKES_EACH), PROVEN_PER_SECOND as usize);
        let mut gate = gate(10);
        assert_eq!(granted(&mut gate, at(3), 1, 2000), own + common + 10);
        // Nothing is left but each network's own allowance.
        assert!(!gate.admits_unproven(at(3)));
        assert_eq!(granted(&mut gate, at(3), 2, 2000), own);
    }

    #[test]
    fn networks_and_sources_that_ask_in_vain_get_little_more_than_their_own() {
        let mut gate = gate(10);
        let mut stranger = |now, network, ports: u16| {
            let asks = (0..4000u16).map(|i| source(network, i % ports));
            asks.filter(|from| {
                let granted = gate.admits_proven(now, *from);
                if granted {
                    gate.record_failure(now, *from);
                }
                granted
            })
            .count()
        };
        assert!(stranger(at(3), 1, 1) <= usize::from(HANDSHAKES_EACH));
        let most = usize::from(HANDSHAKES_EACH.max(MAX_FAILED_EACH));
        assert!(stranger(at(4), 1, 4000) <= most);
        // The shared allowance is full again a second later.
        assert_eq!(granted(&mut gate, at(5), 2, 400), 400);
    }

    #[test]
    fn the_hash_spreads_neighbours_and_changes_with_the_period() {
        let mut gate = gate(10);
        let mut buckets = |now, ip: [u8; 4]| {
            (0..2000u16)
                .map(|port| slot(gate.source_hash(now, (ip, port).into())))
                .collect::<Vec<_>>()
        };
        let first = buckets(at(1), [10, 0, 0, 1]);
        let most = (0..COUNTERS).map(|slot| first.iter().filter(|it| **it == slot).count()).max();
        // Balls in bins: two on average, and hardly ever more than a dozen.
        assert!(most < Some(16), "{most:?}");
        assert_ne!(first, buckets(at(1), [10, 0, 0, 2]));
        assert_ne!(first, buckets(at(121), [10, 0, 0, 1]));
        assert_eq!(first, buckets(at(119), [10, 0, 0, 1]));
    }

    #[test]
    fn senders_from_everywhere_cost_no_more_than_one_core() {
        let mut gate = gate(100);
        let asks = (0..1 << 20).map(|i: u32| SocketAddr::from(((i << 8).to_be_bytes(), 9)));
        let granted = asks.filter(|from| gate.admits_proven(at(3), *from)).count();
        assert!((3000..=3072 + 1000 + 100).contains(&granted), "{granted}");
    }
}
