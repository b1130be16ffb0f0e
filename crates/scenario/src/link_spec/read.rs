//! Validates the values of a link.

use core::fmt::Display;
use core::time::Duration;

use link::{
    Delay, DisciplineChoice, Encapsulation, ErrorModel, Jitter, LossModel, Outage, Policer,
    QueueSize, Rate, Trace, TraceValue,
};
use units::{BitRate, ByteCount, Probability, format_duration};

use super::acm::{AcmSpec, RawAcm};
use super::raw::RawLink;
use super::{LinkSpec, OrNone, RateSpec};
use crate::TraceFault;
use crate::trace::{Source, parse_rates, parse_values};
use config::FileError;
use config::file::place::KeyContext;
use config::file::text::Text;

const GREATEST_RATE: BitRate = BitRate::from_mbit(1_000_000);
const GREATEST_DELAY: Duration = Duration::from_secs(60);
const GREATEST_OVERHEAD: ByteCount = ByteCount::new(1000);
/// Least burst of a policer: a full packet, or that would never pass.
const LEAST_BURST: ByteCount = ByteCount::new(1500);
/// Least mean time from burst to burst. More frequent bursts amount to losses of single packets.
const LEAST_CYCLE: Duration = Duration::from_millis(1);

/// The validated values of a link that were given; the others are `None`.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkChanges {
    rate: Option<RateSpec>,
    encapsulation: Option<Encapsulation>,
    delay: Option<Delay>,
    jitter: Option<Jitter>,
    loss: Option<LossModel>,
    outages: Option<Vec<Outage>>,
    policer: Option<OrNone<Policer>>,
    queue: Option<QueueSize>,
    discipline: Option<DisciplineChoice>,
    ecn: Option<bool>,
}

impl LinkSpec {
    /// Reads a complete link.
    pub(crate) fn read(place: &KeyContext<'_>, raw: RawLink) -> Result<Self, FileError> {
        let changes = LinkChanges::read(place, raw)?;
        let rate =
            || place.missing_key("rate", "a rate, such as \"50 Mbit/s\", a rate-trace or acm");
        let delay =
            || place.missing_key("delay", "a duration, such as \"300 ms\", or a delay-trace");
        let queue = || place.missing_key("queue", "\"1 BDP\", \"100 packets\" or a size");
        let link = Self {
            rate: changes.rate.ok_or_else(rate)?,
            encapsulation: changes.encapsulation.unwrap_or_default(),
            delay: changes.delay.ok_or_else(delay)?,
            jitter: changes.jitter.unwrap_or_default(),
            loss: changes.loss.unwrap_or(LossModel::None),
            outages: changes.outages.unwrap_or_default(),
            policer: changes.policer.and_then(|OrNone(policer)| policer),
            queue: changes.queue.ok_or_else(queue)?,
            discipline: changes.discipline.unwrap_or_default(),
            ecn: changes.ecn.unwrap_or_default(),
        };
        link.check_marking(place).map(|()| link)
    }

    /// Checks that ECN is only enabled for a discipline that can mark.
    pub(crate) fn check_marking(&self, place: &KeyContext<'_>) -> Result<(), FileError> {
        let marks = matches!(
            self.discipline,
            DisciplineChoice::Red { .. } | DisciplineChoice::CoDel { .. }
        );
        let good = !self.ecn || marks;
        let value = format!("true with {}", self.discipline);
        place.check(good, "ecn", value, "a discipline that marks: red or codel")
    }

    /// Replaces the values that `changes` has.
    pub(crate) fn change(&mut self, changes: LinkChanges) {
        fn set<T>(value: &mut T, new: Option<T>) {
            if let Some(new) = new {
                *value = new;
            }
        }
        set(&mut self.rate, changes.rate);
        set(&mut self.encapsulation, changes.encapsulation);
        set(&mut self.delay, changes.delay);
        set(&mut self.jitter, changes.jitter);
        set(&mut self.loss, changes.loss);
        set(&mut self.outages, changes.outages);
        set(&mut self.policer, changes.policer.map(|OrNone(policer)| policer));
        set(&mut self.queue, changes.queue);
        set(&mut self.discipline, changes.discipline);
        set(&mut self.ecn, changes.ecn);
    }
}

