//! Two endpoints over a link: no byte is lost, duplicated or reordered, and both ends finish,
//! whatever the link does and whichever options they have.

mod host;

use core::time::Duration;

use bytes::Bytes;
use host::{Host, Plan};
use link::testkit::{Mangle, Net};
use link::{Dice, LinkConfig, LossModel, QueueLimit};
use tcp::cc::{FastRecovery, NAMES};
use tcp::{
    AckConfig, AckCounting, AfterSlowStart, Config, Connection, LossDetector, Profile, PrrBound,
    SeqNr, SynData, TaoCache, TransactionSettings,
};
use units::{BitRate, ByteCount, Instant, Probability};

/// IPv4's header, less what [`Host`] appends.
const OVERHEAD: usize = 20 - host::TRAILER;

const DETECTIONS: [LossDetector; 5] = [
    LossDetector::DupAcks,
    LossDetector::Sack,
    LossDetector::Fack,
    LossDetector::Rack { tlp: false },
    LossDetector::Rack { tlp: true },
];

const RECOVERIES: [Option<FastRecovery>; 4] =
    [None, Some(FastRecovery::GoBackN), Some(FastRecovery::Reno), Some(FastRecovery::NewReno)];

const PRRS: [Option<PrrBound>; 3] = [None, Some(PrrBound::Conservative), Some(PrrBound::SlowStart)];

/// The settings that govern loss recovery.
#[derive(Debug, Clone, Copy)]
struct Combination {
    controller: &'static str,
    sack: bool,
    detection: LossDetector,
    recovery: Option<FastRecovery>,
    prr: Option<PrrBound>,
}

fn combinations() -> Vec<Combination> {
    let mut all = Vec::new();
    for controller in NAMES {
        for (sack, detection) in
            [(false, LossDetector::DupAcks)].into_iter().chain(DETECTIONS.map(|d| (true, d)))
        {
            for recovery in RECOVERIES {
                for prr in PRRS {
                    all.push(Combination { controller, sack, detection, recovery, prr });
                }
            }
        }
    }
    all
}

fn probability(p: f64) -> Probability {
    Probability::new(p).unwrap()
}

/// A configuration with the combination and everything else random.
fn config(combination: &Combination, dice: &mut Dice) -> Config {
    let mut coin = || dice.below(2) == 0;
    let flags: [bool; 16] = core::array::from_fn(|_| coin());
    let pick = |dice: &mut Dice, values: &[u64]| values[dice.below(values.len() as u64) as usize];
    Config {
        mss: pick(dice, &[536, 1000, 1460]) as u16,
        initial_window: pick(dice, &[1, 2, 4, 10]) as u32,
        initial_ssthresh: flags[0].then(|| ByteCount::new(20_000)),
        receive_buffer: ByteCount::new(pick(dice, &[4000, 30_000, 65_535, 1 << 20])),
        send_buffer: ByteCount::new(pick(dice, &[5000, 60_000, 1 << 20])),
        window_scaling: flags[1],
        timestamps: flags[2],
        sack: combination.sack,
        dsack: flags[3],
        ecn: flags[4],
        snack: flags[14],
        assume_corruption: flags[15] && flags[14],
        estimate_ssthresh: flags[6],
        syn_data: match pick(dice, &[0, 0, 1, 2, 3, 4, 5]) {
            0 => SynData::Off,
            1 => SynData::Always,
            // New counts, old ones, and first connections.
            4 | 5 => SynData::Transactions(TransactionSettings {
                count: pick(dice, &[1, 7, u64::from(u32::MAX)]) as u32,
                cache: TaoCache {
                    received: pick(dice, &[0, 1, 7, u64::from(u32::MAX)]) as u32,
                    sent: pick(dice, &[0, 1, u64::from(u32::MAX)]) as u32,
                },
            }),
            // The right cookie, or another server's.
            number => SynData::FastOpen { cookie: [number as u8; 8].into_iter().collect() },
        },
        max_rate: (pick(dice, &[0, 1]) == 0).then(|| BitRate::from_mbit(5)),
        bucket: (pick(dice, &[0, 1]) == 0).then(|| ByteCount::new(20_000)),
        acks: AckConfig {
            delay: flags[5].then(|| Duration::from_millis(pick(dice, &[40, 200]))),
            every: pick(dice, &[1, 2, 4]) as u32,
            quick: pick(dice, &[0, 16]) as u32,
            after_slow_start: match pick(dice, &[0, 0, 1, 2]) {
                0 => AfterSlowStart::Off,
                1 => AfterSlowStart::Assumed,
                _ => AfterSlowStart::Signalled,
            },
            control_alone: pick(dice, &[0, 1]) == 1,
        },
        nagle: flags[7],
        counting: match pick(dice, &[0, 1, 2, 3]) {
            0 => AckCounting::Acks,
            3 => AckCounting::Bytes { limit: None },
            limit => AckCounting::Bytes { limit: Some(limit as u32) },
        },
        detection: combination.detection,
        recovery: combination.recovery,
        prr: combination.prr,
        limited_transmit: flags[8],
        frto: flags[9],
        eifel: flags[10],
        dsack_undo: flags[11],
        controller: combination.controller.parse().unwrap(),
        pacing: flags[12],
        restart_after_idle: flags[13],
        user_timeout: None,
        seed: dice.bits(),
        ..Config::default()
    }
}

