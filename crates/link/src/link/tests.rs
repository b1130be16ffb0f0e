//! A link as seen by its owner: timing, loss, changes while it runs.

mod properties;

use core::time::Duration;

use units::{BitRate, ByteCount, Instant, Machine, Probability};

use crate::{
    CoDel, Discipline, ErrorModel, Link, LinkConfig, LossModel, Outage, PacketCounters, QueueLimit,
    Red, Tally, Trace, WakeCause,
};

const MTU: usize = 1500;

fn geo() -> LinkConfig {
    let delay = Duration::from_millis(300);
    LinkConfig::new(BitRate::from_mbit(50), delay, LossModel::None, QueueLimit::Packets(10_000))
}

fn per(value: f64) -> LossModel {
    LossModel::Per(Probability::new(value).unwrap())
}

fn micros(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// A packet with a number.
struct Numbered(u32, usize);

impl crate::CarriedPacket for Numbered {
    fn wire_len(&self) -> usize {
        self.1
    }
}

fn tally(packets: u64, bytes: u64) -> Tally {
    Tally { packets, bytes: ByteCount::new(bytes) }
}

/// Drives the link punctually until `end`; returns the arrivals with their times.
fn run_until<P: crate::CarriedPacket>(link: &mut Link<P>, end: Instant) -> Vec<(Instant, P)> {
    let mut arrivals = Vec::new();
    while let Some((at, _)) = link.poll_timeout().filter(|&(at, _)| at <= end) {
        link.handle_timeout(at);
        arrivals.extend(core::iter::from_fn(|| link.poll_arrival(at)));
    }
    arrivals
}

#[test]
fn packets_of_1500_bytes_at_50_mbit_leave_every_240_microseconds() {
    let mut link = Link::new(geo(), 1);
    for packet in 0..1000 {
        link.handle_packet(Instant::ZERO, Numbered(packet, MTU));
    }
    let arrivals = run_until(&mut link, Instant::MAX);
    assert_eq!(arrivals.len(), 1000);
    for (index, (at, packet)) in arrivals.into_iter().enumerate() {
        assert_eq!(packet.0, index as u32);
        assert_eq!(at, micros(300_000 + 240 * (index as u64 + 1)));
    }
}

#[test]
fn an_idle_link_begins_when_the_packet_comes() {
    let mut link = Link::new(geo(), 1);
    for second in 0..3 {
        let at = micros(second * 1_000_000 + 17);
        link.handle_packet(at, MTU);
        assert_eq!(
            link.poll_timeout(),
            Some((at + Duration::from_micros(300_240), WakeCause::Arrival))
        );
        assert_eq!(run_until(&mut link, micros((second + 1) * 1_000_000)).len(), 1);
        assert_eq!(link.poll_timeout(), None);
    }
}

#[test]
fn the_queue_holds_its_limit_and_the_serialiser_one_more() {
    let config = LinkConfig { queue: QueueLimit::Packets(100), ..geo() };
    let mut link = Link::new(config, 1);
    for _ in 0..150 {
        link.handle_packet(Instant::ZERO, MTU);
    }
    assert_eq!(link.counters().dropped_queue, tally(49, 49 * 1500));
    assert_eq!(link.queued(), tally(100, 150_000));

    // When one packet leaves, one place is free, however many are propagating.
    for index in 1..=50 {
        let at = micros(240 * index);
        link.handle_packet(at, MTU);
        link.handle_packet(at, MTU);
        assert_eq!(link.counters().dropped_queue.packets, 49 + index);
        assert_eq!(link.queued().packets, 100);
    }
}

#[test]
fn a_queue_in_bytes_is_exact_too() {
    let config = LinkConfig { queue: QueueLimit::Bytes(ByteCount::new(4500)), ..geo() };
    let mut link = Link::new(config, 1);
    for _ in 0..4 {
        link.handle_packet(Instant::ZERO, MTU);
    }
    link.handle_packet(Instant::ZERO, 1);
    assert_eq!(link.counters().dropped_queue, tally(1, 1));
    assert_eq!(link.queued(), tally(3, 4500));
}

/// A public emulator that counts propagating packets against its limit drops half of these.
#[test]
fn a_link_at_nine_tenths_of_its_rate_drops_nothing() {
    let config = LinkConfig { queue: QueueLimit::Packets(2), ..geo() };
    let mut link = Link::new(config, 1);
    for index in 0..10_000 {
        link.handle_packet(Instant::from_nanos(index * 240_000 * 10 / 9), MTU);
    }
    assert_eq!(link.counters().dropped_queue.packets, 0);
}

#[test]
fn a_link_without_a_queue_still_sends() {
    let config = LinkConfig { queue: QueueLimit::Packets(0), ..geo() };
    let mut link = Link::new(config, 1);
    link.handle_packet(Instant::ZERO, MTU);
    link.handle_packet(micros(239), MTU);
    link.handle_packet(micros(240), MTU);
    assert_eq!(run_until(&mut link, Instant::MAX).len(), 2);
}

#[test]
fn rate_zero_never_wakes() {
    let config = LinkConfig { rate: BitRate::from_bits_per_second(0).into(), ..geo() };
    let mut link = Link::new(config, 1);
    link.handle_packet(Instant::ZERO, MTU);
    link.handle_packet(Instant::ZERO, MTU);
    link.handle_timeout(Instant::MAX);
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(link.poll_delivery(Instant::MAX), None);
    assert_eq!(link.counters().inside, tally(2, 3000));
}

#[test]
fn a_late_driver_gets_only_due_packets() {
    let mut link = Link::new(geo(), 1);
    for packet in 0..100 {
        link.handle_packet(Instant::ZERO, Numbered(packet, MTU));
    }
    // Ten have arrived; the driver slept from the start.
    let late = micros(300_000 + 240 * 11 - 1);
    link.handle_timeout(late);
    let due: Vec<_> = core::iter::from_fn(|| link.poll_delivery(late)).map(|p| p.0).collect();
    assert_eq!(due, (0..10).collect::<Vec<_>>());
    assert_eq!(link.poll_timeout(), Some((micros(300_000 + 240 * 11), WakeCause::Arrival)));
}

/// Which of 50,000 packets are lost.
fn lost(config: LinkConfig, seed: u64) -> Vec<u32> {
    let count = 50_000;
    let mut link = Link::new(config, seed);
    for packet in 0..count {
        link.handle_packet(Instant::ZERO, Numbered(packet, MTU));
    }
    let arrived: Vec<_> = run_until(&mut link, Instant::MAX).iter().map(|(_, p)| p.0).collect();
    (0..count).filter(|packet| arrived.binary_search(packet).is_err()).collect()
}

#[test]
fn rate_and_delay_do_not_change_which_packets_are_lost() {
    let queue = QueueLimit::Packets(usize::MAX);
    let slow = LinkConfig { loss: per(0.01), queue, ..geo() };
    let fast = LinkConfig {
        rate: BitRate::from_mbit(900).into(),
        delay: Duration::ZERO.into(),
        ..slow.clone()
    };
    assert_eq!(lost(slow.clone(), 7), lost(fast, 7));
    assert_ne!(lost(slow.clone(), 7), lost(slow, 8));
}

/// Half a million packets per model, over ten fixed seeds, against the 99 %
/// interval of the binomial distribution.
#[test]
fn losses_are_as_many_as_asked() {
    let ber = LossModel::Ber(Probability::new(1e-6).unwrap());
    let by_bits = 1.0 - (1.0_f64 - 1e-6).powi(8 * MTU as i32);
    for (loss, expected) in [(per(0.001), 0.001), (per(0.1), 0.1), (ber, by_bits)] {
        let name = format!("{loss:?}");
        let config = LinkConfig { loss, queue: QueueLimit::Packets(usize::MAX), ..geo() };
        let lost: usize = (0..10).map(|seed| lost(config.clone(), seed).len()).sum();
        let mean = 500_000.0 * expected;
        let variance = 500_000.0 * expected * (1.0 - expected);
        let sigmas = (lost as f64 - mean) / f64::sqrt(variance);
        assert!(sigmas.abs() < 2.576, "{name}: {lost} lost, {sigmas:.2} sigma off");
    }
}

/// A packet of 1500 bytes that can be marked if its number is even.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Markable {
    number: u32,
    marked: bool,
}

