//! Properties of every configuration and schedule: packets are conserved, runs are reproducible,
//! lateness changes nothing, order is kept.

use core::time::Duration;

use proptest::prelude::*;
use units::{BitRate, ByteCount, Instant, Probability};

use super::{Numbered, check_conservation, millis, run_until};
use crate::{
    BurstModel, CoDel, Delay, Discipline, Encapsulation, GilbertElliott, Jitter, Link, LinkConfig,
    LossModel, Opportunities, Outage, PacketCounters, Policer, QueueLimit, Rate, Red, Trace,
    TraceValue,
};

/// An action of a link's owner.
#[derive(Debug, Clone)]
enum Action {
    Offer(usize),
    Rate(Rate),
    Encapsulation(Encapsulation),
    Delay(Delay),
    Jitter(Jitter),
    Loss(LossModel),
    Queue(QueueLimit),
    Outage(Outage),
    EndOutages,
    Discipline(Discipline),
    Policer(Option<Policer>),
}

/// Actions with their times.
fn schedule() -> impl Strategy<Value = Vec<(u64, Action)>> {
    let action = prop_oneof![
        12 => (0usize..3000).prop_map(Action::Offer),
        1 => any_rate().prop_map(Action::Rate),
        1 => any_encapsulation().prop_map(Action::Encapsulation),
        1 => any_delay().prop_map(Action::Delay),
        1 => any_jitter().prop_map(Action::Jitter),
        1 => any_loss().prop_map(Action::Loss),
        1 => any_queue().prop_map(Action::Queue),
        1 => any_outage().prop_map(Action::Outage),
        1 => Just(Action::EndOutages),
        1 => any_discipline().prop_map(Action::Discipline),
        1 => any_policer().prop_map(Action::Policer),
    ];
    prop::collection::vec((0u64..2_000_000, action), 0..200)
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let rate = prop_oneof![Just(0), 1..100_000_000u64, any::<u64>()]
        .prop_map(BitRate::from_bits_per_second);
    let opportunities = prop::sample::select(vec!["1", "0\n0\n3\n3\n4", "20\n100"]);
    prop_oneof![
        2 => rate.clone().prop_map(Rate::Constant),
        1 => prop::collection::vec(rate, 1..5).prop_map(|rates| Rate::Trace(trace(rates))),
        1 => opportunities.prop_map(|text| Opportunities::parse(text).unwrap().into()),
    ]
}

fn any_policer() -> impl Strategy<Value = Option<Policer>> {
    let rate = (0..100_000_000u64).prop_map(BitRate::from_bits_per_second);
    let burst = (0..100_000u64).prop_map(ByteCount::new);
    prop::option::of((rate, burst).prop_map(|(rate, burst)| Policer { rate, burst }))
}

fn any_encapsulation() -> impl Strategy<Value = Encapsulation> {
    let names = vec!["none", "fixed 9 B", "aal5", "mpe", "mpe packed", "ule npa packed", "gse 6"];
    prop::sample::select(names).prop_map(|name| name.parse().unwrap())
}

fn any_delay() -> impl Strategy<Value = Delay> {
    prop_oneof![
        2 => any_duration().prop_map(Delay::Constant),
        1 => prop::collection::vec(any_duration(), 1..5)
            .prop_map(|delays| Delay::Trace(trace(delays))),
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        2 => Just(Jitter::None),
        1 => any_duration().prop_map(Jitter::InOrder),
        1 => any_duration().prop_map(Jitter::Reordering),
    ]
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..400_000_000u64).prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
}

fn any_loss() -> impl Strategy<Value = LossModel> {
    let probability = (0.0..=1.0).prop_map(|p| Probability::new(p).unwrap());
    prop_oneof![
        Just(LossModel::None),
        probability.clone().prop_map(LossModel::Per),
        probability.clone().prop_map(|p| LossModel::Ber(Probability::new(p.get() / 1e4).unwrap())),
        (0..30_000u64, 0..30_000u64).prop_map(|(good, bad)| {
            let up_to = |micros| Duration::ZERO..=Duration::from_micros(micros);
            LossModel::Burst(BurstModel::new(up_to(good), up_to(bad + 1)).unwrap())
        }),
        prop::array::uniform4(probability.clone()).prop_map(|[a, b, c, d]| {
            LossModel::GilbertElliott(GilbertElliott {
                good_to_bad: a,
                bad_to_good: b,
                loss_good: c,
                loss_bad: d,
            })
        }),
        prop::collection::vec(probability, 1..5).prop_map(|values| LossModel::Trace(trace(values))),
    ]
}

/// A repeating trace with a value every ten milliseconds.
fn trace<T: TraceValue>(values: Vec<T>) -> Trace<T> {
    let period = millis(10) * values.len() as u32;
    let points = values.into_iter().enumerate().map(|(i, value)| (millis(10) * i as u32, value));
    Trace::new(points.collect(), Some(period)).unwrap()
}

