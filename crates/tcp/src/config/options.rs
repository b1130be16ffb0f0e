//! Settings as text: `profile=satellite,initial-window=4,cc=hybla:rtt0=50ms`.

use core::str::FromStr;
use core::time::Duration;

use thiserror::Error;
use units::{BitRate, ByteCount, parse_duration};

use super::profile::Profile;
use crate::cc::{ControllerSpec, FastRecovery, OptionError, SpecError};
use crate::config::{AckCounting, AfterSlowStart, Config, LossDetector, SynData};
use crate::estimate::rtt::RttSampling;
use crate::recovery::prr::PrrBound;
use crate::sharing::tcb::TcbSharing;

/// The reason why a setting was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not of the form name=value.
    #[error("{text:?} is not an option: expected name=value")]
    Form {
        /// The part of the text that was rejected.
        text: String,
    },
    /// There is no option with that name.
    #[error("there is no option {name:?}: expected one of {}", Config::names().collect::<Vec<_>>().join(", \
                                                                                                         "))]
    Unknown {
        /// The unknown name, as given.
        name: String,
    },
    /// The value does not name a profile or controller.
    #[error("{name}: {message}")]
    Unreadable {
        /// The name of the option.
        name: String,
        /// The given value, the fault in it, and the values that are accepted.
        message: String,
    },
    /// The value is invalid for the option.
    #[error("{name} = {value:?}: expected {expected}")]
    Value {
        /// The name of the option.
        name: String,
        /// The rejected value, as given.
        value: String,
        /// Description of the values that are accepted.
        expected: String,
    },
}

/// One option: its name, the values it accepts, and the function that sets it.
struct OptionSetting {
    name: &'static str,
    expected: &'static str,
    /// Returns `None` if the value is not accepted.
    set: fn(&mut Config, &str) -> Option<()>,
}

const fn setting(
    name: &'static str,
    expected: &'static str,
    set: fn(&mut Config, &str) -> Option<()>,
) -> OptionSetting {
    OptionSetting { name, expected, set }
}

const SWITCH: &str = "on or off";
const SIZE: &str = "1 B to 1 GiB";
const TIME: &str = "a duration up to 10,000,000 s, such as 200ms";
const SEGMENTS: &str = "1 to 100,000 segments";
/// The longest interval that any option accepts.
const LONGEST: Duration = Duration::from_secs(10_000_000);

macro_rules! switches {
    ($($name:literal => $($field:ident).+),+ $(,)?) => {
        [$(setting($name, SWITCH, |config, text| assign(&mut config.$($field).+, switch(text)))),+]
    };
}

const SWITCHES: [OptionSetting; 17] = switches! {
    "window-scaling" => window_scaling,
    "timestamps" => timestamps,
    "sack" => sack,
    "dsack" => dsack,
    "ecn" => ecn,
    "snack" => snack,
    "assume-corruption" => assume_corruption,
    "control-acks-alone" => acks.control_alone,
    "nagle" => nagle,
    "minshall" => minshall,
    "limited-transmit" => limited_transmit,
    "frto" => frto,
    "eifel" => eifel,
    "dsack-undo" => dsack_undo,
    "pacing" => pacing,
    "estimate-ssthresh" => estimate_ssthresh,
    "restart-after-idle" => restart_after_idle,
};

