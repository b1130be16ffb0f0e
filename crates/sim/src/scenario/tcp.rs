//! How the TCP of a scenario behaves.

use std::sync::Arc;

use tcp::cc::{ControllerSpec, FastRecovery};
use tcp::{Config, Counting, Detection, Profile, PrrBound};
use units::{BitRate, ByteCount};

use super::error::{Place, ScenarioError, quoted};
use super::raw;

/// The settings of a `[tcp.NAME]`.
pub(super) fn read(place: &Place, raw: &raw::Tcp) -> Result<Arc<Config>, ScenarioError> {
    let profile: Option<Profile> = place.read("profile", raw.profile.as_deref())?;
    let mut config = profile.unwrap_or(Profile::Linux).config();
    sizes(place, raw, &mut config)?;
    switches(raw, &mut config);
    acknowledgements(place, raw, &mut config)?;
    recovery(place, raw, &mut config)?;
    times(place, raw, &mut config)?;
    let controller: Option<ControllerSpec> = place.read("controller", raw.controller.as_deref())?;
    config.controller = controller.unwrap_or(config.controller);
    let rate: Option<BitRate> = place.read("max-rate", raw.max_rate.as_deref())?;
    if let Some(rate) = rate {
        place.check(rate.bits_per_second() > 0, "max-rate", rate, "above 0")?;
    }
    config.max_rate = rate.or(config.max_rate);
    Ok(Arc::new(config))
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn sizes(place: &Place, raw: &raw::Tcp, config: &mut Config) -> Result<(), ScenarioError> {
    if let Some(mss) = raw.mss {
        place.check((64..=9000).contains(&mss), "mss", mss, "64 to 9000 bytes")?;
        config.mss = mss;
    }
    if let Some(window) = raw.initial_window {
        let good = (1..=100_000).contains(&window);
        place.check(good, "initial-window", window, "1 to 100,000 segments")?;
        config.initial_window = window;
    }
    let size = |key, text: &Option<String>| {
        let bytes: Option<ByteCount> = place.read(key, text.as_deref())?;
        if let Some(bytes) = bytes {
            let good = (1..=1 << 30).contains(&bytes.get());
            place.check(good, key, bytes, "1 B to 1 GiB")?;
        }
        Ok(bytes)
    };
    set(&mut config.receive_buffer, size("receive-buffer", &raw.receive_buffer)?);
    set(&mut config.send_buffer, size("send-buffer", &raw.send_buffer)?);
    let ssthresh = size("initial-ssthresh", &raw.initial_ssthresh)?;
    config.initial_ssthresh = ssthresh.or(config.initial_ssthresh);
    Ok(())
}

fn switches(raw: &raw::Tcp, config: &mut Config) {
    set(&mut config.window_scaling, raw.window_scaling);
    set(&mut config.timestamps, raw.timestamps);
    set(&mut config.sack, raw.sack);
    set(&mut config.dsack, raw.dsack);
    set(&mut config.ecn, raw.ecn);
    set(&mut config.nagle, raw.nagle);
    set(&mut config.limited_transmit, raw.limited_transmit);
    set(&mut config.frto, raw.frto);
    set(&mut config.eifel, raw.eifel);
    set(&mut config.dsack_undo, raw.dsack_undo);
    set(&mut config.pacing, raw.pacing);
    set(&mut config.restart_after_idle, raw.restart_after_idle);
    set(&mut config.acks.quick, raw.ack_quick);
    set(&mut config.acks.after_slow_start, raw.daass);
}

fn acknowledgements(
    place: &Place,
    raw: &raw::Tcp,
    config: &mut Config,
) -> Result<(), ScenarioError> {
    match raw.ack_delay.as_deref() {
        Some("none") => config.acks.delay = None,
        text => config.acks.delay = place.time("ack-delay", text)?.or(config.acks.delay),
    }
    if let Some(every) = raw.ack_every {
        place.check((1..=1000).contains(&every), "ack-every", every, "1 to 1000 segments")?;
        config.acks.every = every;
    }
    let Some(counting) = &raw.counting else { return Ok(()) };
    config.counting = match counting.split_once(' ') {
        None if counting == "acks" => Counting::Acks,
        None if counting == "bytes" => Counting::Bytes { limit: None },
        Some(("bytes", limit)) if limit.parse::<u32>().is_ok_and(|limit| limit > 0) => {
            Counting::Bytes { limit: limit.parse().ok() }
        }
        _ => {
            let expected = "\"acks\", \"bytes\" or \"bytes 2\" (the limit L)";
            return Err(place.wrong("counting", quoted(counting), expected));
        }
    };
    Ok(())
}

fn recovery(place: &Place, raw: &raw::Tcp, config: &mut Config) -> Result<(), ScenarioError> {
    if let Some(detection) = &raw.detection {
        let words = [
            ("dup-acks", Detection::DupAcks),
            ("sack", Detection::Sack),
            ("fack", Detection::Fack),
            ("rack", Detection::Rack { tlp: false }),
            ("rack-tlp", Detection::Rack { tlp: true }),
        ];
        config.detection = place.word("detection", detection, &words)?;
    }
    if let Some(recovery) = &raw.recovery {
        let words = [
            ("go-back-n", FastRecovery::GoBackN),
            ("reno", FastRecovery::Reno),
            ("newreno", FastRecovery::NewReno),
        ];
        config.recovery = Some(place.word("recovery", recovery, &words)?);
    }
    if let Some(prr) = &raw.prr {
        let words = [
            ("off", None),
            ("conservative", Some(PrrBound::Conservative)),
            ("slow-start", Some(PrrBound::SlowStart)),
        ];
        config.prr = place.word("prr", prr, &words)?;
    }
    Ok(())
}

fn times(place: &Place, raw: &raw::Tcp, config: &mut Config) -> Result<(), ScenarioError> {
    set(&mut config.rto.initial, place.time("rto-initial", raw.rto_initial.as_deref())?);
    set(&mut config.rto.min, place.time("rto-min", raw.rto_min.as_deref())?);
    set(&mut config.rto.max, place.time("rto-max", raw.rto_max.as_deref())?);
    place.check(
        config.rto.min <= config.rto.max && !config.rto.max.is_zero(),
        "rto-min",
        units::format_duration(config.rto.min),
        "at most rto-max, which is above 0",
    )
}
