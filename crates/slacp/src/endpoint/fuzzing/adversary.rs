//! A malicious peer with a valid key.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use units::{BitRate, ByteCount, Instant, Machine};

use super::Choices;
use super::contact::HostileSession;
use super::contacts::HostileSessions;
use super::forger::{HandshakeAttempt, respond};
use super::tactics::Tactic;
use crate::wire::frame::Frame;
use crate::{KeyPair, PublicKey};

/// Maximum number of handshakes under way at once: this many, or in a crowd one for every
/// [`OPENINGS_SHARE`] sessions wanted.
const OPENINGS: usize = 8;
const OPENINGS_SHARE: usize = 2;
/// Time between two initiations. They cost the adversary as much as the hub, and a run of many
/// sessions should be short.
const INITIATION: Duration = Duration::from_millis(20);
/// The same time for a crowd, and the backlog that it may catch up with at once.
const CROWD_INITIATION: Duration = Duration::from_millis(1);
const CATCH_UP: Duration = Duration::from_millis(4);
/// Sending rate of a crowd.
const CROWD_RATE: BitRate = BitRate::from_bits_per_second(40_000_000);
/// Number of earlier initiations kept, to be sent again.
const RECORDED: usize = 16;
/// Maximum number of datagrams that wait to be sent.
const OUTBOX: usize = 4_096;
/// Maximum number of datagrams that are sent at once.
const BURST: u64 = 12;
/// Minimum number of bytes on the link that a datagram counts as: a run of many seeds should be
/// short.
const LEAST: u64 = 200;
/// Size of the headers of a datagram on the link, IPv4 and UDP, in bytes.
const HEADERS: u64 = 28;

/// An address of the adversary, where it receives. Its sessions are set up at the first one, those
/// of a crowd at one for each key.
pub const fn own_address(n: usize) -> SocketAddr {
    address(1, n)
}

/// An address that the adversary only claims to have.
pub(super) const fn claimed_address(n: usize) -> SocketAddr {
    address(2, n)
}

/// Returns `true` if an address is the adversary's own.
pub fn is_own(address: SocketAddr) -> bool {
    net(address) == Some(1)
}

/// Returns `true` if the adversary only claims to have an address.
pub(super) fn is_claimed(address: SocketAddr) -> bool {
    net(address) == Some(2)
}

fn net(address: SocketAddr) -> Option<u8> {
    let SocketAddr::V4(v4) = address else { return None };
    Some(v4.ip().octets()[2])
}

/// An address of a host. Sixteen hosts are in one network of 256 addresses.
const fn address(net: u8, host: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, (host / 16) as u8, net, host as u8 % 16)), 5900)
}

/// A malicious terminal or hub, which sends everything that the grammar allows, and more. Its
/// actions follow from its [`Choices`] and its inputs, in virtual time.
pub struct Adversary {
    role: AdversaryRole,
    choices: Choices,
    contacts: HostileSessions,
    /// Number of sessions that it wants to have at a time.
    wanted: usize,
    /// Set once nearly all sessions of a crowd are up. Until then it sends only handshakes.
    assembled: bool,
    rate: BitRate,
    next_act: Instant,
    /// Datagrams to be sent, with their source addresses.
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    recorded: VecDeque<Vec<u8>>,
    initiation: Duration,
    next_initiation: Instant,
}

enum AdversaryRole {
    Terminal {
        keys: Vec<KeyPair>,
        hub: PublicKey,
        openings: VecDeque<Box<HandshakeAttempt>>,
        /// Keys of a crowd that have no session. `None` if this is no crowd: then a key may have
        /// several.
        idle: Option<BTreeSet<usize>>,
    },
    Hub {
        identity: KeyPair,
    },
}

impl Adversary {
    /// Terminals with these keys, one after another or several at once.
    pub fn terminals(keys: Vec<KeyPair>, hub: PublicKey, mut choices: Choices) -> Self {
        let most = keys.len() as u64;
        let wanted = if choices.one_in(4) { 1 + choices.below(most) } else { 1 };
        let openings = VecDeque::new();
        Self::new(
            AdversaryRole::Terminal { keys, hub, openings, idle: None },
            wanted as usize,
            choices,
        )
    }

