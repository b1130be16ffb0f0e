//! Two solo gateways whose TCP on the satellite is ours (`stack = "skyhop"`), in virtual time: no byte
//! is lost, repeated or changed, and each end of a connection sees the other's end as it was, whatever
//! the satellite does to the segments between them.
//!
//! `STACK_SEEDS=first..end` chooses the seeds, so that a failing one can be replayed alone.

mod host;
mod solo;
mod station;

use core::time::Duration;

use host::{End, Host, Plan, Talk};
use link::testkit::{Mangle, Net, Peer};
use link::{Dice, LinkConfig, LossModel, QueueLimit};
use solo::Solo;
use tcp::{Config, KeepaliveConfig, Profile, TimerKind};
use units::{BitRate, ByteCount, Instant, Machine, Probability};

/// Connections at a time.
const MOST: u64 = 4;

/// What is at the nodes 0 to 3: client, gateway, gateway, server.
enum Node {
    Host(Host),
    Solo(Solo),
}

impl Machine for Node {
    type Wake = TimerKind;

    fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Solo(solo) => solo.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Solo(solo) => solo.handle_timeout(now),
        }
    }
}

impl Peer for Node {
    fn receive(&mut self, now: Instant, from: usize, datagram: Vec<u8>) {
        match self {
            Self::Host(host) => host.receive(now, from, datagram),
            Self::Solo(solo) => solo.receive(now, from, datagram),
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        match self {
            Self::Host(host) => host.transmit(now),
            Self::Solo(solo) => solo.transmit(now),
        }
    }
}

fn probability(share: f64) -> Probability {
    Probability::new(share).unwrap()
}

/// The satellite, one way.
fn satellite(dice: &mut Dice) -> (LinkConfig, Mangle) {
    let rate = BitRate::from_mbit(1 + dice.below(20));
    let delay = Duration::from_millis(20 + dice.below(280));
    let loss = match dice.below(3) {
        0 => LossModel::None,
        _ => LossModel::Per(probability(0.05 * dice.chance())),
    };
    let queue = QueueLimit::Packets(20 + dice.below(400) as usize);
    let mut some =
        |most: f64| probability(if dice.below(2) == 0 { most * dice.chance() } else { 0.0 });
    let (duplicate, reorder) = (some(0.05), some(0.1));
    let start = Instant::from_nanos(dice.below(4_000_000_000));
    let outage = start..start + Duration::from_millis(dice.below(10_000));
    let outages = if dice.below(4) == 0 { vec![outage] } else { Vec::new() };
    let reorder_by = Duration::from_millis(1 + dice.below(100));
    let mangle = Mangle { duplicate, reorder, reorder_by, outages, ..Mangle::default() };
    (LinkConfig::new(rate, delay, loss, queue), mangle)
}

/// The TCP of a gateway towards the satellite.
fn wan(dice: &mut Dice) -> Config {
    const CONTROLLERS: [&str; 5] = ["hybla", "cubic", "bbr", "newreno", "westwood"];
    let base = match dice.below(3) {
        0 => Profile::Scps.config(),
        _ => Profile::Linux.config(),
    };
    let controller = CONTROLLERS[dice.below(5) as usize].parse().unwrap();
    let buffer = ByteCount::new([20_000, 200_000, 2_000_000][dice.below(3) as usize]);
    let keepalive = KeepaliveConfig {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        probes: 20,
    };
    Config {
        controller,
        snack: dice.below(4) != 0,
        assume_corruption: dice.below(2) == 0,
        initial_window: [2, 10, 32][dice.below(3) as usize],
        pacing: dice.below(2) == 0,
        send_buffer: buffer,
        receive_buffer: buffer,
        nagle: false,
        keepalive: Some(keepalive),
        seed: dice.bits(),
        ..base
    }
}

/// What both ends of a connection do. The server refuses one that has no plan there.
fn plans(dice: &mut Dice) -> (Plan, Option<Plan>) {
    let mut side = || {
        let bytes = match dice.below(4) {
            0 => 0,
            1 => dice.below(2_000),
            _ => dice.below(200_000),
        };
        let read = [usize::MAX, usize::MAX, 20_000][dice.below(3) as usize];
        Plan { bytes, end: End::AfterOwn, read }
    };
    let (mut client, mut server) = (side(), side());
    match dice.below(8) {
        0 => client.end = End::AfterBoth,
        1 | 2 => server.end = End::AfterBoth,
        3 => client.end = End::Reset(dice.below(server.bytes + 1)),
        4 => server.end = End::Reset(dice.below(client.bytes + 1)),
        5 if dice.below(2) == 0 => return (client, None),
        _ => {}
    }
    (client, Some(server))
}

/// What the runs have seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Counts {
    whole: u64,
    reset: u64,
    refused: u64,
    bytes: u64,
    snack: u64,
    finished: Instant,
}

/// What both ends of each connection do.
type Plans = [(Plan, Option<Plan>)];

