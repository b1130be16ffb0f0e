use proptest::prelude::*;

use super::*;
use crate::Standard;

const MS: Duration = Duration::from_millis(1);

fn db(thousandths: i64) -> Decibels {
    Decibels::from_thousandths(thousandths)
}

/// Three MODCODs of DVB-S2 that need 1.00, 4.03 and 7.91 dB and carry 988, 1487 and 2228 kbit/s;
/// without margin and hysteresis.
fn acm() -> Acm {
    let standard = Standard::DvbS2 { pilots: false };
    let names = ["QPSK 1/2", "QPSK 3/4", "8PSK 3/4"];
    let modcods = names.map(|name| standard.modcod(name).unwrap());
    Acm {
        modcods: Modcods::new(modcods).unwrap(),
        symbol_rate: SymbolRate::from_baud(1_000_000),
        margin: Decibels::ZERO,
        hysteresis: Decibels::ZERO,
        reaction: 500 * MS,
    }
}

fn follow(acm: &Acm, es_n0: &str) -> Adaptation {
    acm.follow(Trace::parse(es_n0).unwrap())
}

/// The times in milliseconds and names of MODCODs.
fn modcods(adaptation: &Adaptation) -> Vec<(u64, String)> {
    let steps = adaptation.modcods().steps();
    steps.map(|(at, modcod)| (at / 1_000_000, modcod.to_string())).collect()
}

fn outages(adaptation: &Adaptation, delay: u32) -> Vec<String> {
    adaptation.outages(delay * MS).iter().map(Outage::to_string).collect()
}

fn steps<const N: usize>(expected: [(u64, &str); N]) -> Vec<(u64, String)> {
    expected.map(|(at, name)| (at, name.to_owned())).into()
}

#[test]
fn the_hub_follows_a_fade_a_reaction_later() {
    let fade = follow(&acm(), "0s 9 dB\n10s 5 dB\n20s 2 dB\n30s 9 dB");
    let expected =
        [(0, "8PSK 3/4"), (10_500, "QPSK 3/4"), (20_500, "QPSK 1/2"), (30_500, "8PSK 3/4")];
    assert_eq!(modcods(&fade), steps(expected));
    let rates = fade.rates();
    let kbit: Vec<_> = rates.values().map(|rate| rate.bits_per_second() / 1000).collect();
    assert_eq!(kbit, [2_228, 1_487, 988, 2_228]);
    // Down, what arrives is lost until the new MODCOD does; up, nothing is.
    assert_eq!(outages(&fade, 0), ["10s+500ms", "20s+500ms"]);
    assert_eq!(outages(&fade, 300), ["10s+800ms", "20s+800ms"]);
}

#[test]
fn a_margin_bridges_a_slow_fade() {
    let margin = Acm { margin: db(1_000), ..acm() };
    // 1 dB in a second.
    let fade = follow(&margin, "0s 9 dB\n10s 8.5 dB\n10.5s 8 dB\n11s 7.5 dB\n11.5s 7 dB");
    assert_eq!(modcods(&fade), steps([(0, "8PSK 3/4"), (10_500, "QPSK 3/4")]));
    assert_eq!(outages(&fade, 300), [""; 0]);
    // What was sent just before 10.5 s arrives at 11 s.
    assert_eq!(outages(&fade, 600), ["11s+100ms"]);
}

#[test]
fn a_hysteresis_delays_the_way_up_only() {
    let hysteresis = Acm { hysteresis: db(500), ..acm() };
    let mut controller = AcmController::new(&hysteresis, db(8_000));
    assert_eq!(controller.modcod().to_string(), "8PSK 3/4");
    for (es_n0, expected) in [
        (7_910, "8PSK 3/4"),
        (7_909, "QPSK 3/4"),
        (8_409, "QPSK 3/4"),
        (8_410, "8PSK 3/4"),
        (7_910, "8PSK 3/4"),
        (2_000, "QPSK 1/2"),
        (8_000, "QPSK 3/4"),
    ] {
        assert_eq!(controller.handle_report(db(es_n0)).to_string(), expected, "{es_n0}");
    }
}