const VALUES: [OptionSetting; 24] = [
    setting("mss", "64 to 9000 bytes", |config, text| {
        assign(&mut config.mss, number(text, 64, 9000))
    }),
    setting("initial-window", SEGMENTS, |config, text| {
        assign(&mut config.initial_window, number(text, 1, 100_000))
    }),
    setting("initial-ssthresh", "1 B to 1 GiB, or none", |config, text| {
        assign(&mut config.initial_ssthresh, unless("none", text, size))
    }),
    setting("receive-buffer", SIZE, |config, text| assign(&mut config.receive_buffer, size(text))),
    setting("send-buffer", SIZE, |config, text| assign(&mut config.send_buffer, size(text))),
    setting("ack-delay", "a duration, or none", |config, text| {
        assign(&mut config.acks.delay, unless("none", text, time))
    }),
    setting("ack-every", "1 to 1000 segments", |config, text| {
        assign(&mut config.acks.every, number(text, 1, 1000))
    }),
    setting("ack-quick", "0 to 100,000 segments", |config, text| {
        assign(&mut config.acks.quick, number(text, 0, 100_000))
    }),
    setting("daass", "off, on (until the first hole) or signalled", |config, text| {
        assign(&mut config.acks.after_slow_start, after_slow_start(text))
    }),
    setting("syn-data", "off, fast-open, t-tcp or always", |config, text| {
        assign(&mut config.syn_data, syn_data(text))
    }),
    setting("counting", "acks, bytes, or \"bytes 2\" (the limit L)", |config, text| {
        assign(&mut config.counting, counting(text))
    }),
    setting("detection", "dup-acks, sack, fack, rack or rack-tlp", |config, text| {
        assign(&mut config.detection, detection(text))
    }),
    setting("recovery", "go-back-n, reno, newreno, or the controller's: auto", |config, text| {
        assign(&mut config.recovery, unless("auto", text, recovery))
    }),
    setting("prr", "off, conservative or slow-start", |config, text| {
        assign(&mut config.prr, unless("off", text, prr))
    }),
    setting("rto-initial", TIME, |config, text| assign(&mut config.rto.initial, time(text))),
    setting("rto-min", "a duration that is at most rto-max", |config, text| {
        let min = time(text).filter(|min| *min <= config.rto.max);
        assign(&mut config.rto.min, min)
    }),
    setting("rto-max", "a duration above 0 that is at least rto-min", |config, text| {
        let max = time(text).filter(|max| *max >= config.rto.min && !max.is_zero());
        assign(&mut config.rto.max, max)
    }),
    setting("rto-granularity", TIME, |config, text| {
        assign(&mut config.rto.granularity, time(text))
    }),
    setting("rtt-sampling", "every or once-per-rtt", |config, text| {
        assign(&mut config.rto.sampling, sampling(text))
    }),
    setting("max-rate", "a rate above 0, or none", |config, text| {
        assign(&mut config.max_rate, unless("none", text, rate))
    }),
    setting("bucket", "1 B to 1 GiB, or none", |config, text| {
        assign(&mut config.bucket, unless("none", text, size))
    }),
    setting("tcb-sharing", "none, threshold or all", |config, text| {
        assign(&mut config.sharing, sharing(text))
    }),
    setting("user-timeout", "a duration, or none", |config, text| {
        assign(&mut config.user_timeout, unless("none", text, time))
    }),
    setting("time-wait", TIME, |config, text| assign(&mut config.time_wait, time(text))),
];

fn settings() -> impl Iterator<Item = &'static OptionSetting> {
    SWITCHES.iter().chain(&VALUES)
}

impl Config {
    /// Returns the names of all options, as users write them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["profile", "cc"].into_iter().chain(settings().map(|setting| setting.name))
    }

    /// Sets the option `name` to `value`. A `profile` sets all options; `controller` is an alias of
    /// `cc`.
    ///
    /// # Errors
    /// If there is no such option, or its value is invalid. The settings are then unchanged.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let wrong = |expected: &str| {
            let name = name.to_owned();
            let value = value.to_owned();
            ConfigError::Value { name, value, expected: expected.to_owned() }
        };
        let unreadable =
            |message: String| ConfigError::Unreadable { name: name.to_owned(), message };
        match name {
            "profile" => {
                let profile: Profile =
                    value.parse().map_err(|error| unreadable(error_text(&error)))?;
                *self = profile.config();
            }
            "cc" | "controller" => {
                let spec = value.parse::<ControllerSpec>();
                self.controller = spec.map_err(|error| unreadable(error_text(&error)))?;
            }
            _ => {
                let known = settings().find(|setting| setting.name == name);
                let setting =
                    known.ok_or_else(|| ConfigError::Unknown { name: name.to_owned() })?;
                let set = (setting.set)(self, value);
                set.ok_or_else(|| wrong(setting.expected))?;
            }
        }
        Ok(())
    }
}

fn error_text(error: &impl core::fmt::Display) -> String {
    error.to_string()
}