/// Hosts and gateways of which both LANs are there, and the satellite is not.
fn network(plans: &Plans, [near, far]: [Config; 2], is_early: bool, seed: u64) -> Net<Node> {
    let (clients, servers): (Vec<_>, Vec<_>) = plans.iter().copied().unzip();
    let nodes = vec![
        Node::Host(Host::client(1, &clients)),
        Node::Solo(Solo::new([0, 2], near, is_early)),
        Node::Solo(Solo::new([3, 1], far, is_early)),
        Node::Host(Host::server(2, servers)),
    ];
    let mut net = Net::new(nodes, seed);
    let lan = || {
        let (rate, delay) = (BitRate::from_mbit(100), Duration::from_millis(1));
        LinkConfig::new(rate, delay, LossModel::None, QueueLimit::Packets(1000))
    };
    net.join(0, 1, lan());
    net.join(2, 3, lan());
    net
}

/// Runs until all connections are over, which must be within `limit`, and judges them.
fn finish(mut net: Net<Node>, plans: &Plans, limit: Duration) -> Counts {
    let over = |nodes: &mut [Node]| {
        nodes.iter().all(|node| match node {
            Node::Host(host) => host.is_over(),
            Node::Solo(solo) => solo.is_over(),
        })
    };
    if let Err(stalled) = net.run_until(over, Instant::ZERO + limit) {
        panic!("{stalled}\n{plans:#?}\n{:#?}", hosts(net.peers()).map(|host| &host.talks));
    }
    let finished = net.now();
    judge(net.peers(), Counts { finished, ..Counts::default() })
}

/// Runs a seed.
fn run(seed: u64) -> Counts {
    let mut dice = Dice::new(seed);
    let plans: Vec<_> = (0..1 + dice.below(MOST)).map(|_| plans(&mut dice)).collect();
    let configs = [wan(&mut dice), wan(&mut dice)];
    let is_early = dice.below(2) == 0;
    let mut net = network(&plans, configs, is_early, dice.bits());
    for (from, to) in [(1, 2), (2, 1)] {
        let (link, mangle) = satellite(&mut dice);
        net.connect(from, to, link);
        net.mangle(from, to, mangle);
    }
    finish(net, &plans, Duration::from_secs(7200))
}

fn hosts(nodes: &[Node]) -> [&Host; 2] {
    let [Node::Host(client), _, _, Node::Host(server)] = nodes else { unreachable!() };
    [client, server]
}

fn judge(nodes: &[Node], mut counts: Counts) -> Counts {
    let [client, server] = hosts(nodes);
    for caller in &client.talks {
        let callee = server.talks.iter().find(|talk| talk.port == caller.port);
        let Some(callee) = callee else {
            assert!(caller.failure.is_some() || caller.has_reset, "{caller:?} has no server");
            counts.refused += 1;
            continue;
        };
        counts.bytes += caller.received + callee.received;
        let ends = [(caller, callee), (callee, caller)];
        if !ends.iter().any(|(talk, _)| matches!(talk.plan.end, End::Reset(_))) {
            ends.iter().for_each(|(talk, other)| assert_whole(talk, other));
            counts.whole += 1;
            continue;
        }
        for (talk, other) in ends.into_iter().filter(|(talk, _)| talk.has_reset) {
            assert!(other.failure.is_some() && !other.is_ended, "{other:?} has no reset: {talk:?}");
            counts.reset += 1;
        }
    }
    for node in nodes {
        if let Node::Solo(solo) = node {
            assert_eq!(solo.owned(), 0, "flows are left");
            counts.snack += solo.snacks();
        }
    }
    counts
}

fn assert_whole(talk: &Talk, other: &Talk) {
    assert_eq!(talk.received, other.plan.bytes, "{talk:?} of {other:?}");
    assert!(talk.is_ended && talk.failure.is_none(), "{talk:?} of {other:?}");
}

#[test]
fn no_byte_is_lost_and_every_end_is_the_right_one() {
    let range = std::env::var("STACK_SEEDS").unwrap_or_else(|_| "0..1000".to_owned());
    let (first, end) = range.split_once("..").expect("STACK_SEEDS is first..end");
    let mut sum = Counts::default();
    for seed in first.parse::<u64>().unwrap()..end.parse().unwrap() {
        println!("STACK_SEEDS={seed}..{}", seed + 1);
        let counts = run(seed);
        sum.whole += counts.whole;
        sum.reset += counts.reset;
        sum.refused += counts.refused;
        sum.bytes += counts.bytes;
        sum.snack += counts.snack;
    }
    println!("{sum:?}");
    if range == "0..1000" {
        let seen = [sum.whole, sum.reset, sum.refused, sum.snack];
        assert!(seen.iter().all(|count| *count > 50), "not everything happened: {sum:?}");
    }
}

/// Nothing probes an idle connection here, so a reset that is lost for good never comes.
#[test]
fn a_reset_that_the_satellite_loses_reaches_the_other_end_soon() {
    let waits = Plan { bytes: 1000, end: End::AfterBoth, read: usize::MAX };
    let resets = Plan { end: End::Reset(1000), ..waits };
    for seed in 0..100 {
        let plans = [(waits, Some(resets)), (resets, Some(waits))];
        let config = || Config { nagle: false, snack: true, ..Profile::Linux.config() };
        let mut net = network(&plans, [config(), config()], seed % 2 == 0, seed);
        let (rate, delay) = (BitRate::from_mbit(20), Duration::from_millis(270));
        let loss = LossModel::Per(probability(0.2));
        net.join(1, 2, LinkConfig::new(rate, delay, loss, QueueLimit::Packets(1000)));
        let counts = finish(net, &plans, Duration::from_secs(60));
        assert_eq!(counts.reset, 2, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}