/// The most robust MODCOD stays in use, and everything is lost.
#[test]
fn below_all_thresholds_there_is_an_outage() {
    let fade = follow(&acm(), "0s 2 dB\n10s 0.9 dB\n20s -30 dB\n30s 1 dB");
    assert_eq!(modcods(&fade), steps([(0, "QPSK 1/2")]));
    assert_eq!(outages(&fade, 300), ["10s+20s"]);
    let for_ever = follow(&acm(), "0s 2 dB\n10s 0 dB").outages(300 * MS);
    assert_eq!((for_ever.len(), for_ever[0].after), (1, 10_000 * MS));
    assert!(for_ever[0].lasting > Duration::from_secs(500 * 365 * 86_400));
    // One that lasts as long as its period never ends.
    let always = Outage { after: Duration::ZERO, lasting: 9_000 * MS, every: Some(9_000 * MS) };
    assert_eq!(follow(&acm(), "0s 0 dB\n5s -1 dB\nloop 9s").outages(300 * MS), [always]);
}

#[test]
fn one_modcod_never_changes() {
    let modcods = Modcods::new(acm().modcods.iter().skip(2).copied());
    let constant = Acm { modcods: modcods.unwrap(), ..acm() };
    let fade = follow(&constant, "0s 9 dB\n10s 5 dB\n20s 2 dB\n30s 9 dB");
    assert_eq!(fade.modcods().values().count(), 1);
    assert_eq!(outages(&fade, 300), ["10s+20s"]);
}

/// The improvement over before the fade ends too early for the hub.
#[test]
fn reports_on_their_way_are_not_overtaken() {
    let peak = follow(&acm(), "0s 5 dB\n10s 9 dB\n10.2s 5 dB");
    assert_eq!(
        modcods(&peak),
        steps([(0, "QPSK 3/4"), (10_500, "8PSK 3/4"), (10_700, "QPSK 3/4")])
    );
    assert_eq!(outages(&peak, 300), ["10.8s+200ms"]);
}

#[test]
fn a_repeated_fade_begins_as_it_ends() {
    // The change of 9.8 s happens at 0.3 s of the next period, and the loss of it goes on.
    let fade = follow(&acm(), "0s 5 dB\n4s 9 dB\n9.8s 5 dB\nloop 10s");
    assert_eq!(modcods(&fade), steps([(0, "8PSK 3/4"), (300, "QPSK 3/4"), (4_500, "8PSK 3/4")]));
    assert_eq!(outages(&fade, 100), ["0s+400ms every 10s", "9.8s+200ms every 10s"]);
    // With this hysteresis the MODCOD that the fade leaves is not regained.
    let slow = Acm { hysteresis: db(1_100), ..acm() };
    let fade = follow(&slow, "0s 8 dB\n4s 5 dB\n6s 8 dB\nloop 10s");
    assert_eq!(modcods(&fade), steps([(0, "QPSK 3/4")]));
}

fn any_acm() -> impl Strategy<Value = Acm> {
    let standard = prop::sample::select(vec!["dvb-s2", "dvb-s2 pilots", "dvb-s", "dvb-rcs"]);
    let all = standard.prop_map(|name| name.parse::<Standard>().unwrap().modcods());
    let some = all.prop_flat_map(|all| prop::sample::subsequence(all.clone(), 1..=all.len()));
    (some, 0i64..3_000, 0i64..3_000, 0u32..5_000).prop_map(|(some, margin, hysteresis, ms)| Acm {
        modcods: Modcods::new(some).unwrap(),
        symbol_rate: SymbolRate::from_baud(30_000_000),
        margin: db(margin),
        hysteresis: db(hysteresis),
        reaction: ms * MS,
    })
}

/// A value every so often, up to two seconds.
fn any_es_n0() -> impl Strategy<Value = Trace<Decibels>> {
    let steps = prop::collection::vec((1u32..2_000, -5_000i64..20_000), 1..40);
    (steps, any::<bool>()).prop_map(|(steps, looped)| {
        let mut at = Duration::ZERO;
        let mut points = Vec::new();
        for (gap, es_n0) in steps {
            points.push((at, db(es_n0)));
            at += gap * MS;
        }
        Trace::new(points, looped.then_some(at)).unwrap()
    })
}

