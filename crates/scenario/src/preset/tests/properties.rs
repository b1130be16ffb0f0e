//! Properties of every valid preset.

use link::{
    Acm, BurstModel, Link, Modcods, Opportunities, Outage, Policer, Standard, Trace, TraceValue,
};
use units::{Decibels, Instant, Machine, SymbolRate};

use super::*;
use crate::{AcmSpec, RateSpec};

fn any_rate() -> impl Strategy<Value = RateSpec> {
    let rate = || (1u64..10_000_000_000).prop_map(BitRate::from_bits_per_second);
    let steps = prop::collection::vec(rate(), 1..5);
    let opportunities = prop::collection::vec(0u64..50, 0..9).prop_map(|mut millis| {
        millis.push(50);
        millis.sort_unstable();
        let lines: Vec<_> = millis.iter().map(u64::to_string).collect();
        Opportunities::parse(&lines.join("\n")).unwrap().into()
    });
    prop_oneof![
        rate().prop_map(RateSpec::from),
        (steps, any::<bool>()).prop_map(|(steps, looped)| trace(steps, looped).into()),
        opportunities.prop_map(|opportunities: Rate| opportunities.into()),
        any_acm().prop_map(|acm| RateSpec::Acm(Box::new(acm))),
    ]
}

fn any_acm() -> impl Strategy<Value = AcmSpec> {
    let names = vec!["dvb-s2", "dvb-s2 pilots", "dvb-s", "dvb-rcs"];
    let standard = prop::sample::select(names).prop_map(|name| name.parse().unwrap());
    let modcods = standard.prop_flat_map(|standard: Standard| {
        let all = standard.modcods();
        let some = prop::sample::subsequence(all.clone(), 1..=all.len());
        (Just(standard), prop_oneof![Just(all), some])
    });
    let db = |range: core::ops::RangeInclusive<i64>| range.prop_map(Decibels::from_thousandths);
    let rain = prop::collection::vec(db(0..=100_000), 1..5);
    let clear_sky = db(-50_000..=50_000);
    let rest = (1_000u64..=100_000_000_000, db(0..=20_000), db(0..=20_000), any_time());
    (modcods, clear_sky, rain, any::<bool>(), rest).prop_map(
        |((standard, modcods), clear_sky, rain, looped, rest)| {
            let (symbols, margin, hysteresis, reaction) = rest;
            let modcods = Modcods::new(modcods).unwrap();
            let symbol_rate = SymbolRate::from_baud(symbols);
            let acm = Acm { modcods, symbol_rate, margin, hysteresis, reaction };
            AcmSpec::new(standard, acm, clear_sky, trace(rain, looped))
        },
    )
}

/// A trace with a value every ten milliseconds.
fn trace<T: TraceValue>(values: Vec<T>, looped: bool) -> Trace<T> {
    let at = |index: usize| Duration::from_millis(10 * index as u64);
    let period = looped.then_some(at(values.len()));
    let points = values.into_iter().enumerate().map(|(index, value)| (at(index), value));
    Trace::new(points.collect(), period).unwrap()
}

fn any_time() -> impl Strategy<Value = Duration> {
    (0u64..=60_000_000_000).prop_map(Duration::from_nanos)
}

fn any_delay() -> impl Strategy<Value = Delay> {
    prop_oneof![
        any_time().prop_map(Delay::Constant),
        (prop::collection::vec(any_time(), 1..5), any::<bool>())
            .prop_map(|(steps, looped)| Delay::Trace(trace(steps, looped))),
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        any_time().prop_map(Jitter::InOrder),
        any_time().prop_map(Jitter::Reordering),
    ]
}

fn any_probability() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), 0.0..=1.0, 1e-12..1e-3].prop_map(|p| Probability::new(p).unwrap())
}

fn any_loss() -> impl Strategy<Value = LossModel> {
    let above_zero = || any_probability().prop_filter("zero is none", |p| p.get() > 0.0);
    let millis = |from, more| {
        let ms = Duration::from_millis;
        ms(from)..=ms(from + more)
    };
    prop_oneof![
        Just(LossModel::None),
        above_zero().prop_map(LossModel::Per),
        above_zero().prop_map(LossModel::Ber),
        prop::sample::select(&ErrorModel::ALL[1..]).prop_map(LossModel::from),
        prop::array::uniform4(1u64..1000).prop_map(move |[a, b, c, d]| {
            LossModel::Burst(BurstModel::new(millis(a, b), millis(c, d)).unwrap())
        }),
        prop::array::uniform4(any_probability()).prop_map(|[a, b, c, d]| {
            let text = format!("good-to-bad={a} bad-to-good={b} loss-good={c} loss-bad={d}");
            LossModel::GilbertElliott(text.parse().unwrap())
        }),
        (prop::collection::vec(any_probability(), 1..5), any::<bool>())
            .prop_map(|(steps, looped)| LossModel::Trace(trace(steps, looped))),
    ]
}

