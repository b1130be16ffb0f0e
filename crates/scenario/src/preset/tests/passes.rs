//! Checks that the built-in traces follow from their formulas.

use core::f64::consts::PI;

use super::*;
use crate::RateSpec;

/// The speed of light, in kilometres per second.
const LIGHT: f64 = 299_792.458;
const EARTH: f64 = 6378.137;
const MU: f64 = 398_600.441_8;
const SIDEREAL_DAY: f64 = 86_164.1;

/// The distance of a satellite at `height`, at an earth angle with this cosine.
fn distance(height: f64, cosine: f64) -> f64 {
    let orbit = EARTH + height;
    (EARTH * EARTH + orbit * orbit - 2.0 * EARTH * orbit * cosine).sqrt()
}

/// Angular velocity in radians per second.
fn motion(height: f64) -> f64 {
    (MU / (EARTH + height).powi(3)).sqrt()
}

fn milliseconds(preset: &str) -> (Vec<f64>, Duration) {
    let Delay::Trace(trace) = Preset::load(preset).unwrap().forward.delay else { panic!() };
    let values = trace.values().map(|delay| delay.as_secs_f64() * 1e3).collect();
    (values, trace.period().unwrap())
}

#[test]
fn leo_changes_satellites_every_15_seconds() {
    let begins = [-7.5, -2.0, 4.0, -6.0, 1.0, 7.0, -4.5, -0.5_f64];
    let expected = begins.into_iter().flat_map(|degrees| {
        (0..15).map(move |second| {
            let angle = degrees.to_radians() + motion(550.0) * f64::from(second);
            2.0 * distance(550.0, angle.cos()) / LIGHT * 1e3 + 14.0
        })
    });
    let (values, period) = milliseconds("leo");
    assert_eq!((values.len(), period), (120, Duration::from_secs(120)));
    for (value, expected) in values.into_iter().zip(expected) {
        assert!((value - expected).abs() < 0.001, "{value} {expected}");
    }
}

#[test]
fn meo_changes_satellites_every_30_minutes() {
    let motion = motion(8062.0) - 2.0 * PI / SIDEREAL_DAY;
    let latitude = 40_f64.to_radians().cos();
    let expected = (0..180).map(|step| {
        let since_nearest = f64::from((step * 10 + 1740) % 1800 - 900);
        let west = |degrees: f64| motion * since_nearest + degrees.to_radians();
        let ways = [0.0, 10.0].map(|degrees| distance(8062.0, latitude * west(degrees).cos()));
        (ways[0] + ways[1]) / LIGHT * 1e3 + 4.0
    });
    let (values, period) = milliseconds("meo");
    assert_eq!((values.len(), period), (180, Duration::from_secs(1800)));
    for (value, expected) in values.into_iter().zip(expected) {
        assert!((value - expected).abs() < 0.001, "{value} {expected}");
    }
}

/// ETSI EN 302 307-1, Table 13: ideal Es/N0 in dB and spectral efficiency of the MODCODs up to
/// 16APSK.
const MODCODS: [(f64, f64); 23] = [
    (-2.35, 0.490),
    (-1.24, 0.656),
    (-0.30, 0.789),
    (1.00, 0.988),
    (2.23, 1.188),
    (3.10, 1.322),
    (4.03, 1.487),
    (4.68, 1.587),
    (5.18, 1.655),
    (6.20, 1.767),
    (6.42, 1.789),
    (5.50, 1.780),
    (6.62, 1.981),
    (7.91, 2.228),
    (9.35, 2.479),
    (10.69, 2.646),
    (10.98, 2.679),
    (8.97, 2.637),
    (10.21, 2.967),
    (11.03, 3.166),
    (11.61, 3.300),
    (12.89, 3.523),
    (13.13, 3.567),
];

#[test]
fn the_fade_is_followed_by_modcods_of_dvb_s2() {
    let rate = Preset::load("geo-fade").unwrap().forward.rate;
    let Rate::Trace(trace) = rate.over_time() else { panic!() };
    for half in 0..360u32 {
        let at = f64::from(half) / 2.0;
        let fade = ((at - 6.0).clamp(0.0, 60.0) - (at - 96.0).clamp(0.0, 60.0)) * 0.2;
        let usable = |(least, _): &&(f64, f64)| *least <= 14.2 - fade - 1.0 + 1e-9;
        let best = MODCODS.iter().filter(usable).map(|(_, efficiency)| *efficiency);
        let expected = 14e6 * best.fold(0.0, f64::max);
        let rate = trace.value_at(Duration::from_millis(500) * half).bits_per_second() as f64;
        assert!((rate - expected).abs() < 1.0, "{at} s: {rate} {expected}");
    }
}

/// The attenuation at `second` of half an hour, in decibels: showers that begin, last and weaken the
/// signal by so much, with a ripple.
fn rain(second: u32) -> f64 {
    const SHOWERS: [[f64; 3]; 4] =
        [[30.0, 1560.0, 3.0], [60.0, 300.0, 6.0], [500.0, 360.0, 13.0], [1000.0, 240.0, 5.0]];
    let at = f64::from(second);
    let shower = |[from, lasting, depth]: [f64; 3]| {
        let part = ((at - from) / lasting).clamp(0.0, 1.0);
        depth * (PI * part).sin().powi(2)
    };
    SHOWERS.into_iter().map(shower).sum::<f64>() * (1.0 + 0.03 * (2.0 * PI * at / 17.0).sin())
}

#[test]
fn the_rain_is_what_its_formula_says() {
    let forward = Preset::load("geo-rain").unwrap().forward;
    let RateSpec::Acm(acm) = &forward.rate else { panic!() };
    let es_n0 = acm.adaptation().es_n0();
    assert_eq!(es_n0.period(), Some(Duration::from_secs(1800)));
    for second in (0..3600).step_by(2) {
        let es_n0 = es_n0.value_at(Duration::from_secs(second.into()));
        let expected = 12.6 - rain(second % 1800);
        let difference = es_n0.thousandths() as f64 / 1e3 - expected;
        assert!(difference.abs() < 0.0051, "{second} s: {es_n0} {expected}");
    }
}

/// The margin is enough for this rain. Lost is only what no MODCOD can carry: from 648 to 708 s, but
/// for 6 s in which the ripple helps.
#[test]
fn the_rain_is_followed_by_modcods_until_there_is_none() {
    let [forward, _] = Preset::load("geo-rain").unwrap().links();
    let ends = [forward.rate.greatest(), forward.rate.least()];
    let expected = [98_895_000, 15_314_000];
    for (rate, expected) in ends.iter().zip(expected) {
        assert_eq!(rate.bits_per_second() / 1000 * 1000, expected, "{ends:?}");
    }
    let outages: Vec<_> = forward.outages.iter().map(ToString::to_string).collect();
    assert_eq!(outages, ["648s+8s every 1800s", "662s+46s every 1800s"]);
    let hundredths = |second: u32| (rain(second) * 100.0).round();
    let lost = (0..1800).step_by(2).filter(|second| 1260.0 - hundredths(*second) < -235.0);
    assert_eq!(lost.count(), (8 + 46) / 2);
}