/// Whether the Es/N0 was the same from `before` ago until `at`.
fn is_steady(es_n0: &Trace<Decibels>, at: Duration, before: Duration) -> bool {
    let mut times: Vec<_> = (0..).map(|ms| at.saturating_sub(ms * MS)).take(5_001).collect();
    times.retain(|time| *time + before >= at);
    times.iter().all(|time| es_n0.value_at(*time) == es_n0.value_at(at))
}

proptest! {
    /// More is sent than the Es/N0 allows only if it has changed within the reaction.
    #[test]
    fn rates_exceed_what_closes_only_during_the_reaction(
        acm in any_acm(), es_n0 in any_es_n0(), ms in 10_000u32..90_000,
    ) {
        let adaptation = acm.follow(es_n0.clone());
        let at = ms * MS;
        prop_assume!(is_steady(&es_n0, at, acm.reaction));
        let es_n0 = *es_n0.value_at(at);
        let sent = adaptation.modcods().value_at(at);
        let robust = acm.modcods.iter().next().unwrap();
        prop_assert!(sent == robust || sent.es_n0() + acm.margin <= es_n0, "{sent} at {es_n0}");
        // Nor does it stay below what closes with the hysteresis.
        let best = acm.modcods.best(es_n0 - acm.margin - acm.hysteresis);
        prop_assert!(sent.efficiency() >= acm.modcods.0[best].efficiency());
        prop_assert_eq!(*adaptation.rates().value_at(at), sent.rate(acm.symbol_rate));
    }

    /// In a band no wider than the hysteresis all changes go the same way.
    #[test]
    fn a_ripple_within_the_hysteresis_does_not_flap(
        acm in any_acm(),
        start in -5_000i64..20_000,
        base in -5_000i64..20_000,
        ripple in prop::collection::vec(0.0f64..=1.0, 1..50),
    ) {
        let mut controller = AcmController::new(&acm, db(start));
        let width = acm.hysteresis.thousandths() as f64;
        let all = ripple.iter().map(|part| db(base + (part * width) as i64));
        let chosen: Vec<_> = all.map(|es_n0| controller.handle_report(es_n0).es_n0()).collect();
        prop_assert!(chosen.is_sorted() || chosen.iter().rev().is_sorted(), "{chosen:?}");
    }

    /// The outages are exactly the times at which the Es/N0 is below the threshold of what was
    /// sent a delay before.
    #[test]
    fn all_that_cannot_be_decoded_is_in_an_outage(
        acm in any_acm(), es_n0 in any_es_n0(), delay in 0u32..3_000, ms in 5_000u32..90_000,
    ) {
        let adaptation = acm.follow(es_n0.clone());
        let delay = delay * MS;
        let at = ms * MS;
        let is_out = |outage: &Outage| match outage.every {
            Some(every) => {
                let at = nanos(at) % nanos(every);
                (nanos(outage.after)..nanos(outage.after + outage.lasting)).contains(&at)
            }
            None => outage.after <= at && at - outage.after < outage.lasting,
        };
        let out = adaptation.outages(delay).iter().any(is_out);
        let sent = adaptation.modcods().value_at(at.saturating_sub(delay));
        prop_assert_eq!(out, *es_n0.value_at(at) < sent.es_n0());
    }

    /// A fade of at most the margin in reaction and delay loses nothing while any MODCOD closes.
    #[test]
    fn slow_fades_lose_nothing(acm in any_acm(), delay in 0u32..3_000, down in 0i64..15_000) {
        // A thousandth of a decibel at a time.
        prop_assume!(acm.margin > Decibels::ZERO);
        let whole = acm.reaction + delay * MS + 2 * MS;
        let step = whole / u32::try_from(acm.margin.thousandths()).unwrap() + MS;
        let top = acm.modcods.iter().next_back().unwrap().es_n0() + acm.margin;
        let least = acm.modcods.iter().next().unwrap().es_n0();
        let values = (0..down).map(|less| (top - db(less)).max(least));
        let points = values.zip(0u32..).map(|(es_n0, number)| (number * step, es_n0)).collect();
        let Ok(es_n0) = Trace::new(points, None) else { return Ok(()) };
        prop_assert_eq!(acm.follow(es_n0).outages(delay * MS), []);
    }
}