fn any_outage() -> impl Strategy<Value = Outage> {
    (any_time(), 1u64..60_000, prop::option::of(1u64..60_000)).prop_map(|(after, ms, pause)| {
        let lasting = Duration::from_millis(ms);
        let every = pause.map(|pause| lasting + Duration::from_millis(pause));
        Outage { after, lasting, every }
    })
}

fn any_queue() -> impl Strategy<Value = QueueSize> {
    prop_oneof![
        (0.001f64..100.0).prop_map(QueueSize::Bdp),
        (1usize..10_000).prop_map(QueueSize::Packets),
        (1u64..1 << 40).prop_map(|bytes| QueueSize::Bytes(ByteCount::new(bytes))),
    ]
}

fn any_policer() -> impl Strategy<Value = Option<Policer>> {
    let rate = (1u64..1_000_000_000_000).prop_map(BitRate::from_bits_per_second);
    let burst = (1500u64..1 << 40).prop_map(ByteCount::new);
    prop::option::of((rate, burst).prop_map(|(rate, burst)| Policer { rate, burst }))
}

fn any_discipline() -> impl Strategy<Value = (DisciplineChoice, bool)> {
    let p = || prop::option::of(any_probability());
    let red = (0.0f64..100.0, 0.001f64..100.0, p(), p()).prop_map(|(min, more, max_p, weight)| {
        DisciplineChoice::Red { min: Some(min), max: Some(min + more), max_p, weight }
    });
    let codel = prop::option::of((any_time(), any_time())).prop_map(|times| {
        let (target, interval) = times.map(|(a, b)| (a.min(b), a.max(b))).unzip();
        DisciplineChoice::CoDel { target, interval }
    });
    prop_oneof![
        Just((DisciplineChoice::DropTail, false)),
        (red, any::<bool>()),
        (codel, any::<bool>())
    ]
}

/// Boxed, like its larger parts: with all of it in one frame, a test thread has hardly any of its 2 MiB of stack left.
fn any_link() -> BoxedStrategy<LinkSpec> {
    let names =
        vec!["none", "fixed 9 B", "code 1/2", "aal5 llc", "mpe packed", "ule npa packed", "gse 6"];
    let encapsulation = prop::sample::select(names).prop_map(|name| name.parse().unwrap());
    let outages = prop::collection::vec(any_outage(), 0..3);
    let room = (any_policer(), any_queue());
    let first = (any_rate().boxed(), encapsulation, any_delay().boxed(), any_jitter());
    let all = (first, any_loss().boxed(), outages, room, any_discipline().boxed());
    all.prop_map(|(first, loss, outages, (policer, queue), (discipline, ecn))| {
        let (rate, encapsulation, delay, jitter) = first;
        LinkSpec {
            rate,
            encapsulation,
            delay,
            jitter,
            loss,
            outages,
            policer,
            queue,
            discipline,
            ecn,
        }
    })
    .boxed()
}

fn any_preset() -> impl Strategy<Value = Preset> {
    let sides = [(); 2].map(|()| prop::option::of(any_link()));
    let all = (any_link(), any_link(), 1280u16..=9216, 1u8..=32, sides);
    all.prop_map(|(forward, ret, mtu, terminals, [terrestrial, client_side])| Preset {
        dama: None,
        name: "own".into(),
        description: "any \"text\"".into(),
        forward,
        ret,
        mtu,
        terminals,
        terrestrial,
        client_side,
    })
}

/// Offers packets to a link and runs it to its end, if it has one.
fn run(config: LinkConfig, seed: u64, packets: &[(u64, usize)]) -> [u64; 4] {
    let mut link = Link::new(config, seed);
    let (mut now, mut delivered) = (Instant::ZERO, 0);
    for &(gap, len) in packets {
        now += Duration::from_nanos(gap);
        link.handle_packet(now, len);
        delivered += core::iter::from_fn(|| link.poll_delivery(now)).count() as u64;
    }
    link.handle_timeout(Instant::MAX);
    delivered += core::iter::from_fn(|| link.poll_delivery(Instant::MAX)).count() as u64;
    let all = link.counters();
    assert_eq!(delivered, all.delivered.packets);
    [all.dropped_queue.packets, all.lost.packets, delivered, all.inside.packets]
}

proptest! {
    #[test]
    fn a_printed_preset_is_read_back(preset in any_preset()) {
        prop_assert_eq!(parse(&preset.to_string()).unwrap(), preset);
    }

    #[test]
    fn its_links_conserve_packets_and_repeat(
        preset in any_preset(),
        seed: u64,
        packets in prop::collection::vec((0u64..2_000_000, 20usize..1500), 0..100),
    ) {
        for config in preset.links() {
            let ends = run(config.clone(), seed, &packets);
            prop_assert_eq!(ends.iter().sum::<u64>(), packets.len() as u64);
            prop_assert_eq!(ends, run(config, seed, &packets));
        }
    }
}