impl crate::CarriedPacket for Markable {
    fn wire_len(&self) -> usize {
        MTU
    }

    fn mark_ce(&mut self) -> bool {
        self.marked |= self.number.is_multiple_of(2);
        self.marked
    }
}

/// Offers two packets for each that can leave, for four seconds.
fn overload(discipline: Discipline) -> (Vec<Markable>, PacketCounters) {
    let mut link = Link::new(LinkConfig { discipline, ..geo() }, 1);
    for number in 0..33_333 {
        let now = micros(120 * u64::from(number));
        link.handle_packet(now, Markable { number, marked: false });
        check_conservation(&link);
    }
    let arrived = run_until(&mut link, Instant::MAX).into_iter().map(|(_, packet)| packet);
    (arrived.collect(), *link.counters())
}

fn red(ecn: bool) -> Discipline {
    let red = Red::recommended(BitRate::from_mbit(50), ByteCount::new(1500));
    Discipline::Red(Red { ecn, ..red })
}

fn codel(ecn: bool) -> Discipline {
    Discipline::CoDel(CoDel { ecn, ..CoDel::for_rtt(millis(100)) })
}

#[test]
fn early_drops_are_counted_among_the_drops() {
    for discipline in [red(false), codel(false)] {
        let (arrived, counters) = overload(discipline);
        assert!(counters.dropped_early.packets > 100, "{counters:?}");
        assert_eq!(counters.marked, Tally::default());
        assert_eq!(arrived.len() as u64, 33_333 - counters.dropped_queue.packets);
        assert!(arrived.iter().all(|packet| !packet.marked));
    }
}