fn any_queue() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (0usize..50).prop_map(QueueLimit::Packets),
        (0u64..50_000).prop_map(|bytes| QueueLimit::Bytes(ByteCount::new(bytes))),
    ]
}

fn any_discipline() -> impl Strategy<Value = Discipline> {
    let red = (0.0..10.0, 0.0..10.0, any::<bool>()).prop_map(|(min_threshold, more, ecn)| Red {
        min_threshold,
        max_threshold: min_threshold + more,
        weight: Probability::new(0.3).unwrap(),
        ecn,
        ..Red::recommended(BitRate::from_mbit(10), ByteCount::new(1500))
    });
    let codel = (0u64..20, any::<bool>())
        .prop_map(|(rtt, ecn)| CoDel { ecn, ..CoDel::for_rtt(millis(rtt)) });
    prop_oneof![
        1 => Just(Discipline::DropTail),
        1 => Just(Discipline::DropHead),
        1 => red.prop_map(Discipline::Red),
        1 => codel.prop_map(Discipline::CoDel),
    ]
}

fn any_outage() -> impl Strategy<Value = Outage> {
    let every = prop::option::of(any_duration());
    (any_duration(), any_duration(), every).prop_map(|(after, lasting, every)| Outage {
        after,
        lasting,
        every,
    })
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    let first = (any_rate(), any_encapsulation(), any_delay(), any_jitter());
    let outages = prop::collection::vec(any_outage(), 0..3);
    let second = (any_loss(), outages, any_policer(), any_queue(), any_discipline());
    (first, second).prop_map(
        |((rate, encapsulation, delay, jitter), (loss, outages, policer, queue, discipline))| {
            LinkConfig {
                rate,
                encapsulation,
                delay,
                jitter,
                loss,
                outages,
                policer,
                queue,
                discipline,
            }
        },
    )
}

fn act(link: &mut Link<Numbered>, now: Instant, number: u32, action: &Action) {
    match *action {
        Action::Offer(len) => link.handle_packet(now, Numbered(number, len)),
        Action::Rate(ref rate) => link.set_rate(now, rate.clone()),
        Action::Encapsulation(encapsulation) => link.set_encapsulation(now, encapsulation),
        Action::Delay(ref delay) => link.set_delay(now, delay.clone()),
        Action::Jitter(jitter) => link.set_jitter(now, jitter),
        Action::Loss(ref loss) => link.set_loss(now, loss.clone()),
        Action::Queue(limit) => link.set_queue(now, limit),
        Action::Outage(outage) => link.add_outage(now, outage),
        Action::EndOutages => link.end_outages(now),
        Action::Discipline(discipline) => link.set_discipline(now, discipline),
        Action::Policer(policer) => link.set_policer(now, policer),
    }
}

/// Runs a schedule and drives the link either punctually or only when an action is due. Returns all
/// arrivals with their times, and the counters.
fn run(
    config: LinkConfig,
    seed: u64,
    schedule: &[(u64, Action)],
    punctual: bool,
) -> (Vec<(Instant, u32)>, PacketCounters) {
    let mut link = Link::new(config, seed);
    let mut now = Instant::ZERO;
    let mut log = Vec::new();
    for (index, (gap, action)) in schedule.iter().enumerate() {
        now += Duration::from_nanos(*gap);
        if punctual {
            log.extend(run_until(&mut link, now));
        }
        act(&mut link, now, index as u32, action);
        check_conservation(&link);
    }
    log.extend(run_until(&mut link, Instant::MAX));
    check_conservation(&link);
    (log.into_iter().map(|(at, packet)| (at, packet.0)).collect(), *link.counters())
}

proptest! {
    #[test]
    fn packets_are_conserved_and_runs_repeat(
        config in any_config(), seed: u64, schedule in schedule(),
    ) {
        let first = run(config.clone(), seed, &schedule, true);
        prop_assert_eq!(&first, &run(config, seed, &schedule, true));
    }

    #[test]
    fn a_late_driver_changes_nothing(config in any_config(), seed: u64, schedule in schedule()) {
        let punctual = run(config.clone(), seed, &schedule, true);
        prop_assert_eq!(punctual, run(config, seed, &schedule, false));
    }

    #[test]
    fn nothing_is_reordered_unasked(
        mut config in any_config(), seed: u64, mut schedule in schedule(),
    ) {
        let reordering = |jitter: Jitter| matches!(jitter, Jitter::Reordering(_));
        config.jitter = if reordering(config.jitter) { Jitter::None } else { config.jitter };
        schedule.retain(|(_, action)| !matches!(action, Action::Jitter(j) if reordering(*j)));
        let (arrivals, _) = run(config, seed, &schedule, true);
        prop_assert!(arrivals.is_sorted());
        prop_assert!(arrivals.is_sorted_by_key(|(_, packet)| *packet));
    }
}