    /// Terminals with these keys, all of them at once.
    pub fn crowd(keys: Vec<KeyPair>, hub: PublicKey, choices: Choices) -> Self {
        let (openings, idle) = (VecDeque::new(), Some((0..keys.len()).collect()));
        let wanted = keys.len();
        let crowd =
            Self::new(AdversaryRole::Terminal { keys, hub, openings, idle }, wanted, choices);
        Self { assembled: false, rate: CROWD_RATE, initiation: CROWD_INITIATION, ..crowd }
    }

    /// A malicious hub.
    pub fn hub(identity: KeyPair, choices: Choices) -> Self {
        Self::new(AdversaryRole::Hub { identity }, 1, choices)
    }

    fn new(role: AdversaryRole, wanted: usize, mut choices: Choices) -> Self {
        let rate = choices.pick(&[200_000, 2_000_000, 8_000_000, 16_000_000]);
        Self {
            role,
            choices,
            contacts: HostileSessions::default(),
            wanted,
            assembled: true,
            rate: BitRate::from_bits_per_second(rate),
            next_act: Instant::ZERO,
            outbox: VecDeque::new(),
            recorded: VecDeque::new(),
            initiation: INITIATION,
            next_initiation: Instant::ZERO,
        }
    }

    /// Describes its behaviour, for a report.
    pub fn describe(&self) -> String {
        let habits = self.contacts.iter().map(|contact| (&contact.tactics, contact.acks));
        let habits: Vec<_> = habits.take(4).collect();
        format!("{} sessions wanted, {}: {habits:?}", self.wanted, self.rate)
    }

    /// Returns `true` if the fuzzer's bytes are used up.
    pub fn is_spent(&self) -> bool {
        self.choices.is_spent()
    }

    /// Receives a datagram that was sent to one of its addresses.
    pub fn receive(&mut self, now: Instant, at: SocketAddr, datagram: &mut [u8]) {
        let (taken, ended) = self.contacts.receive(at, datagram);
        if let AdversaryRole::Terminal { idle: Some(idle), .. } = &mut self.role {
            idle.extend(ended.map(|ended| ended.key));
        }
        if taken {
            return;
        }
        match &mut self.role {
            AdversaryRole::Terminal { openings, .. } => {
                let under_way = core::mem::take(openings);
                for opening in under_way {
                    self.continue_handshake(now, opening, datagram);
                }
            }
            AdversaryRole::Hub { identity } => {
                if let Some((answer, forger)) = respond(identity, datagram, &mut self.choices) {
                    self.outbox.push_back((own_address(0), answer));
                    self.contacts.clear();
                    self.contacts.push(HostileSession::new(forger, None, &mut self.choices));
                }
            }
        }
    }

    /// Continues a handshake if the datagram answers it.
    fn continue_handshake(
        &mut self,
        now: Instant,
        mut opening: Box<HandshakeAttempt>,
        datagram: &[u8],
    ) {
        let again = opening.takes_cookie(now, datagram);
        let own = opening.home;
        if let Some(initiation) = again.then(|| opening.datagram(now)).flatten() {
            self.outbox.push_back((own, initiation));
        }
        let key = Some((opening.key, own));
        match opening.complete(datagram) {
            Ok(forger) => {
                let mut contact = HostileSession::new(forger, key, &mut self.choices);
                let mut out = Vec::new();
                Frame::Ping.write(&mut out, false);
                self.outbox.push_back((own, contact.seal(&out, false)));
                self.contacts.push(contact);
            }
            Err(opening) => {
                if let AdversaryRole::Terminal { openings, .. } = &mut self.role {
                    openings.push_back(opening);
                }
            }
        }
    }