impl LinkChanges {
    /// Validates the given values.
    pub(crate) fn read(place: &KeyContext<'_>, raw: RawLink) -> Result<Self, FileError> {
        Ok(Self {
            // First, because it borrows all of `raw`, which the others take apart.
            loss: loss(place, &raw)?,
            rate: rate(place, own(raw.rate), raw.rate_trace.as_ref(), raw.acm)?,
            encapsulation: encapsulation(place, own(raw.encapsulation))?,
            delay: delay(place, raw.delay.map(|text| text.0.0), raw.delay_trace.as_ref())?,
            jitter: jitter(place, own(raw.jitter))?,
            outages: raw.outages.map(|all| all.into_iter().map(|text| text.0).collect()),
            policer: policer(place, own(raw.policer))?,
            queue: own(raw.queue),
            discipline: own(raw.discipline),
            ecn: raw.ecn,
        })
    }
}

pub(super) fn own<T>(text: Option<Text<T>>) -> Option<T> {
    text.map(|text| text.0)
}

fn rate(
    place: &KeyContext<'_>,
    rate: Option<BitRate>,
    source: Option<&Source>,
    acm: Option<RawAcm>,
) -> Result<Option<RateSpec>, FileError> {
    let table = acm.as_ref().map(|_| "a table");
    place.one_of([("rate", text(rate)), ("rate-trace", text(source)), ("acm", text(table))])?;
    let (key, rate) = match (rate, source, acm) {
        (Some(rate), ..) => ("rate", Rate::Constant(rate)),
        (_, Some(source), _) => ("rate-trace", read(place, "rate-trace", source, parse_rates)?),
        (.., Some(acm)) => {
            let acm = AcmSpec::read(&place.within("acm"), acm)?;
            // No check of the rate: it follows from the symbol rate, which has bounds.
            return Ok(Some(RateSpec::Acm(Box::new(acm))));
        }
        (None, None, None) => return Ok(None),
    };
    // Only the greatest rate is bounded: a trace may stop the link for a while.
    let greatest = rate.greatest();
    let value = if source.is_some() { format!("up to {greatest}") } else { greatest.to_string() };
    place.check(is_possible(greatest), key, value, possible_rates())?;
    Ok(Some(rate.into()))
}

/// Checks that a link may have this rate.
pub(crate) fn check_rate(
    place: &KeyContext<'_>,
    key: &str,
    rate: BitRate,
) -> Result<(), FileError> {
    place.check(is_possible(rate), key, rate, possible_rates())
}

fn is_possible(rate: BitRate) -> bool {
    rate.bits_per_second() > 0 && rate <= GREATEST_RATE
}

fn possible_rates() -> String {
    format!("above 0, at most {GREATEST_RATE}")
}

fn delay(
    place: &KeyContext<'_>,
    delay: Option<Duration>,
    source: Option<&Source>,
) -> Result<Option<Delay>, FileError> {
    place.one_of([("delay", delay.map(format_duration)), ("delay-trace", text(source))])?;
    let (key, delay) = match (delay, source) {
        (Some(delay), _) => ("delay", Delay::Constant(delay)),
        (_, Some(source)) => ("delay-trace", Delay::Trace(trace(place, "delay-trace", source)?)),
        (None, None) => return Ok(None),
    };
    check_delay(place, key, delay.greatest()).map(|()| Some(delay))
}

fn jitter(place: &KeyContext<'_>, jitter: Option<Jitter>) -> Result<Option<Jitter>, FileError> {
    check_delay(place, "jitter", jitter.unwrap_or_default().greatest()).map(|()| jitter)
}

