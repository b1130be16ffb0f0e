//! Turns written values into valid ones.

use core::fmt::Display;
use core::time::Duration;

use link::{Delay, Encapsulation, ErrorModel, Jitter, Loss, Outage, Rate, Trace};
use units::{BitRate, ByteCount, Probability, format_duration};

use super::raw::RawDirection;
use super::text::Text;
use super::trace::{Folder, Source, TraceFault, parse_rates};
use super::{Direction, PresetError};
use crate::{Discipline, Queue, Site};

/// The minimum MTU of a link that carries IPv6 (RFC 8200 §5).
const LEAST_MTU: u16 = 1280;
/// The maximum MTU: no packet link exceeds jumbo frames.
const GREATEST_MTU: u16 = 9216;
const GREATEST_RATE: BitRate = BitRate::from_mbit(10_000);
const GREATEST_DELAY: Duration = Duration::from_secs(60);
const GREATEST_OVERHEAD: ByteCount = ByteCount::new(1000);
/// Bursts that come more often than this amount to losses of single packets.
const LEAST_CYCLE: Duration = Duration::from_millis(1);

/// Reports what is wrong with values from one source.
#[derive(Clone, Copy)]
pub(super) struct Wrong<'a> {
    /// The file, the name of the built-in preset, or the command line.
    pub(super) origin: &'a str,
    /// Prefix of keys: `forward.` or `--`.
    pub(super) prefix: &'a str,
    /// Where traces are.
    pub(super) folder: Folder<'a>,
}

/// The valid values written for a direction.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    pub(super) rate: Option<Rate>,
    pub(super) encapsulation: Option<Encapsulation>,
    pub(super) delay: Option<Delay>,
    pub(super) jitter: Option<Jitter>,
    pub(super) loss: Option<Loss>,
    pub(super) outages: Option<Vec<Outage>>,
    pub(super) queue: Option<Queue>,
    pub(super) discipline: Option<Discipline>,
    pub(super) ecn: Option<bool>,
}

