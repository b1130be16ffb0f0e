//! Links of a scenario.

use core::time::Duration;

use link::{
    Delay, Discipline, DisciplineChoice, Encapsulation, ErrorModel, GilbertElliott, Jitter,
    LinkConfig, Loss, Outage, QueueSize, Rate, Trace,
};
use units::{BitRate, Probability};

use super::error::{Place, ScenarioError};
use super::raw;

const MTU: u16 = 1500;

/// One direction of a link. Its queue size may depend on the other direction.
#[derive(Debug, Clone)]
pub(super) struct Direction {
    pub(super) rate: Rate,
    delay: Delay,
    encapsulation: Encapsulation,
    jitter: Jitter,
    loss: Loss,
    outages: Vec<Outage>,
    queue: QueueSize,
    discipline: DisciplineChoice,
    ecn: bool,
}

impl Direction {
    pub(super) fn read(place: &Place, raw: &raw::Direction) -> Result<Self, ScenarioError> {
        let text = |value: &'_ Option<String>| value.clone();
        let ecn = raw.ecn.unwrap_or_default();
        let discipline: DisciplineChoice =
            place.read("discipline", raw.discipline.as_deref())?.unwrap_or_default();
        place.check(
            !ecn || discipline != DisciplineChoice::DropTail,
            "ecn",
            "true with drop-tail",
            "a discipline that marks: red or codel",
        )?;
        let outages = raw.outages.iter().flatten();
        let outages = outages.map(|line| place.read("outages", Some(line)));
        Ok(Self {
            rate: rate(place, raw)?,
            delay: delay(place, raw)?,
            encapsulation: place
                .read("encapsulation", text(&raw.encapsulation).as_deref())?
                .unwrap_or_default(),
            jitter: place.read("jitter", raw.jitter.as_deref())?.unwrap_or_default(),
            loss: loss(place, raw)?,
            outages: outages.filter_map(Result::transpose).collect::<Result<_, _>>()?,
            queue: place
                .read("queue", raw.queue.as_deref())?
                .ok_or_else(|| place.missing("queue", "\"1 BDP\", \"100 packets\" or a size"))?,
            discipline,
            ecn,
        })
    }

    pub(super) fn greatest_delay(&self) -> Duration {
        self.delay.greatest()
    }

    /// The link, as part of a path with this round-trip time.
    pub(super) fn config(&self, rtt: Duration) -> LinkConfig {
        let rate = self.rate.greatest();
        let queue = self.queue.limit(rate, rtt, MTU);
        let discipline: Discipline = self.discipline.on(rate, rtt, MTU, self.ecn);
        let (rate, delay) = (self.rate.clone(), self.delay.clone());
        LinkConfig {
            encapsulation: self.encapsulation,
            jitter: self.jitter,
            outages: self.outages.clone(),
            discipline,
            ..LinkConfig::new(rate, delay, self.loss.clone(), queue)
        }
    }
}

fn rate(place: &Place, raw: &raw::Direction) -> Result<Rate, ScenarioError> {
    let rate = match (&raw.rate, &raw.rate_trace) {
        (Some(_), Some(_)) => {
            return Err(place.wrong("rate-trace", "a list", "rate or rate-trace"));
        }
        (None, Some(lines)) => Rate::Trace(trace(place, "rate-trace", lines)?),
        (rate, None) => {
            let rate: Option<BitRate> = place.read("rate", rate.as_deref())?;
            rate.ok_or_else(|| place.missing("rate", "a rate, such as \"50 Mbit/s\""))?.into()
        }
    };
    let greatest = rate.greatest();
    let good = greatest.bits_per_second() > 0 && greatest <= BitRate::from_mbit(1_000_000);
    place.check(good, "rate", greatest, "above 0, at most 1000 Gbit/s")?;
    Ok(rate)
}

fn delay(place: &Place, raw: &raw::Direction) -> Result<Delay, ScenarioError> {
    let delay: Delay = match (&raw.delay, &raw.delay_trace) {
        (Some(_), Some(_)) => {
            return Err(place.wrong("delay-trace", "a list", "delay or delay-trace"));
        }
        (None, Some(lines)) => Delay::Trace(trace(place, "delay-trace", lines)?),
        (delay, None) => place
            .time("delay", delay.as_deref())?
            .ok_or_else(|| place.missing("delay", "a duration, such as \"300 ms\""))?
            .into(),
    };
    let good = delay.greatest() <= Duration::from_secs(60);
    place.check(good, "delay", units::format_duration(delay.greatest()), "at most 60 s")?;
    Ok(delay)
}

fn loss(place: &Place, raw: &raw::Direction) -> Result<Loss, ScenarioError> {
    let per: Option<Probability> = place.read("per", raw.per.as_deref())?;
    let ber: Option<Probability> = place.read("ber", raw.ber.as_deref())?;
    let burst: Option<ErrorModel> = place.read("burst", raw.burst.as_deref())?;
    let chain: Option<GilbertElliott> =
        place.read("gilbert-elliott", raw.gilbert_elliott.as_deref())?;
    let lines = raw.loss_trace.as_ref();
    let all = [
        per.map(|per| if per == Probability::ZERO { Loss::None } else { Loss::Per(per) }),
        ber.map(|ber| if ber == Probability::ZERO { Loss::None } else { Loss::Ber(ber) }),
        burst.map(Loss::from),
        chain.map(Loss::GilbertElliott),
        raw.loss_period.map(Loss::Periodic),
        lines.map(|lines| trace(place, "loss-trace", lines)).transpose()?.map(Loss::Trace),
    ];
    let mut given = all.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(_), Some(_)) => Err(place.wrong(
            "per, ber, burst, gilbert-elliott, loss-period, loss-trace",
            "several",
            "only one of them",
        )),
        (loss, _) => Ok(loss.unwrap_or(Loss::None)),
    }
}

fn trace<T: link::TraceValue>(
    place: &Place,
    key: &str,
    lines: &[String],
) -> Result<Trace<T>, ScenarioError> {
    Trace::parse(&lines.join("\n")).map_err(|error| place.unreadable(key, error))
}