    /// The next datagram to be sent, with the source address that it claims.
    pub fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outbox.pop_front()
    }

    fn act(&mut self, now: Instant) {
        while now >= self.next_initiation && self.wants_another() {
            self.initiate(now);
        }
        let before = self.outbox.len();
        self.assembled |= self.contacts.len() >= self.wanted * 15 / 16;
        for _ in 0..1 + self.choices.below(BURST) {
            if self.assembled {
                self.send_on_session();
            }
        }
        let sent = self.outbox.iter().skip(before).map(|(_, datagram)| datagram.len() as u64);
        let sent = sent.map(|size| (size + HEADERS).max(LEAST)).sum::<u64>();
        self.next_act = now + self.rate.time_to_send(ByteCount::new(sent.max(LEAST)));
        self.outbox.truncate(OUTBOX);
    }

    fn wants_another(&mut self) -> bool {
        let missing = match &self.role {
            AdversaryRole::Terminal { idle: Some(idle), .. } => !idle.is_empty(),
            _ => self.contacts.len() < self.wanted,
        };
        missing || self.choices.one_in(1_000)
    }

    /// Begins one handshake, or several at once, or sends old initiations again.
    fn initiate(&mut self, now: Instant) {
        self.next_initiation = self.next_initiation.max(now - CATCH_UP) + self.initiation;
        let AdversaryRole::Terminal { keys, hub, openings, idle } = &mut self.role else { return };
        let masses = if self.choices.one_in(8) { 1 + self.choices.below(8) as u32 } else { 1 };
        self.next_initiation += self.initiation * (masses - 1);
        for _ in 0..masses {
            let any = self.choices.below(keys.len() as u64) as usize;
            let key = idle.as_mut().and_then(BTreeSet::pop_first).unwrap_or(any);
            let home = own_address(if idle.is_some() { key } else { 0 });
            let identity = keys[key].clone();
            // Links are added to known sessions, but not in a crowd, where each key has one
            // session.
            let of_key = |contact: &&HostileSession| contact.key == key;
            let known = self.contacts.iter().find(of_key).filter(|_| idle.is_none());
            let joined = known.map(|contact| contact.forger.name);
            let pair = (identity, *hub);
            let opening = HandshakeAttempt::new(now, (key, home), pair, joined, &mut self.choices);
            let mut opening = Box::new(opening);
            let Some(initiation) = opening.datagram(now) else { continue };
            if self.recorded.len() == RECORDED {
                self.recorded.pop_front();
            }
            self.recorded.push_back(initiation.clone());
            let false_source = masses > 1 && self.choices.one_in(2);
            let from = if false_source { claimed_address(1) } else { home };
            if let Some(idle) = idle.as_mut().filter(|_| false_source) {
                idle.insert(key);
            }
            self.outbox.push_back((from, initiation));
            if openings.len() >= OPENINGS.max(self.wanted / OPENINGS_SHARE) {
                let given_up = openings.pop_front().map(|opening| opening.key);
                idle.iter_mut().for_each(|idle| idle.extend(given_up));
            }
            openings.push_back(opening);
        }
        if masses > 1 {
            let nth = self.choices.below(self.recorded.len() as u64) as usize;
            let from = claimed_address(self.choices.below(4) as usize);
            self.outbox.extend(self.recorded.get(nth).map(|old| (from, old.clone())));
        }
    }

    /// Sends a packet on one of its sessions.
    fn send_on_session(&mut self) {
        let nth = self.choices.below(self.contacts.len() as u64) as usize;
        let Some(contact) = self.contacts.get_mut(nth) else { return };
        if let Some((at, token)) = contact.challenges.pop_front() {
            // Not every challenge is answered.
            if !self.choices.one_in(4) {
                let mut out = Vec::new();
                Frame::PathAnswer(token).write(&mut out, false);
                self.outbox.push_back((at, contact.seal(&out, false)));
            }
        }
        let tactic = self.choices.pick(&contact.tactics);
        let mut from = contact.home;
        if tactic == Tactic::Roam && self.choices.one_in(4) {
            let n = self.choices.below(4) as usize;
            from = if self.choices.one_in(2) { own_address(n) } else { claimed_address(n) };
        }
        if let Some(packet) = tactic.packet(contact, &mut self.choices) {
            self.outbox.push_back((from, packet));
        }
    }
}

impl Machine for Adversary {
    type Wake = &'static str;

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        Some((self.next_act, "the next act"))
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.next_act <= now {
            self.act(now);
        }
    }
}