fn check_delay(place: &KeyContext<'_>, key: &str, delay: Duration) -> Result<(), FileError> {
    let expected = format!("at most {}", format_duration(GREATEST_DELAY));
    place.check(delay <= GREATEST_DELAY, key, format_duration(delay), expected)
}

fn policer(
    place: &KeyContext<'_>,
    policer: Option<OrNone<Policer>>,
) -> Result<Option<OrNone<Policer>>, FileError> {
    if let Some(OrNone(Some(policer))) = policer {
        place.check(is_possible(policer.rate), "policer", policer.rate, possible_rates())?;
        let expected = format!("a burst of at least {LEAST_BURST}, a packet");
        place.check(policer.burst >= LEAST_BURST, "policer", policer.burst, expected)?;
    }
    Ok(policer)
}

fn encapsulation(
    place: &KeyContext<'_>,
    encapsulation: Option<Encapsulation>,
) -> Result<Option<Encapsulation>, FileError> {
    if let Some(Encapsulation::Fixed(overhead)) = encapsulation {
        let expected = format!("at most fixed {GREATEST_OVERHEAD}");
        let value = format!("fixed {overhead}");
        place.check(overhead <= GREATEST_OVERHEAD, "encapsulation", value, expected)?;
    }
    Ok(encapsulation)
}

fn loss(place: &KeyContext<'_>, raw: &RawLink) -> Result<Option<LossModel>, FileError> {
    let burst = raw.burst.map(|words| words.0);
    let chain = raw.gilbert_elliott.map(|words| words.0);
    let [per, ber] = [raw.per, raw.ber].map(|rate| own(rate).map(Probability::from));
    place.one_of([
        ("per", text(per)),
        ("ber", text(ber)),
        ("burst", text(burst)),
        ("gilbert-elliott", text(chain)),
        ("loss-period", text(raw.loss_period)),
        ("loss-trace", text(raw.loss_trace.as_ref())),
    ])?;
    // At most one model is given, so the order of the arms does not matter.
    Ok(match (burst, chain, raw.loss_period, &raw.loss_trace) {
        (Some(burst), ..) => Some(bursts(place, burst)?),
        (_, Some(chain), ..) => Some(LossModel::GilbertElliott(chain)),
        (_, _, Some(period), _) => Some(LossModel::Periodic(period)),
        (.., Some(source)) => Some(LossModel::Trace(trace(place, "loss-trace", source)?)),
        _ => single_losses(per, ber),
    })
}

fn bursts(place: &KeyContext<'_>, model: ErrorModel) -> Result<LossModel, FileError> {
    let good = model.burst().is_none_or(|burst| burst.mean_cycle() >= LEAST_CYCLE);
    let expected = format!("at least {} from burst to burst", format_duration(LEAST_CYCLE));
    place.check(good, "burst", model, expected).map(|()| model.into())
}

/// Returns the model of independent losses of single packets.
fn single_losses(per: Option<Probability>, ber: Option<Probability>) -> Option<LossModel> {
    match (per, ber) {
        (None, None) => None,
        // Zero is how an option or a case switches off a preset's losses.
        (Some(Probability::ZERO), _) | (_, Some(Probability::ZERO)) => Some(LossModel::None),
        (Some(per), _) => Some(LossModel::Per(per)),
        (None, Some(ber)) => Some(LossModel::Ber(ber)),
    }
}

pub(super) fn trace<T: TraceValue>(
    place: &KeyContext<'_>,
    key: &str,
    source: &Source,
) -> Result<Trace<T>, FileError> {
    read(place, key, source, parse_values)
}

fn read<T>(
    place: &KeyContext<'_>,
    key: &str,
    source: &Source,
    parse: impl FnOnce(&str) -> Result<T, TraceFault>,
) -> Result<T, FileError> {
    let text = source.read(place.folder());
    text.and_then(|text| parse(&text)).map_err(|cause| FileError::Trace {
        at: place.at(key),
        key: place.key(key),
        value: source.to_string(),
        cause: Box::new(cause),
    })
}

fn text(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}
