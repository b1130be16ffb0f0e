//! Tests the driver with small machines.

use units::{BitRate, Probability};

use super::*;
use crate::{LossModel, QueueLimit};

fn config(loss: LossModel) -> LinkConfig {
    let delay = Duration::from_millis(300);
    LinkConfig::new(BitRate::from_mbit(10), delay, loss, QueueLimit::Packets(1000))
}

fn seconds(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn p(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

/// Stop-and-wait ARQ with a checksum: sends numbered messages, each until it is acknowledged, and
/// receives those of the other side.
#[derive(Debug, Default)]
struct Arq {
    to_send: u32,
    sent: u32,
    retransmit_at: Option<Instant>,
    answers: Vec<Vec<u8>>,
    received: Vec<u32>,
}

#[derive(Debug)]
enum ArqWake {
    Retransmit,
}

const MESSAGE: u32 = 0;
const ACKNOWLEDGEMENT: u32 = 1;

fn encode(kind: u32, number: u32) -> Vec<u8> {
    let mut bytes = [kind.to_be_bytes(), number.to_be_bytes()].concat();
    bytes.extend(check_sum(&bytes).to_be_bytes());
    bytes
}

fn decode(datagram: &[u8]) -> Option<(u32, u32)> {
    let (words, []) = datagram.as_chunks::<4>() else { return None };
    let &[kind, number, sum] = words else { return None };
    (check_sum(&datagram[..8]) == u32::from_be_bytes(sum))
        .then_some((u32::from_be_bytes(kind), u32::from_be_bytes(number)))
}

fn check_sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(1, |sum: u32, &byte| (sum ^ u32::from(byte)).wrapping_mul(16_777_619))
}

impl Arq {
    fn new(to_send: u32) -> Self {
        Self { to_send, retransmit_at: (to_send > 0).then_some(Instant::ZERO), ..Self::default() }
    }
}

impl Machine for Arq {
    type Wake = ArqWake;

    fn poll_timeout(&self) -> Option<(Instant, ArqWake)> {
        Some((self.retransmit_at?, ArqWake::Retransmit))
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.retransmit_at.is_some_and(|at| at <= now) {
            self.answers.push(encode(MESSAGE, self.sent));
            self.retransmit_at = Some(now + Duration::from_millis(700));
        }
    }
}

impl Peer for Arq {
    fn receive(&mut self, now: Instant, _from: usize, datagram: Vec<u8>) {
        match decode(&datagram) {
            Some((MESSAGE, number)) => {
                if number == self.received.len() as u32 {
                    self.received.push(number);
                }
                self.answers.push(encode(ACKNOWLEDGEMENT, number));
            }
            Some((ACKNOWLEDGEMENT, number)) if number == self.sent => {
                self.sent += 1;
                self.retransmit_at = (self.sent < self.to_send).then_some(now);
            }
            _ => {}
        }
    }

    fn transmit(&mut self, _now: Instant) -> Option<(usize, Vec<u8>)> {
        // There are only two peers, and peer 0 sends the messages.
        let to = usize::from(self.to_send > 0);
        self.answers.pop().map(|datagram| (to, datagram))
    }
}

fn arq(messages: u32, loss: LossModel, seed: u64) -> Net<Arq> {
    let mut net = Net::new(vec![Arq::new(messages), Arq::new(0)], seed);
    net.join(0, 1, config(loss));
    net
}

#[test]
fn a_round_trip_takes_what_the_links_say() {
    let mut net = arq(3, LossModel::None, 1);
    let at = net.run_until(|peers| peers[0].sent == 3, seconds(10)).unwrap();
    // 12 bytes and 28 of headers are 32 µs at 10 Mbit/s.
    assert_eq!(at, Instant::ZERO + 6 * Duration::from_micros(300_032));
    assert_eq!(net.counters(0, 1).delivered.bytes.get(), 3 * 40);

    let mut net = arq(1, LossModel::None, 1);
    net.set_overhead(UDP_IPV6_OVERHEAD);
    let at = net.run_until(|peers| peers[0].sent == 1, seconds(10)).unwrap();
    assert_eq!(at, Instant::ZERO + 2 * Duration::from_micros(300_048));
}

fn mangled_run(seed: u64) -> (Instant, Vec<u32>, PacketCounters, Mangled) {
    let mut net = arq(20, LossModel::Per(p(0.1)), seed);
    let mangle = Mangle {
        duplicate: p(0.2),
        reorder: p(0.3),
        reorder_by: Duration::from_millis(900),
        corrupt: p(0.1),
        outages: vec![seconds(5)..seconds(10)],
        mtu: None,
    };
    net.mangle(0, 1, mangle.clone());
    net.mangle(1, 0, mangle);
    let at = net.run_until(|peers| peers[0].sent == 20, seconds(1000)).unwrap();
    let received = net.peers()[1].received.clone();
    (at, received, *net.counters(0, 1), net.mangled(0, 1))
}

#[test]
fn arq_survives_everything_for_many_seeds() {
    let mut total = Mangled::default();
    for seed in 0..500 {
        let (_, received, _, mangled) = mangled_run(seed);
        assert_eq!(received, (0..20).collect::<Vec<_>>(), "seed {seed}");
        total.duplicated += mangled.duplicated;
        total.reordered += mangled.reordered;
        total.corrupted += mangled.corrupted;
        total.lost_in_outage += mangled.lost_in_outage;
    }
    let Mangled { duplicated, reordered, corrupted, lost_in_outage: silenced, .. } = total;
    assert!([duplicated, reordered, corrupted, silenced].iter().all(|&n| n > 500), "{total:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(mangled_run(3), mangled_run(3));
    assert_ne!(mangled_run(3), mangled_run(4));
}

#[test]
fn a_missed_deadline_names_the_machine_and_its_reason() {
    let mut net = arq(1, LossModel::Per(Probability::ONE), 1);
    let stalled = net.run_until(|peers| peers[0].sent == 1, seconds(1)).unwrap_err();
    assert_eq!((stalled.now, stalled.reason), (seconds(1), Reason::Deadline));
    assert_eq!(net.now(), seconds(1));
    let report = stalled.to_string();
    let expected = "stalled at 1.000000s: the deadline has passed\
        \n  link 0 -> 1: 1.000032s Link(Arrival)\
        \n  link 1 -> 0: waits for nothing\
        \n  peer 0: 1.400000s Retransmit\
        \n  peer 1: waits for nothing";
    assert_eq!(report, expected);
}

#[test]
fn a_dead_net_is_noticed_at_once() {
    let mut net = arq(1, LossModel::None, 1);
    let stalled = net.run_until(|peers| peers[0].sent == 2, Instant::MAX).unwrap_err();
    assert_eq!(stalled.reason, Reason::Idle);
    net.run_for(Duration::from_secs(1)).unwrap();
    assert_eq!(net.now(), stalled.now + Duration::from_secs(1));
}

/// Wants to be woken and does nothing, or never stops transmitting.
struct Faulty {
    chatty: bool,
}

impl Machine for Faulty {
    type Wake = &'static str;

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        Some((Instant::ZERO, "for nothing"))
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

impl Peer for Faulty {
    fn receive(&mut self, _now: Instant, _from: usize, _datagram: Vec<u8>) {}

    fn transmit(&mut self, _now: Instant) -> Option<(usize, Vec<u8>)> {
        self.chatty.then(|| (1, vec![0; 1000]))
    }
}

#[test]
fn a_livelock_is_an_error_and_no_endless_loop() {
    for chatty in [false, true] {
        let mut net = Net::new(vec![Faulty { chatty }, Faulty { chatty: false }], 1);
        net.join(0, 1, config(LossModel::None));
        let stalled = net.run_for(Duration::from_secs(1)).unwrap_err();
        assert!(matches!(stalled.reason, Reason::Livelock { .. }));
        assert!(stalled.to_string().contains("peer 0: 0.000000s \"for nothing\""), "{stalled}");
    }
}

#[test]
#[should_panic(expected = "peer 0 has no link to peer 1")]
fn a_datagram_to_nowhere_is_a_mistake_in_the_test() {
    let mut net = Net::new(vec![Arq::new(1), Arq::new(0)], 1);
    let _ = net.run_for(Duration::from_secs(1));
}

/// Sends at the full rate of the link, and counts what it receives.
struct Flood {
    next: Option<Instant>,
    heard: u64,
}

impl Machine for Flood {
    type Wake = ();

    fn poll_timeout(&self) -> Option<(Instant, ())> {
        self.next.map(|at| (at, ()))
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

impl Peer for Flood {
    fn receive(&mut self, _now: Instant, _from: usize, _datagram: Vec<u8>) {
        self.heard += 1;
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let next = self.next.as_mut().filter(|next| **next <= now)?;
        *next += Duration::from_nanos(1_200_000);
        Some((1, vec![0; 1472]))
    }
}

#[test]
fn a_flood_of_100_000_packets_fills_the_link_and_no_more() {
    let flood = Flood { next: Some(Instant::ZERO), heard: 0 };
    let mut net = Net::new(vec![flood, Flood { next: None, heard: 0 }], 1);
    net.join(0, 1, config(LossModel::None));
    let at = net.run_until(|peers| peers[1].heard == 100_000, seconds(200)).unwrap();
    assert_eq!(at, Instant::ZERO + Duration::from_millis(120_300));
}