fn plan(dice: &mut Dice, waits: bool) -> Plan {
    let bytes = match dice.below(4) {
        0 => dice.below(3000),
        1 => dice.below(20_000),
        _ => dice.below(200_000),
    };
    Plan { bytes, read: if dice.below(4) == 0 { 700 } else { usize::MAX }, waits }
}

fn link_config(dice: &mut Dice) -> LinkConfig {
    let rate = BitRate::from_bits_per_second(500_000 + dice.below(20_000_000));
    let delay = Duration::from_millis(1 + dice.below(300));
    let loss = match dice.below(4) {
        0 => LossModel::None,
        1 => LossModel::Per(probability(0.01)),
        2 => LossModel::Per(probability(0.05)),
        _ => LossModel::Per(probability(0.2 * dice.chance())),
    };
    LinkConfig::new(rate, delay, loss, QueueLimit::Packets(4 + dice.below(60) as usize))
}

fn mangle(dice: &mut Dice) -> Mangle {
    let mut some = |most: f64| {
        let on = dice.below(2) == 0;
        let share = dice.chance();
        probability(if on { most * share } else { 0.0 })
    };
    let (duplicate, reorder, corrupt) = (some(0.1), some(0.2), some(0.05));
    let reorder_by = Duration::from_millis(1 + dice.below(400));
    let start = Instant::from_nanos(dice.below(4_000_000_000));
    let outage = start..start + Duration::from_millis(dice.below(5000));
    let outages = if dice.below(4) == 0 { vec![outage] } else { Vec::new() };
    Mangle { duplicate, reorder, reorder_by, corrupt, outages, ..Mangle::default() }
}

/// Runs a transfer in both directions over a random link; returns a digest and the time for each
/// side.
fn transfer(combination: &Combination, seed: u64) -> [(u64, Option<Instant>); 2] {
    let mut dice = Dice::new(seed);
    let iss = [SeqNr::new(dice.bits() as u32), SeqNr::new(u32::MAX - 3000)];
    let configs = [config(combination, &mut dice), config(combination, &mut dice)];
    let waits = dice.below(3);
    let plans = [plan(&mut dice, waits == 1), plan(&mut dice, waits == 2)];
    let [client, server] = configs;
    // Sometimes a simultaneous open.
    let server: Connection<Bytes> = if dice.below(5) == 0 {
        Connection::connect(server, iss[1])
    } else {
        Connection::listen(server, iss[1])
    };
    let hosts = vec![
        Host::new(0, Connection::connect(client, iss[0]), plans[0]),
        Host::new(1, server, plans[1]),
    ];
    let mut net = Net::new(hosts, dice.bits());
    net.set_overhead(OVERHEAD);
    net.connect(0, 1, link_config(&mut dice));
    net.connect(1, 0, link_config(&mut dice));
    net.mangle(0, 1, mangle(&mut dice));
    net.mangle(1, 0, mangle(&mut dice));
    let deadline = Instant::ZERO + Duration::from_secs(7200);
    if let Err(stalled) = net.run_until(|hosts| hosts.iter().all(|host| host.is_over), deadline) {
        let states: Vec<_> =
            net.peers().iter().map(|host| (host.received, host.tcp.stats())).collect();
        panic!("{stalled}\n{plans:?}\n{states:#?}");
    }
    let [client, server] = net.peers_mut() else { unreachable!() };
    client.check(plans[1].bytes);
    server.check(plans[0].bytes);
    [client, server].map(|host| (host.digest, host.finished_at))
}