/// Comma-separated options on top of the profile `linux` or the one named. Anything after the
/// options of a controller that is not an option of the endpoint belongs to the controller:
/// `cc=cubic:hystart=off,beta=0.8`. A comma may also replace the colon: `cc=cubic,beta=0.8`.
impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Profile::Linux.config();
        let pairs = pairs(text)?;
        // A profile sets everything, so it comes first wherever it is written.
        let (profiles, others): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|(name, _)| *name == "profile");
        for (name, value) in profiles.into_iter().chain(others) {
            config.set(name, value)?;
        }
        Ok(config)
    }
}

/// Splits the text into names and values, and keeps the options of a controller with its name.
fn pairs(text: &str) -> Result<Vec<(&str, String)>, ConfigError> {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let form = || ConfigError::Form { text: part.to_owned() };
        let (name, value) = part.split_once('=').ok_or_else(form)?;
        let name = name.trim();
        let value = value.trim();
        let joined =
            pairs.last().and_then(|(last, spec)| append_to_controller(last, spec, name, part));
        match (pairs.last_mut(), joined) {
            (Some((_, spec)), Some(joined)) => *spec = joined,
            _ => pairs.push((name, value.to_owned())),
        }
    }
    Ok(pairs)
}

fn is_controller(name: &str) -> bool {
    name == "controller" || name == "cc"
}

/// Returns the controller's text with `part` appended, if that belongs to it: it is no option of
/// the endpoint, and follows others of the controller or is one that the controller has. Its value
/// is validated later.
fn append_to_controller(last: &str, spec: &str, name: &str, part: &str) -> Option<String> {
    let is_own = is_controller(name) || Config::names().any(|known| known == name);
    if is_own || !is_controller(last) {
        return None;
    }
    if spec.contains(':') {
        // The controller has options already; an unknown one shall be reported as the controller's.
        return Some(format!("{spec},{part}"));
    }
    let joined = format!("{spec}:{part}");
    match joined.parse::<ControllerSpec>() {
        Err(SpecError::Unknown { .. })
        | Err(SpecError::Option { error: OptionError::Unknown { .. }, .. }) => None,
        _ => Some(joined),
    }
}

fn assign<T>(to: &mut T, value: Option<T>) -> Option<()> {
    *to = value?;
    Some(())
}

