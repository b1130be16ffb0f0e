use link::QueueLimit;
use proptest::prelude::*;
use units::ByteCount;

use super::*;

const GEO: &str = BUILT_IN[0].1;

fn error_of(text: &str) -> String {
    Preset::parse("own", "own.toml", text).unwrap_err().to_string()
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
    assert_eq!((forward.loss, ret.loss), (Loss::None, Loss::None));
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
    for part in ["own.toml:", "rate = ", "50 Mbps", "Mbit/s"] {
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

#[test]
fn impossible_values_are_refused_by_key() {
    for (from, to, key) in [
        ("50 Mbit/s\"", "0 Mbit/s\"", "forward.rate"),
        ("10 Mbit/s\"", "11 Gbit/s\"", "return.rate"),
        ("300 ms", "2 min", "forward.delay"),
        ("mtu = 1500", "mtu = 576", "mtu"),
        ("per = \"0\"", "per = \"0.1\"\nber = \"1e-6\"", "forward.per, ber"),
    ] {
        let error = error_of(&GEO.replacen(from, to, 1));
        assert!(error.contains(&format!("own.toml: {key} =")), "{error}");
    }
}

#[test]
fn overrides_change_what_they_name_and_the_queue_follows() {
    let overrides = Overrides {
        rate: Some(BitRate::from_mbit(5)),
        delay: Some(Duration::from_millis(100)),
        per: Probability::new(0.01),
        ..Overrides::default()
    };
    let preset = Preset::load("geo").unwrap().with(&overrides).unwrap();
    let [forward, ret] = preset.links();
    assert_eq!(forward.queue, QueueLimit::Bytes(ByteCount::new(125_000)));
    assert_eq!(ret.rate, BitRate::from_mbit(10).into());
    let per = Loss::Per(Probability::new(0.01).unwrap());
    assert_eq!((forward.loss, ret.loss), (per.clone(), per));
}

#[test]
fn impossible_overrides_are_refused_by_option() {
    let zero = Overrides { return_rate: Some(BitRate::from_mbit(0)), ..Overrides::default() };
    let small = Overrides { mtu: Some(1000), ..Overrides::default() };
    let both = Overrides {
        per: Probability::new(0.1),
        ber: Probability::new(0.1),
        ..Overrides::default()
    };
    for (overrides, option) in [(zero, "--return-rate"), (small, "--mtu"), (both, "--per, --ber")] {
        let error = Preset::load("geo").unwrap().with(&overrides).unwrap_err().to_string();
        assert!(error.contains(option), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_preset_or_an_error_in_one_line(text in ".*") {
        if let Err(error) = Preset::parse("own", "own.toml", &text) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn a_damaged_preset_never_panics(at in 0..GEO.len(), byte in 0u8..128) {
        let mut text = GEO.as_bytes().to_vec();
        text[at] = byte;
        if let Ok(text) = String::from_utf8(text) {
            let _ = Preset::parse("own", "own.toml", &text);
        }
    }
}