impl Wrong<'_> {
    /// Parses a complete direction.
    pub(super) fn direction(&self, raw: RawDirection) -> Result<Direction, PresetError> {
        let changes = self.changes(raw)?;
        let direction = Direction {
            rate: changes.rate.ok_or_else(|| self.missing("rate", "rate or rate-trace"))?,
            encapsulation: changes.encapsulation.unwrap_or_default(),
            delay: changes.delay.ok_or_else(|| self.missing("delay", "delay or delay-trace"))?,
            jitter: changes.jitter.unwrap_or_default(),
            loss: changes.loss.unwrap_or(Loss::None),
            outages: changes.outages.unwrap_or_default(),
            queue: changes.queue.ok_or_else(|| self.missing("queue", "\"1 BDP\" or a size"))?,
            discipline: changes.discipline.unwrap_or_default(),
            ecn: changes.ecn.unwrap_or_default(),
        };
        self.marking(&direction).map(|()| direction)
    }

    /// Parses the given values of a direction.
    pub(super) fn changes(&self, raw: RawDirection) -> Result<Changes, PresetError> {
        let given = [name("per", &raw.per), name("ber", &raw.ber)];
        let bursts = raw.burst.map(|text| text.0);
        let chain = raw.gilbert_elliott.map(|text| text.0);
        let models = [name("burst", &bursts), name("gilbert-elliott", &chain)];
        let others = [name("loss-period", &raw.loss_period), name("loss-trace", &raw.loss_trace)];
        self.one_of(given.into_iter().chain(models).chain(others))?;
        let own = |text: Text<_>| text.0;
        Ok(Changes {
            rate: self.rate(raw.rate, raw.rate_trace.as_ref())?,
            encapsulation: self.encapsulation(raw.encapsulation.map(own))?,
            delay: self.delay(raw.delay.map(|text| text.0.0), raw.delay_trace.as_ref())?,
            jitter: self.jitter(raw.jitter.map(|text| text.0))?,
            loss: match (bursts, chain, raw.loss_period, raw.loss_trace) {
                (Some(bursts), ..) => Some(self.bursts(bursts)?),
                (_, Some(chain), ..) => Some(Loss::GilbertElliott(chain)),
                (_, _, Some(period), _) => Some(Loss::Periodic(period)),
                (.., Some(source)) => Some(Loss::Trace(self.trace("loss-trace", &source)?)),
                _ => single_losses(raw.per, raw.ber),
            },
            outages: raw.outages.map(|all| all.into_iter().map(|text| text.0).collect()),
            queue: raw.queue.map(|text| text.0),
            discipline: raw.discipline.map(|text| text.0),
            ecn: raw.ecn,
        })
    }

    /// Checks that ECN is only enabled for a discipline that can mark.
    pub(super) fn marking(&self, direction: &Direction) -> Result<(), PresetError> {
        let good = !direction.ecn || direction.discipline != Discipline::DropTail;
        let expected = || "a discipline that marks: red or codel".to_owned();
        self.check(good, "ecn", &format!("true with {}", direction.discipline), expected)
    }

    pub(super) fn terminals(&self, terminals: u8) -> Result<(), PresetError> {
        let good = Site::new(terminals).is_some();
        self.check(good, "terminals", &terminals, || format!("1 to {}", Site::MOST))
    }

    pub(super) fn mtu(&self, mtu: u16) -> Result<(), PresetError> {
        let expected = || format!("{LEAST_MTU} (the least for IPv6) to {GREATEST_MTU}");
        self.check((LEAST_MTU..=GREATEST_MTU).contains(&mtu), "mtu", &mtu, expected)
    }

    fn rate(
        &self,
        rate: Option<BitRate>,
        source: Option<&Source>,
    ) -> Result<Option<Rate>, PresetError> {
        self.one_of([name("rate", &rate), ("rate-trace", source.map(Source::to_string))])?;
        let (key, rate) = match (rate, source) {
            (Some(rate), _) => ("rate", Rate::Constant(rate)),
            (_, Some(source)) => ("rate-trace", self.read("rate-trace", source, parse_rates)?),
            (None, None) => return Ok(None),
        };
        let greatest = rate.greatest();
        let good = greatest.bits_per_second() > 0 && greatest <= GREATEST_RATE;
        let expected = || format!("above 0, at most {GREATEST_RATE}");
        let value =
            if source.is_some() { format!("up to {greatest}") } else { greatest.to_string() };
        self.check(good, key, &value, expected).map(|()| Some(rate))
    }

    fn delay(
        &self,
        delay: Option<Duration>,
        source: Option<&Source>,
    ) -> Result<Option<Delay>, PresetError> {
        let constant = ("delay", delay.map(format_duration));
        self.one_of([constant, ("delay-trace", source.map(Source::to_string))])?;
        let (key, delay) = match (delay, source) {
            (Some(delay), _) => ("delay", Delay::Constant(delay)),
            (_, Some(source)) => ("delay-trace", Delay::Trace(self.trace("delay-trace", source)?)),
            (None, None) => return Ok(None),
        };
        self.short(key, delay.greatest()).map(|()| Some(delay))
    }

    fn jitter(&self, jitter: Option<Jitter>) -> Result<Option<Jitter>, PresetError> {
        self.short("jitter", jitter.unwrap_or_default().greatest()).map(|()| jitter)
    }

    fn short(&self, key: &str, delay: Duration) -> Result<(), PresetError> {
        let expected = || format!("at most {}", format_duration(GREATEST_DELAY));
        self.check(delay <= GREATEST_DELAY, key, &format_duration(delay), expected)
    }

    fn encapsulation(
        &self,
        encapsulation: Option<Encapsulation>,
    ) -> Result<Option<Encapsulation>, PresetError> {
        if let Some(Encapsulation::Fixed(overhead)) = encapsulation {
            let expected = || format!("at most fixed {GREATEST_OVERHEAD}");
            let value = format!("fixed {overhead}");
            self.check(overhead <= GREATEST_OVERHEAD, "encapsulation", &value, expected)?;
        }
        Ok(encapsulation)
    }

    fn bursts(&self, model: ErrorModel) -> Result<Loss, PresetError> {
        let good = model.burst().is_none_or(|burst| burst.mean_cycle() >= LEAST_CYCLE);
        let expected = || format!("at least {} from burst to burst", format_duration(LEAST_CYCLE));
        self.check(good, "burst", &model, expected).map(|()| model.into())
    }

    fn trace<T: link::TraceValue>(
        &self,
        key: &str,
        source: &Source,
    ) -> Result<Trace<T>, PresetError> {
        self.read(key, source, |text| Ok(Trace::parse(text)?))
    }

    fn read<T>(
        &self,
        key: &str,
        source: &Source,
        parse: impl FnOnce(&str) -> Result<T, TraceFault>,
    ) -> Result<T, PresetError> {
        let text = self.folder.read(source);
        text.and_then(|text| parse(&text)).map_err(|cause| PresetError::Trace {
            origin: self.origin.to_owned(),
            key: self.key(key),
            value: source.to_string(),
            cause: Box::new(cause),
        })
    }

    /// Checks that at most one of these is given.
    fn one_of<'k>(
        &self,
        all: impl IntoIterator<Item = (&'k str, Option<String>)>,
    ) -> Result<(), PresetError> {
        let given = all.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let (keys, values): (Vec<_>, Vec<_>) = given.unzip();
        let expected = || "only one of them".to_owned();
        self.check(keys.len() < 2, &keys.join(", "), &values.join(", "), expected)
    }

    fn check(
        &self,
        good: bool,
        key: &str,
        value: &dyn Display,
        expected: impl FnOnce() -> String,
    ) -> Result<(), PresetError> {
        if good {
            return Ok(());
        }
        let (origin, value) = (self.origin.to_owned(), value.to_string());
        Err(PresetError::Value { origin, key: self.key(key), value, expected: expected() })
    }

    fn missing(&self, key: &str, expected: &'static str) -> PresetError {
        PresetError::Missing { origin: self.origin.to_owned(), key: self.key(key), expected }
    }

    /// `--per, --ber`, but `forward.per, ber`.
    fn key(&self, key: &str) -> String {
        let separator = if self.prefix.starts_with("--") { self.prefix } else { "" };
        format!("{}{}", self.prefix, key.replace(", ", &format!(", {separator}")))
    }
}

fn name<'k>(key: &'k str, value: &Option<impl Display>) -> (&'k str, Option<String>) {
    (key, value.as_ref().map(ToString::to_string))
}

/// Independent losses of single packets.
fn single_losses(per: Option<Probability>, ber: Option<Probability>) -> Option<Loss> {
    match (per, ber) {
        (None, None) => None,
        (Some(Probability::ZERO), _) | (_, Some(Probability::ZERO)) => Some(Loss::None),
        (Some(per), _) => Some(Loss::Per(per)),
        (None, Some(ber)) => Some(Loss::Ber(ber)),
    }
}
