//! Links with adaptive coding and modulation.

use core::time::Duration;

use link::{Modcod, Rate};
use proptest::prelude::*;
use units::BitRate;

use crate::{Preset, PresetOverrides, RateSpec};

const ACM: &str = "[forward.acm]
standard = \"dvb-s2\"
symbol-rate = \"10 Mbaud\"
clear-sky = \"11 dB\"
rain = [\"0s 0 dB\", \"10s 9 dB\", \"20s 20 dB\", \"30s 0 dB\"]
margin = \"0 dB\"
hysteresis = \"0 dB\"
reaction = \"400 ms\"
modcods = [\"QPSK 1/2\", \"16APSK 3/4\"]
";

/// A preset whose forward link has `lines`, which may begin other tables.
fn text(lines: &str) -> String {
    let ret = "[return]\nrate = \"1 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n";
    let forward = "[forward]\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n";
    format!("description = \"x\"\nmtu = 1500\n{ret}{forward}{lines}")
}

fn preset(lines: &str) -> Preset {
    Preset::from_text(&text(lines)).unwrap()
}

fn error_of(lines: &str) -> String {
    Preset::from_text(&text(lines)).unwrap_err().to_string()
}

fn mbit(rate: &str) -> BitRate {
    rate.parse().unwrap()
}

fn names(preset: &Preset) -> Vec<String> {
    let RateSpec::Acm(acm) = &preset.forward.rate else { panic!("{preset:?}") };
    acm.adaptation().modcods().values().map(Modcod::to_string).collect()
}

/// What the hub does changes rates 0.4 s after the rain, and arrives 0.25 s later.
#[test]
fn the_rate_follows_the_rain_and_what_it_cannot_carry_is_lost() {
    let preset = preset(ACM);
    let [forward, _] = preset.links();
    let rates = "0s 29.66728 Mbit/s\n10.4s 9.888581 Mbit/s\n30.4s 29.66728 Mbit/s";
    let Rate::Trace(trace) = &forward.rate else { panic!("{forward:?}") };
    assert_eq!(trace.to_string(), rates);
    assert!(preset.forward.rate_changes());
    let outages: Vec<_> = forward.outages.iter().map(ToString::to_string).collect();
    assert_eq!(outages, ["10s+650ms", "20s+10s"]);
}

#[test]
fn outages_of_the_file_come_in_addition_and_follow_the_delay() {
    let preset = preset(&format!("outages = [\"1s+1s\"]\n{ACM}"));
    assert_eq!(preset.forward.outages.len(), 1);
    let delay = Some(Duration::from_millis(50));
    let preset = preset.with(&PresetOverrides { delay, ..PresetOverrides::default() }).unwrap();
    let [forward, _] = preset.links();
    let outages: Vec<_> = forward.outages.iter().map(ToString::to_string).collect();
    assert_eq!(outages, ["1s+1s", "10s+450ms", "20s+10s"]);
}

#[test]
fn an_option_replaces_it_with_a_rate() {
    let rate = Some(BitRate::from_mbit(5));
    let preset = preset(ACM).with(&PresetOverrides { rate, ..PresetOverrides::default() }).unwrap();
    assert_eq!(preset.forward.rate, BitRate::from_mbit(5).into());
    assert_eq!(preset.links()[0].outages, []);
}

#[test]
fn only_the_standard_the_symbols_and_the_clear_sky_have_to_be_given() {
    let short = "[forward.acm]\nstandard = \"dvb-s\"\nsymbol-rate = \"10 Mbaud\"\n\
                 clear-sky = \"8 dB\"\n";
    let preset = preset(short);
    // 6.906 and 1 dB of margin.
    assert_eq!(names(&preset), ["QPSK 3/4"]);
    assert_eq!(preset.links()[0].rate, Rate::Constant(mbit("13.823529 Mbit/s")));
    let shown = preset.to_string();
    for line in [
        "[forward.acm]",
        "rain = [\"0s 0 dB\"]",
        "margin = \"1 dB\"",
        "hysteresis = \"0.5 dB\"",
        "reaction = \"500 ms\"",
        "modcods = \"all\"",
    ] {
        assert!(shown.contains(line), "{line} not in {shown}");
    }
    assert_eq!(Preset::from_text(&shown).unwrap().forward, preset.forward);
}

#[test]
fn one_modcod_does_not_adapt() {
    let list = "[\"QPSK 1/2\", \"16APSK 3/4\"]";
    let constant = preset(&ACM.replace(list, "\"16apsk 3/4\""));
    assert_eq!(names(&constant), ["16APSK 3/4"]);
    let [forward, _] = constant.links();
    assert_eq!(forward.rate, Rate::Constant(mbit("29.66728 Mbit/s")));
    assert_eq!(forward.outages, ["10s+20s".parse().unwrap()]);
    assert!(constant.to_string().contains("modcods = \"16APSK 3/4\""));
    // All that are worth using are all.
    let all = preset(&ACM.replace(list, "\"all\""));
    assert_eq!(names(&all), ["16APSK 3/4", "QPSK 1/2", "QPSK 1/4", "16APSK 3/4"]);
}

#[test]
fn a_rate_and_its_adaptation_exclude_each_other() {
    for (line, key) in
        [("rate = \"1 Mbit/s\"", "rate"), ("rate-trace = [\"0s 1 Mbit/s\"]", "rate-trace")]
    {
        let error = error_of(&format!("{line}\n{ACM}"));
        assert!(error.starts_with("own.toml:11: "), "{error}");
        assert!(error.contains(&format!("forward.{key}, acm = ")), "{error}");
        assert!(error.contains("a table: expected only one of them"), "{error}");
    }
    assert!(error_of("").contains("forward.rate is missing: expected a rate"), "{}", error_of(""));
}

#[test]
fn wrong_values_are_refused_by_key() {
    for (from, to, key, expected) in [
        ("\"dvb-s2\"", "\"dvb-s3\"", "standard", "expected dvb-s2"),
        ("10 Mbaud", "10 baud", "symbol-rate", "expected 1 kbaud to 100 Gbaud"),
        ("10 Mbaud", "10 Mbit/s", "symbol-rate", "Mbaud"),
        ("11 dB", "51 dB", "clear-sky", "expected -50 dB to 50 dB"),
        ("11 dB", "11", "clear-sky", "12 dB"),
        ("20 dB", "101 dB", "rain", "expected attenuations of 0 to 100 dB"),
        ("20 dB", "-1 dB", "rain", "= -1 dB: expected attenuations of 0 to 100 dB"),
        ("20 dB", "much", "rain", "= [4 lines]: line 3: \"much\" is not a ratio in decibels"),
        ("margin = \"0 dB\"", "margin = \"-1 dB\"", "margin", "expected 0 to 20 dB"),
        ("hysteresis = \"0 dB\"", "hysteresis = \"21 dB\"", "hysteresis", "expected 0 to 20 dB"),
        ("400 ms", "61 s", "reaction", "expected at most 60 s"),
        (
            "QPSK 1/2",
            "QPSK 1/7",
            "modcods",
            "= \"QPSK 1/7\": expected \"all\", or some of QPSK 1/4,",
        ),
        ("[\"QPSK 1/2\", \"16APSK 3/4\"]", "[]", "modcods", "= []: expected \"all\", or some of"),
        (
            "[\"QPSK 1/2\", \"16APSK 3/4\"]",
            "3",
            "modcods",
            "expected \"all\", the name of a MODCOD",
        ),
    ] {
        let wrong = text(&ACM.replacen(from, to, 1));
        let error = Preset::from_text(&wrong).unwrap_err().to_string();
        let line = wrong.lines().position(|line| line.starts_with(key)).unwrap() + 1;
        assert!(error.starts_with(&format!("own.toml:{line}: forward.acm.{key}")), "{error}");
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn missing_and_unknown_keys_are_named() {
    for (key, expected) in
        [("standard", "dvb-s2"), ("symbol-rate", "30 Mbaud"), ("clear-sky", "12 dB")]
    {
        let without: Vec<_> = ACM.lines().filter(|line| !line.starts_with(key)).collect();
        let error = error_of(&(without.join("\n") + "\n"));
        assert!(error.starts_with("own.toml:10: "), "{error}");
        assert!(error.contains(&format!("forward.acm.{key} is missing: expected")), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let error = error_of(&ACM.replace("margin", "margn"));
    assert!(
        error.contains("unknown key `margn` in forward.acm, did you mean `margin`?"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn a_damaged_table_is_read_or_refused_in_one_line(at in 0..ACM.len(), byte in 32u8..127) {
        let mut damaged = ACM.as_bytes().to_vec();
        damaged[at] = byte;
        let damaged = text(&String::from_utf8(damaged).unwrap());
        match Preset::from_text(&damaged) {
            Ok(preset) => {
                let again = Preset::from_text(&preset.to_string()).unwrap();
                prop_assert_eq!(again, preset);
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
