//! A client whose connections reach no server takes nothing from the others of its terminal
//! (`docs/slacp.md`, Flow control).

use core::time::Duration;
use std::collections::VecDeque;
use std::net::IpAddr;

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL};
use link::testkit::Net;
use slacp::{Config, Rate, ResetReason, StreamId};
use units::Instant;

/// How long a gateway tries to connect to a server that does not answer.
const CONNECTING: Duration = Duration::from_secs(30);
/// What the client sends that is answered early, as a client of BitTorrent does.
const FIRST_WORDS: u64 = 68;
/// Addresses that the client chooses in its network, with IPv6.
const ADDRESSES: usize = 16;

/// Who opens connections in vain.
#[derive(Debug, Clone, Copy)]
struct Dead {
    per_second: u32,
    /// The side that opens them.
    opener: usize,
    is_v6: bool,
}

/// A hop on which a client opens connections in vain, and another one transfers objects.
struct Crowd {
    net: Net<Host>,
    dead: Option<Dead>,
    opened: u32,
    /// Streams that are not connected, the oldest first.
    connecting: VecDeque<(Instant, StreamId)>,
}

impl Crowd {
    /// After 40 s of such connections. The objects' plans follow those of the dead streams.
    fn new(dead: Option<Dead>, objects: &[Plan], configure: fn(&mut Config)) -> Self {
        let client = |number: usize| match dead {
            Some(Dead { is_v6: true, .. }) => {
                let host = 0x2001_0db8_u128 << 96 | 1 << 64 | number as u128;
                IpAddr::from(host.to_be_bytes())
            }
            _ => IpAddr::from([10, 0, 0, 1]),
        };
        let mut plans: Vec<Plan> =
            (0..ADDRESSES).map(|number| Plan::dead(FIRST_WORDS, client(number))).collect();
        plans.extend_from_slice(objects);
        let net = Hop { configure, ..Hop::geo(0.0, 1) }.connected(&plans);
        let mut crowd = Self { net, dead, opened: 0, connecting: VecDeque::new() };
        crowd.run_for(Duration::from_secs(40), TERMINAL, |_| false);
        crowd
    }

    /// Runs until a side `is_done`, for at most so long. Returns the time.
    fn run_for(&mut self, most: Duration, side: usize, is_done: impl Fn(&Host) -> bool) -> Instant {
        let end = self.net.now() + most;
        let per_second = self.dead.map_or(30, |dead| dead.per_second);
        while self.net.now() < end {
            let until = self.net.now() + Duration::from_secs(1) / per_second;
            if let Ok(at) = self.net.run_until(|hosts| is_done(&hosts[side]), until) {
                return at;
            }
            self.open_in_vain();
        }
        self.net.now()
    }

    fn open_in_vain(&mut self) {
        let Some(Dead { opener, .. }) = self.dead else { return };
        let now = self.net.now();
        let (plan, hosts) = (self.opened as usize % ADDRESSES, self.net.peers_mut());
        self.opened += 1;
        let id = hosts[opener].open(now, plan).expect("there is room");
        self.connecting.push_back((now, id));
        while let Some((_, id)) = self.connecting.pop_front_if(|(at, _)| *at + CONNECTING <= now) {
            let acceptor = &mut hosts[1 - opener];
            let session = acceptor.session.expect("the session lives");
            acceptor.endpoint.reset(session, id, ResetReason::TimedOut).expect("it is there");
            acceptor.flows.remove(&id);
        }
    }

    /// How long the object of a plan takes, opened by a side.
    fn transfer(&mut self, opener: usize, plan: usize) -> Duration {
        let start = self.net.now();
        let id = self.net.peers_mut()[opener].open(start, ADDRESSES + plan).expect("there is room");
        let is_done = |host: &Host| host.flows.get(&id).is_some_and(|flow| flow.ended);
        let end = self.run_for(Duration::from_secs(120), opener, is_done);
        assert!(is_done(&self.net.peers()[opener]), "it does not end");
        end.saturating_since(start)
    }
}

/// Objects of another client, in each direction, each of which is answered at its end.
fn objects() -> Vec<Plan> {
    let client = IpAddr::from([10, 0, 0, 2]);
    let of = |up, down| Plan { reply: true, client, ..Plan::new(up, down) };
    let sizes = [100_000, 2_500_000, 5_000_000];
    sizes.iter().flat_map(|size| [of(300, *size), of(*size, 300)]).collect()
}

/// Asserts that another client's objects take less than a tenth longer, or 100 ms if they are small.
fn assert_fair(dead: Dead, configure: fn(&mut Config)) {
    let objects = objects();
    let mut alone = Crowd::new(None, &objects, configure);
    let mut beside = Crowd::new(Some(dead), &objects, configure);
    for (number, Plan { bytes, .. }) in objects.iter().enumerate() {
        let [alone, beside] =
            [&mut alone, &mut beside].map(|crowd| crowd.transfer(dead.opener, number));
        println!("{bytes:?}: {beside:?} beside {dead:?}, {alone:?} alone");
        let most = (alone * 11 / 10).max(alone + Duration::from_millis(100));
        assert!(beside < most, "{bytes:?}: {beside:?} beside {dead:?}, {alone:?} alone");
    }
}

fn told(_: &mut Config) {}

fn auto(config: &mut Config) {
    config.rate = Rate::auto();
}

#[test]
fn dead_connections_of_one_client_cost_another_nothing() {
    for per_second in [30, 150] {
        for is_v6 in [false, true] {
            assert_fair(Dead { per_second, opener: TERMINAL, is_v6 }, told);
        }
    }
}

#[test]
fn nor_with_a_measured_rate() {
    assert_fair(Dead { per_second: 30, opener: TERMINAL, is_v6: false }, auto);
    assert_fair(Dead { per_second: 150, opener: TERMINAL, is_v6: true }, auto);
}

#[test]
fn nor_from_the_hub_s_side() {
    for per_second in [30, 150] {
        assert_fair(Dead { per_second, opener: HUB, is_v6: false }, told);
    }
}