/// Reads an optional value: `Some(None)` for the word `none`, otherwise the result of `read`.
fn unless<T>(none: &str, text: &str, read: fn(&str) -> Option<T>) -> Option<Option<T>> {
    if text == none { Some(None) } else { read(text).map(Some) }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn number<T: FromStr + PartialOrd>(text: &str, low: T, high: T) -> Option<T> {
    text.parse().ok().filter(|value| (low..=high).contains(value))
}

fn size(text: &str) -> Option<ByteCount> {
    text.parse().ok().filter(|bytes: &ByteCount| (1..=1 << 30).contains(&bytes.get()))
}

fn time(text: &str) -> Option<Duration> {
    parse_duration(text).ok().filter(|time| *time <= LONGEST)
}

fn rate(text: &str) -> Option<BitRate> {
    text.parse().ok().filter(|rate: &BitRate| rate.bits_per_second() > 0)
}

fn syn_data(text: &str) -> Option<SynData> {
    match text {
        "off" => Some(SynData::Off),
        "fast-open" => Some(SynData::FastOpen { cookie: crate::Cookie::new() }),
        "t-tcp" => Some(SynData::Transactions(crate::TransactionSettings::default())),
        "always" => Some(SynData::Always),
        _ => None,
    }
}

fn after_slow_start(text: &str) -> Option<AfterSlowStart> {
    match text {
        "off" => Some(AfterSlowStart::Off),
        "on" => Some(AfterSlowStart::Assumed),
        "signalled" => Some(AfterSlowStart::Signalled),
        _ => None,
    }
}

fn counting(text: &str) -> Option<AckCounting> {
    match text.split_once(' ') {
        None if text == "acks" => Some(AckCounting::Acks),
        None if text == "bytes" => Some(AckCounting::Bytes { limit: None }),
        Some(("bytes", limit)) => {
            number(limit, 1, u32::MAX).map(|limit| AckCounting::Bytes { limit: Some(limit) })
        }
        _ => None,
    }
}

fn detection(text: &str) -> Option<LossDetector> {
    match text {
        "dup-acks" => Some(LossDetector::DupAcks),
        "sack" => Some(LossDetector::Sack),
        "fack" => Some(LossDetector::Fack),
        "rack" => Some(LossDetector::Rack { tlp: false }),
        "rack-tlp" => Some(LossDetector::Rack { tlp: true }),
        _ => None,
    }
}

fn recovery(text: &str) -> Option<FastRecovery> {
    match text {
        "go-back-n" => Some(FastRecovery::GoBackN),
        "reno" => Some(FastRecovery::Reno),
        "newreno" => Some(FastRecovery::NewReno),
        _ => None,
    }
}

fn prr(text: &str) -> Option<PrrBound> {
    match text {
        "conservative" => Some(PrrBound::Conservative),
        "slow-start" => Some(PrrBound::SlowStart),
        _ => None,
    }
}

fn sharing(text: &str) -> Option<TcbSharing> {
    match text {
        "none" => Some(TcbSharing::None),
        "threshold" => Some(TcbSharing::Threshold),
        "all" => Some(TcbSharing::All),
        _ => None,
    }
}

fn sampling(text: &str) -> Option<RttSampling> {
    match text {
        "every" => Some(RttSampling::EveryAck),
        "once-per-rtt" => Some(RttSampling::OncePerRtt),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Config>().unwrap_err().to_string()
    }

    #[test]
    fn text_sets_what_it_says() {
        let text = "sack=off, cc=cubic:hystart=off,beta=0.8,mss=1000,profile=satellite,\
                    counting=bytes 2,max-rate=none,ack-delay=none,recovery=reno";
        let config: Config = text.parse().unwrap();
        let satellite = Profile::Satellite.config();
        assert_eq!(config.controller.to_string(), "cubic:hystart=off,beta=0.8");
        assert_eq!((config.mss, config.sack, config.acks.delay), (1000, false, None));
        assert_eq!(config.counting, AckCounting::Bytes { limit: Some(2) });
        assert_eq!(config.recovery, Some(FastRecovery::Reno));
        // The rest comes from the profile, wherever it appears in the text.
        assert_eq!(config.initial_window, satellite.initial_window);
        assert_eq!(config.receive_buffer, satellite.receive_buffer);
        let default: Config = "".parse().unwrap();
        assert_eq!(default.rto, Profile::Linux.config().rto);
    }

    #[test]
    fn a_comma_will_do_before_the_options_of_a_controller() {
        for text in ["cc=cubic,beta=0.8,c=0.3,mss=1000", "cc=cubic:beta=0.8,c=0.3,mss=1000"] {
            let config: Config = text.parse().unwrap();
            assert_eq!(config.controller.to_string(), "cubic:beta=0.8,c=0.3");
            assert_eq!(config.mss, 1000);
        }
        let value = error("cc=cubic,beta=9");
        assert!(value.contains("beta=9: expected a number from 0.1 to 0.99"), "{value}");
        for text in ["cc=reno,beta=0.8", "cc=cubic,mss=1000,beta=0.8", "cc=cubik,beta=0.8"] {
            assert!(error(text).contains("expected one of"), "{text}: {}", error(text));
        }
    }

    #[test]
    fn mistakes_say_what_there_is() {
        assert_eq!(error("sack"), "\"sack\" is not an option: expected name=value");
        let unknown = error("sock=on");
        assert!(unknown.starts_with("there is no option \"sock\": expected one of profile, cc, "));
        assert!(unknown.contains("initial-window"), "{unknown}");
        assert_eq!(error("sack=yes"), "sack = \"yes\": expected on or off");
        assert!(error("mss=9001").ends_with("expected 64 to 9000 bytes"));
        let controller = error("cc=cubic:hystart=off,beat=1");
        assert!(controller.contains("there is no option \"beat\""), "{controller}");
        assert!(error("cc=cubik").contains("expected one of bbr"));
        assert!(error("profile=gnu").contains("expected one of reference"));
        assert!(error("rto-min=200s").ends_with("at most rto-max"));
    }

    #[test]
    fn no_option_has_two_names() {
        let mut names: Vec<_> = Config::names().collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