/// `TCP_SEEDS=first..end` chooses the seeds, so that a failing one can be replayed alone. The seeds
/// cycle through the combinations.
#[test]
fn no_byte_is_lost_with_any_combination() {
    let all = combinations();
    let default = format!("0..{}", 3 * all.len());
    let range = std::env::var("TCP_SEEDS").unwrap_or(default);
    let (first, end) = range.split_once("..").expect("TCP_SEEDS is first..end");
    for seed in first.parse::<u64>().unwrap()..end.parse().unwrap() {
        let combination = &all[(seed % all.len() as u64) as usize];
        println!("TCP_SEEDS={seed}..{} {combination:?}", seed + 1);
        transfer(combination, seed);
    }
}

#[test]
fn the_same_inputs_give_the_same_segments() {
    for (seed, combination) in combinations().iter().enumerate().step_by(17) {
        let seed = seed as u64;
        assert_eq!(transfer(combination, seed), transfer(combination, seed), "{combination:?}");
    }
}

#[test]
fn every_profile_talks_to_every_other() {
    for (client_name, client) in Profile::ALL {
        for (server_name, server) in Profile::ALL {
            println!("{client_name} to {server_name}");
            let plan = |bytes| Plan { bytes, read: usize::MAX, waits: false };
            let client = Connection::connect(client.config(), SeqNr::new(7));
            let server = Connection::listen(server.config(), SeqNr::new(8));
            let hosts =
                vec![Host::new(0, client, plan(40_000)), Host::new(1, server, plan(90_000))];
            let mut net = Net::new(hosts, 3);
            net.set_overhead(OVERHEAD);
            let loss = LossModel::Per(probability(0.02));
            let delay = Duration::from_millis(250);
            net.join(
                0,
                1,
                LinkConfig::new(BitRate::from_mbit(1), delay, loss, QueueLimit::Packets(30)),
            );
            let deadline = Instant::ZERO + Duration::from_secs(3600);
            net.run_until(|hosts| hosts.iter().all(|host| host.is_over), deadline).unwrap();
            net.peers_mut()[0].check(90_000);
            net.peers_mut()[1].check(40_000);
        }
    }
}

/// On a link that keeps the order, only lost data is retransmitted, whichever detection is used,
/// and no reaction is undone; a tail loss probe or a time-out may repeat data that was not lost.
#[test]
fn nothing_is_repeated_or_undone_without_need() {
    for controller in NAMES {
        for detection in &DETECTIONS[1..] {
            let config = |seed| Config {
                controller: controller.parse().unwrap(),
                detection: *detection,
                recovery: Some(FastRecovery::NewReno),
                seed,
                ..Config::default()
            };
            let plan = |bytes| Plan { bytes, read: usize::MAX, waits: false };
            let hosts = vec![
                Host::new(0, Connection::connect(config(1), SeqNr::new(7)), plan(1_500_000)),
                Host::new(1, Connection::listen(config(2), SeqNr::new(8)), plan(0)),
            ];
            let mut net = Net::new(hosts, 3);
            net.set_overhead(OVERHEAD);
            let rate = BitRate::from_mbit(20);
            let link = |loss| {
                LinkConfig::new(rate, Duration::from_millis(250), loss, QueueLimit::Packets(60))
            };
            net.connect(0, 1, link(LossModel::Per(probability(0.01))));
            net.connect(1, 0, link(LossModel::None));
            let deadline = Instant::ZERO + Duration::from_secs(3600);
            net.run_until(|hosts| hosts[1].is_over, deadline).unwrap();
            let stats = net.peers()[0].tcp.stats();
            let counters = net.counters(0, 1);
            let lost = counters.lost.packets + counters.dropped_queue.packets;
            let spare = stats.tail_probes + stats.recoveries + 60 * stats.timeouts;
            assert!(
                stats.retransmissions <= lost + spare,
                "{controller} {detection:?} {lost} {stats:?}"
            );
            assert_eq!(stats.undone, 0, "{controller} {detection:?} {stats:?}");
            assert!(stats.retransmissions > 5, "{controller} {detection:?} {stats:?}");
        }
    }
}