/// RED keeps an unresponsive overload near the threshold where it drops half.
#[test]
fn red_keeps_the_queue_short() {
    let mut link = Link::new(LinkConfig { discipline: red(false), ..geo() }, 1);
    let mut longest = 0;
    for number in 0..100_000 {
        link.handle_packet(micros(120 * number), MTU);
        longest = longest.max(if number > 20_000 { link.queued().packets } else { 0 });
    }
    assert!((15..60).contains(&longest), "{longest}");
    assert_eq!(link.counters().dropped_queue, link.counters().dropped_early);
}

#[test]
fn marks_go_only_to_ecn_capable_packets() {
    for discipline in [red(true), codel(true)] {
        let (arrived, counters) = overload(discipline);
        let marked = arrived.iter().filter(|packet| packet.marked).count() as u64;
        assert!(marked > 10, "{counters:?}");
        assert_eq!(marked, counters.marked.packets);
        assert!(arrived.iter().all(|packet| !packet.marked || packet.number.is_multiple_of(2)));
        assert!(counters.dropped_early.packets > 10, "{counters:?}");
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Packets of 1500 bytes, one per millisecond for a second.
fn stream(config: LinkConfig, mut change: impl FnMut(&mut Link<Numbered>, u32)) -> Vec<u32> {
    let mut link = Link::new(config, 1);
    let mut arrived = Vec::new();
    for packet in 0..1000 {
        let now = Instant::ZERO + millis(packet.into());
        arrived.extend(run_until(&mut link, now));
        change(&mut link, packet);
        link.handle_packet(now, Numbered(packet, MTU));
    }
    arrived.extend(run_until(&mut link, Instant::MAX));
    arrived.into_iter().map(|(_, packet)| packet.0).collect()
}

#[test]
fn an_outage_loses_what_would_arrive_while_it_lasts() {
    // Packet n is received from n + 300 ms until 240 µs later.
    let outages = vec![Outage { after: millis(500), lasting: millis(100), every: None }];
    let arrived = stream(LinkConfig { outages, ..geo() }, |_, _| {});
    assert_eq!(arrived, (0..200).chain(300..1000).collect::<Vec<_>>());
}

#[test]
fn outages_are_announced_and_ended_while_the_link_runs() {
    let forever = Outage { after: millis(50), lasting: Duration::MAX, every: None };
    let arrived = stream(geo(), |link, packet| match packet {
        450 => link.add_outage(micros(450_000), forever),
        600 => link.end_outages(micros(600_000)),
        _ => {}
    });
    assert_eq!(arrived, (0..200).chain(300..1000).collect::<Vec<_>>());
}

#[test]
fn a_loss_trace_holds_at_the_time_of_arrival() {
    let text = "0s 0 %\n500ms 100 %\n600ms 0 %";
    let loss = LossModel::Trace(Trace::parse(text).unwrap());
    let arrived = stream(LinkConfig { loss, ..geo() }, |_, _| {});
    assert_eq!(arrived, (0..200).chain(300..1000).collect::<Vec<_>>());
}

/// The bursts of a seed do not depend on the traffic.
#[test]
fn traffic_does_not_move_the_bursts() {
    let loss = LossModel::from(ErrorModel::Huge);
    let lost = |every: u32| {
        let mut link = Link::new(LinkConfig { loss: loss.clone(), ..geo() }, 5);
        let mut arrived = Vec::new();
        for packet in (0..60_000).step_by(every as usize) {
            let now = Instant::ZERO + millis(packet.into());
            arrived.extend(run_until(&mut link, now));
            link.handle_packet(now, Numbered(packet, 40));
        }
        arrived.extend(run_until(&mut link, Instant::MAX));
        let arrived: Vec<_> = arrived.iter().map(|(_, p)| p.0).collect();
        (0..60_000).step_by(10).filter(|p| arrived.binary_search(p).is_err()).collect::<Vec<_>>()
    };
    assert_eq!(lost(1), lost(10));
    // Ten such packets every 3.6 s.
    assert!((100..260).contains(&lost(10).len()), "{}", lost(10).len());
}

#[test]
fn changes_of_rate_and_delay_lose_and_reorder_nothing() {
    let arrived = stream(geo(), |link, packet| {
        let now = Instant::ZERO + millis(packet.into());
        match packet {
            100 => link.set_rate(now, BitRate::from_bits_per_second(0)),
            200 => link.set_rate(now, BitRate::from_mbit(13)),
            500 => link.set_delay(now, millis(1)),
            700 => link.set_delay(now, millis(900)),
            _ => {}
        }
    });
    assert_eq!(arrived, (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_changed_rate_holds_for_the_rest_of_the_packet_being_sent() {
    let mut link = Link::new(geo(), 1);
    link.handle_packet(micros(0), MTU);
    link.handle_packet(micros(0), MTU);
    link.set_rate(micros(120), BitRate::from_mbit(25));
    let arrivals = run_until(&mut link, Instant::MAX);
    assert_eq!(arrivals, [(micros(300_360), MTU), (micros(300_840), MTU)]);
}

fn check_conservation<P: crate::CarriedPacket>(link: &Link<P>) {
    let c = link.counters();
    let gone = [c.dropped_queue, c.lost, c.delivered];
    let packets: u64 = gone.iter().map(|tally| tally.packets).sum();
    let bytes: u64 = gone.iter().map(|tally| tally.bytes.get()).sum();
    assert_eq!(c.offered.packets, packets + c.inside.packets);
    assert_eq!(c.offered.bytes.get(), bytes + c.inside.bytes.get());
    let serialising = usize::from(!link.serialiser.is_free());
    let inside = link.queue.len() + serialising + link.propagation.len();
    assert_eq!(c.inside.packets, inside as u64);
}

#[test]
fn a_full_queue_that_drops_at_the_head_keeps_the_newest() {
    let queue = QueueLimit::Packets(2);
    let config = LinkConfig { queue, discipline: Discipline::DropHead, ..geo() };
    let mut link = Link::new(config, 1);
    for packet in 0..6 {
        link.handle_packet(Instant::ZERO, Numbered(packet, MTU));
    }
    let came: Vec<u32> = run_until(&mut link, Instant::MAX).iter().map(|(_, p)| p.0).collect();
    assert_eq!(came, [0, 4, 5]);
    assert_eq!(link.counters().dropped_queue, tally(3, 3 * MTU as u64));
    assert_eq!(link.counters().inside, tally(0, 0));
}
