//! Parsing of presets, and which ones are rejected.

mod passes;
mod properties;

use core::num::NonZeroU64;

use link::{
    Delay, DisciplineChoice, ErrorModel, Jitter, LossModel, Policer, QueueLimit, QueueSize, Rate,
};
use proptest::prelude::*;
use units::{BitRate, ByteCount, Probability};

use super::*;
use crate::OrNone;

const GEO: &str = BUILT_IN[0].1;

fn parse(text: &str) -> Result<Preset, FileError> {
    Preset::from_text(text)
}

fn error_of(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// `geo` with `lines` replacing the key `per` of its forward link.
fn geo_with(lines: &str) -> String {
    GEO.replacen("per = \"0\"", lines, 1)
}

fn forward(lines: &str) -> LinkConfig {
    let [forward, _] = parse(&geo_with(lines)).unwrap().links();
    forward
}

#[test]
fn every_built_in_preset_is_a_link() {
    assert_eq!(Preset::built_in().count(), BUILT_IN.len());
}

#[test]
fn geo_is_50_to_10_mbit_with_600_ms_and_a_bdp_of_queue() {
    let geo = Preset::load("geo").unwrap();
    assert_eq!(geo.rtt(), Duration::from_millis(600));
    let [forward, ret] = geo.links();
    assert_eq!(forward.rate, BitRate::from_mbit(50).into());
    assert_eq!(forward.queue, QueueLimit::Bytes(ByteCount::new(3_750_000)));
    assert_eq!(ret.queue, QueueLimit::Bytes(ByteCount::new(750_000)));
    assert_eq!((forward.loss, ret.loss), (LossModel::None, LossModel::None));
}

#[test]
fn an_unknown_preset_is_answered_with_those_that_exist() {
    let error = Preset::load("mars").unwrap_err().to_string();
    assert!(error.contains("\"mars\"") && error.contains("geo"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Preset::load("no/such.toml").unwrap_err().to_string();
    assert!(error.contains("no/such.toml"), "{error}");
}

#[test]
fn a_wrong_value_is_shown_with_its_line_and_what_is_accepted() {
    let error = error_of(&GEO.replace("50 Mbit/s\"", "50 Mbps\""));
    for part in ["own.toml:13: forward.rate: ", "50 Mbps", "Mbit/s"] {
        assert!(error.contains(part), "{part} not in {error}");
    }
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn an_unknown_key_is_refused_and_the_known_ones_named() {
    let error = error_of(&GEO.replace("mtu =", "mut ="));
    assert!(error.contains("mut") && error.contains("mtu"), "{error}");
}

#[test]
fn a_missing_key_is_named() {
    let error = error_of(&GEO.replace("delay = \"300 ms\"", ""));
    assert!(error.contains("delay"), "{error}");
}

/// The line of the error begins with the key, or the last of several keys.
fn assert_place(error: &str, text: &str, key: &str) {
    let line = error.strip_prefix("own.toml:").and_then(|rest| rest.split_once(':'));
    let line: usize = line.unwrap_or_else(|| panic!("{error}")).0.parse().unwrap();
    let last = key.rsplit([' ', '.']).next().unwrap();
    let written = text.lines().nth(line - 1).unwrap();
    assert!(written.starts_with(last), "{error}: {written}");
}

#[test]
fn impossible_values_are_refused_by_key() {
    for (from, to, key) in [
        ("50 Mbit/s\"", "0 Mbit/s\"", "forward.rate"),
        ("10 Mbit/s\"", "1001 Gbit/s\"", "return.rate"),
        ("300 ms", "2 min", "forward.delay"),
        ("mtu = 1500", "mtu = 576", "mtu"),
        ("300 ms", "300 ms\"\njitter = \"61 s", "forward.jitter"),
        ("per = \"0\"", "per = \"0.1\"\nber = \"1e-6\"", "forward.per, ber"),
        ("per = \"0\"", "burst = \"low\"\nloss-trace = [\"0s 1\"]", "forward.burst, loss-trace"),
        ("per = \"0\"", "burst = \"low\"\nloss-period = 9", "forward.burst, loss-period"),
        ("per = \"0\"", "burst = \"good=0s bad=1us\"", "forward.burst"),
        ("per = \"0\"", "rate-trace = [\"0s 1 Mbit/s\"]", "forward.rate, rate-trace"),
        ("per = \"0\"", "delay-trace = [\"0s 1 ms\"]", "forward.delay, delay-trace"),
        ("per = \"0\"", "encapsulation = \"fixed 2 kB\"", "forward.encapsulation"),
        ("per = \"0\"", "ecn = true", "forward.ecn"),
        ("rate = \"50 Mbit/s\"", "rate-trace = [\"0s 0 bit/s\"]", "forward.rate-trace"),
        ("rate = \"50 Mbit/s\"", "rate-trace = [\"0s 1001 Gbit/s\"]", "forward.rate-trace"),
        ("delay = \"300 ms\"", "delay-trace = [\"0s 1h\"]", "forward.delay-trace"),
    ] {
        let text = GEO.replacen(from, to, 1);
        let error = error_of(&text);
        assert_place(&error, &text, key);
        assert!(error.contains(&format!(": {key} = ")), "{error}");
        assert!(error.contains(": expected ") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn overrides_change_what_they_name_and_the_queue_follows() {
    let overrides = PresetOverrides {
        rate: Some(BitRate::from_mbit(5)),
        delay: Some(Duration::from_millis(100)),
        per: Probability::new(0.01),
        ..PresetOverrides::default()
    };
    let preset = Preset::load("geo").unwrap().with(&overrides).unwrap();
    let [forward, ret] = preset.links();
    assert_eq!(forward.queue, QueueLimit::Bytes(ByteCount::new(125_000)));
    assert_eq!(ret.rate, BitRate::from_mbit(10).into());
    let per = LossModel::Per(Probability::new(0.01).unwrap());
    assert_eq!((forward.loss, ret.loss), (per.clone(), per));
    let every_ninth =
        PresetOverrides { loss_period: NonZeroU64::new(9), ..PresetOverrides::default() };
    let [forward, ret] = preset.with(&every_ninth).unwrap().links();
    let periodic = LossModel::Periodic(NonZeroU64::new(9).unwrap());
    assert_eq!((forward.loss, ret.loss), (periodic.clone(), periodic));
}

#[test]
fn overrides_replace_and_remove_the_policer_of_one_link() {
    let policer = |text: &str| Some(text.parse::<OrNone<_>>().unwrap());
    let policed = |preset: &Preset| {
        [&preset.forward, &preset.ret].map(|link| link.policer.map(|policer| policer.to_string()))
    };
    let [slow, fast] = ["2 Mbit/s burst 9 kB", "3 Mbit/s burst 9 kB"].map(str::to_owned);
    let both = PresetOverrides {
        policer: policer(&slow),
        return_policer: policer(&slow),
        ..PresetOverrides::default()
    };
    let preset = Preset::load("geo").unwrap().with(&both).unwrap();
    assert_eq!(policed(&preset), [Some(slow.clone()), Some(slow.clone())]);
    let changes = PresetOverrides { return_policer: policer(&fast), ..PresetOverrides::default() };
    let preset = preset.with(&changes).unwrap();
    assert_eq!(policed(&preset), [Some(slow), Some(fast.clone())]);
    let changes = PresetOverrides { policer: policer("none"), ..PresetOverrides::default() };
    assert_eq!(policed(&preset.with(&changes).unwrap()), [None, Some(fast)]);
    let error = "no".parse::<OrNone<Policer>>().unwrap_err().to_string();
    assert!(error.ends_with(" burst 15 kB\", or none"), "{error}");
    let written = parse(&geo_with("policer = \"none\"")).unwrap();
    assert_eq!(written.forward.policer, None);
}

#[test]
fn overrides_replace_one_kind_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let preset = parse(&geo_with("ber = \"1e-6\"\noutages = [\"1s+1s\"]")).unwrap();
    let overrides = PresetOverrides {
        rate_trace: file("down", "1\n4\n"),
        return_rate_trace: file("up", "0s 1 Mbit/s\n"),
        delay_trace: file("delay", "0s 5 ms\n1s 7 ms\n"),
        encapsulation: Some("gse".parse().unwrap()),
        jitter: Some("1 ms".parse().unwrap()),
        burst: Some(ErrorModel::Huge),
        outages: Some(vec!["2s+3s".parse().unwrap()]),
        discipline: Some("codel".parse().unwrap()),
        ecn: Some(true),
        ..PresetOverrides::default()
    };
    let preset = preset.with(&overrides).unwrap();
    assert_eq!(preset.rtt(), Duration::from_millis(14));
    for (direction, trace) in [(&preset.forward, "down"), (&preset.ret, "up")] {
        assert_eq!(matches!(direction.rate.over_time(), Rate::Opportunities(_)), trace == "down");
        assert_eq!(direction.encapsulation, "gse".parse().unwrap());
        assert_eq!(direction.jitter, Jitter::InOrder(Duration::from_millis(1)));
        assert_eq!(direction.loss, ErrorModel::Huge.into());
        assert_eq!(direction.outages, ["2s+3s".parse().unwrap()]);
        assert!(direction.ecn && matches!(direction.discipline, DisciplineChoice::CoDel { .. }));
    }
    let without = PresetOverrides { outages: Some(vec![]), ..PresetOverrides::default() };
    let without = preset.clone().with(&without).unwrap();
    assert_eq!(without.links().map(|link| link.outages), [vec![], vec![]]);
    let constant =
        PresetOverrides { rate: Some(BitRate::from_mbit(7)), ..PresetOverrides::default() };
    assert_eq!(preset.with(&constant).unwrap().forward.rate, BitRate::from_mbit(7).into());
}

#[test]
fn each_key_reaches_its_part_of_the_link() {
    assert_eq!(forward("encapsulation = \"ule npa\"").encapsulation, "ule npa".parse().unwrap());
    let reordering = Jitter::Reordering(Duration::from_millis(5));
    assert_eq!(forward("jitter = \"5 ms reordering\"").jitter, reordering);
    let outages = ["60s+10s", "15s+30ms every 15s"];
    let parsed = outages.map(|outage| outage.parse().unwrap());
    assert_eq!(forward(&format!("outages = {outages:?}")).outages, parsed);
    let red = forward("discipline = \"red min=100\"\necn = true").discipline;
    assert!(matches!(red, link::Discipline::Red(red) if red.ecn && red.max_threshold == 300.0));
    let codel = forward("discipline = \"codel\"").discipline;
    let rtt = Duration::from_millis(600);
    assert_eq!(codel, link::Discipline::CoDel(link::CoDel::for_rtt(rtt)));
}

#[test]
fn each_loss_model_has_its_key() {
    let p = |p| Probability::new(p).unwrap();
    let low = ErrorModel::Low.burst().unwrap();
    let own: ErrorModel = "good=1s..2s bad=60ms".parse().unwrap();
    let chain = "good-to-bad=1% bad-to-good=20%".parse().unwrap();
    let trace = link::Trace::new(vec![(Duration::ZERO, p(0.5))], None).unwrap();
    for (line, loss) in [
        ("", LossModel::None),
        ("per = \"0\"", LossModel::None),
        ("per = \"1 %\"", LossModel::Per(p(0.01))),
        ("ber = \"1e-6\"", LossModel::Ber(p(1e-6))),
        ("burst = \"none\"", LossModel::None),
        ("burst = \"low\"", LossModel::Burst(low)),
        ("burst = { good = \"1 s .. 2 s\", bad = \"60 ms\" }", own.into()),
        (
            "gilbert-elliott = { good-to-bad = \"1 %\", bad-to-good = \"20 %\" }",
            LossModel::GilbertElliott(chain),
        ),
        ("gilbert-elliott = \"good-to-bad=1% bad-to-good=20%\"", LossModel::GilbertElliott(chain)),
        ("loss-period = 1000", LossModel::Periodic(NonZeroU64::new(1000).unwrap())),
        ("loss-trace = [\"0s 50 %\"]", LossModel::Trace(trace)),
    ] {
        assert_eq!(forward(line).loss, loss, "{line}");
    }
}

#[test]
fn each_wrong_text_is_answered_with_what_is_accepted() {
    for (line, expected) in [
        ("encapsulation = \"atm\"", "aal5 [llc]"),
        ("jitter = \"5\"", "5 ms reordering"),
        ("burst = \"bad\"", "medium, high or huge"),
        ("burst = { good = \"1 s\" }", "good=10s..30s bad=60ms"),
        ("burst = { good = 1 }", "expected a text in quotes"),
        ("gilbert-elliott = \"1%\"", "bad-to-good=P"),
        ("outages = [\"60s+1s\", \"often\"]", "AFTER+DURATION"),
        ("outages = \"60s+1s\"", "expected a list"),
        ("discipline = \"fq\"", "codel [target"),
        ("ecn = \"yes\"", "expected true or false"),
        ("rate-trace = 5", "path of a trace, or its lines"),
    ] {
        let text = geo_with(line);
        let error = error_of(&text);
        assert_place(&error, &text, line.split(" =").next().unwrap());
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_trace_with_an_error_is_named_with_the_line() {
    let with = |text: &str| error_of(&GEO.replacen("rate = \"50 Mbit/s\"", text, 1));
    let error = with("rate-trace = [\"0s 5 Mbit/s\", \"5s 5 Mbps\"]");
    assert!(error.contains(": forward.rate-trace = [2 lines]: line 2: "), "{error}");
    assert!(with("rate-trace = [\"1\", \"0\"]").contains("0 ms is before 1 ms"));
    let error = with("rate-trace = \"no/such.trace\"");
    assert!(error.contains(": forward.rate-trace = \"no/such.trace\": cannot read"), "{error}");
    let empty = error_of(&geo_with("loss-trace = []"));
    assert!(
        empty.contains("forward.loss-trace") && empty.contains("the trace is empty"),
        "{empty}"
    );
}

#[test]
fn traces_are_found_beside_the_preset() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.toml");
    let text = GEO.replacen("rate = \"50 Mbit/s\"", "rate-trace = \"traces/fade\"", 1);
    std::fs::write(&own, text).unwrap();
    let load = || Preset::load(own.to_str().unwrap());
    assert!(load().unwrap_err().to_string().contains("traces/fade"));
    std::fs::create_dir(folder.path().join("traces")).unwrap();
    std::fs::write(folder.path().join("traces/fade"), "0s 50 Mbit/s\n9s 5 Mbit/s\n").unwrap();
    let preset = load().unwrap();
    let ends = [preset.forward.rate.greatest(), preset.forward.rate.least()];
    assert_eq!((preset.name.as_str(), ends), ("own", [50, 5].map(BitRate::from_mbit)));
    assert!(preset.forward.rate_changes() && !preset.ret.rate_changes());
}

#[test]
fn a_queue_in_bdps_is_one_of_what_packets_get() {
    let aal5 = forward("encapsulation = \"aal5\"");
    // 1500 bytes in 32 cells of 53.
    let expected = 3_750_000.0_f64 * 1500.0 / (32.0 * 53.0);
    let QueueLimit::Bytes(bytes) = aal5.queue else { panic!("{:?}", aal5.queue) };
    assert!((bytes.get() as f64 - expected).abs() < 2.0, "{bytes}");
}

#[test]
fn impossible_overrides_are_refused_by_option() {
    let zero =
        PresetOverrides { return_rate: Some(BitRate::from_mbit(0)), ..PresetOverrides::default() };
    let small = PresetOverrides { mtu: Some(1000), ..PresetOverrides::default() };
    let both = PresetOverrides {
        per: Probability::new(0.1),
        ber: Probability::new(0.1),
        ..PresetOverrides::default()
    };
    let two = PresetOverrides {
        return_rate: Some(BitRate::from_mbit(1)),
        return_rate_trace: Some("x".into()),
        ..PresetOverrides::default()
    };
    let missing =
        PresetOverrides { delay_trace: Some("no/such".into()), ..PresetOverrides::default() };
    let unmarked = PresetOverrides { ecn: Some(true), ..PresetOverrides::default() };
    for (overrides, option) in [
        (zero, "--return-rate = "),
        (small, "--mtu = "),
        (both, "--per, --ber = "),
        (two, "--return-rate, --return-rate-trace = "),
        (missing, "--delay-trace = \"no/such\": cannot read"),
        (unmarked, "--ecn = "),
    ] {
        let error = Preset::load("geo").unwrap().with(&overrides).unwrap_err().to_string();
        assert!(error.contains(option), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_preset_or_an_error_in_one_line(text in ".*") {
        if let Err(error) = parse(&text) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn a_damaged_preset_never_panics(at in 0..GEO.len(), byte in 0u8..128) {
        let mut text = GEO.as_bytes().to_vec();
        text[at] = byte;
        if let Ok(text) = String::from_utf8(text) {
            let _ = parse(&text);
        }
    }
}

#[test]
fn one_terminal_and_a_lan_unless_it_is_said() {
    let geo = parse(GEO).unwrap();
    assert_eq!((geo.terminals, geo.terrestrial.as_ref()), (1, None));
    assert_eq!(geo.path_rtt(), geo.rtt());
}

#[test]
fn a_star_and_a_terrestrial_link_are_read() {
    let text = GEO.replacen("mtu = 1500", "mtu = 1500\nterminals = 3", 1)
        + "[terrestrial]\nrate = \"10 Mbit/s\"\ndelay = \"100 ms\"\nqueue = \"1 BDP\"\nper = \"1%\"\n";
    let preset = parse(&text).unwrap();
    assert_eq!((preset.terminals, preset.rtt()), (3, Duration::from_millis(600)));
    assert_eq!(preset.path_rtt(), Duration::from_millis(800));
    let terrestrial = preset.terrestrial.unwrap();
    assert_eq!(terrestrial.loss, LossModel::Per(Probability::new(0.01).unwrap()));
    assert_eq!(terrestrial.queue, QueueSize::Bdp(1.0));
}

#[test]
fn one_terrestrial_option_makes_a_link_and_the_next_changes_it() {
    let geo = parse(GEO).unwrap();
    let with = |preset: Preset, terrestrial: TerrestrialOverrides| {
        preset.with(&PresetOverrides { terrestrial, ..PresetOverrides::default() })
    };
    let delay = Some(Duration::from_millis(100));
    let delayed = with(geo, TerrestrialOverrides { delay, ..Default::default() }).unwrap();
    let made = delayed.terrestrial.clone().unwrap();
    assert_eq!((made.rate, made.loss), (BitRate::from_mbit(1000).into(), LossModel::None));
    let rate = Some(BitRate::from_mbit(45));
    let both = with(delayed, TerrestrialOverrides { rate, ..Default::default() }).unwrap();
    let changed = both.terrestrial.unwrap();
    assert_eq!(changed.rate, BitRate::from_mbit(45).into());
    assert_eq!(changed.delay, Duration::from_millis(100).into());
}

#[test]
fn impossible_stars_and_terrestrial_links_are_refused() {
    for terminals in [0, 33] {
        let text = GEO.replacen("mtu = 1500", &format!("mtu = 1500\nterminals = {terminals}"), 1);
        let error = error_of(&text);
        assert!(error.contains("terminals") && error.contains("1 to 32"), "{error}");
    }
    let error =
        error_of(&(GEO.to_owned() + "[terrestrial]\ndelay = \"1 ms\"\nqueue = \"1 BDP\"\n"));
    assert!(error.contains("terrestrial.rate"), "{error}");
}
