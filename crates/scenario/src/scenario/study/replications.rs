//! Replications: the seeds with which each case is run.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;

use super::metrics::MetricName;
use super::raw::{RawReplications, RawSeeds, RawUntil};
use crate::scenario::ScenarioCase;
use config::FileError;
use config::file::place::KeyContext;

/// Maximum number of seeds of a case.
const MOST_SEEDS: u32 = 10_000;

/// The seeds with which each case is run.
#[derive(Debug, Clone, PartialEq)]
pub enum Replications {
    /// These 1 to 10,000 different seeds, in this order.
    Seeds(Vec<u64>),
    /// Consecutive seeds, until a metric is precise enough.
    Until(StopRule),
}

/// A rule that stops the replications of a case as soon as both ends of a confidence interval are
/// within a fraction of the statistic. Law, *Simulation Modeling and Analysis*, 5th ed., 9.4.1,
/// describes the relative precision of means; as there, an interval that decides when to stop covers
/// the true value a little less often than its level says.
#[derive(Debug, Clone, PartialEq)]
pub struct StopRule {
    /// The metric.
    pub name: MetricName,
    /// The statistic whose interval decides.
    pub statistic: Statistic,
    /// The level of confidence, above 0.5 and below 1.
    pub confidence: f64,
    /// Greatest distance of an end of the interval from the statistic, as a fraction of the statistic;
    /// above 0.
    pub within: f64,
    /// Minimum number of seeds, 2 or more.
    pub least: u32,
    /// Maximum number of seeds, `least` to 10,000, after which a case stops anyway.
    pub most: u32,
    /// The first seed.
    pub first: u64,
}

/// The statistic that a confidence interval is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Statistic {
    /// The mean; its interval is Student's t.
    #[default]
    Mean,
    /// The median; its interval assumes no distribution.
    Median,
}

impl Default for Replications {
    /// One run with seed 1.
    fn default() -> Self {
        Self::Seeds(vec![1])
    }
}

impl Replications {
    /// Returns `count` consecutive seeds from `first` up, fewer if they would exceed `u64::MAX`.
    pub fn from_first(first: u64, count: u32) -> Self {
        Self::Seeds((0..u64::from(count)).map_while(|next| first.checked_add(next)).collect())
    }

    /// Returns all seeds that a case may need, in the order in which they are used.
    pub fn seeds(&self) -> Vec<u64> {
        match self {
            Self::Seeds(seeds) => seeds.clone(),
            // Does not overflow: `read` has limited `first`.
            Self::Until(StopRule { first, most, .. }) => (*first..).take(*most as usize).collect(),
        }
    }

    /// Returns the number of seeds, from the first, that every case needs.
    pub fn least(&self) -> usize {
        match self {
            Self::Seeds(seeds) => seeds.len(),
            Self::Until(rule) => rule.least as usize,
        }
    }

    pub(super) fn read(
        place: &KeyContext<'_>,
        raw: &RawReplications,
        cases: &[ScenarioCase],
    ) -> Result<Self, FileError> {
        let first = raw.first.unwrap_or(1);
        // TOML's integers are signed 64-bit numbers.
        let good = first <= i64::MAX as u64 - u64::from(MOST_SEEDS);
        place.check(good, "first", first, "a smaller number")?;
        if let Some(until) = &raw.until {
            let good = raw.seeds.is_none();
            place.check(good, "seeds", "a value", "either seeds or until, not both")?;
            return StopRule::read(&place.within("until"), until, first, cases).map(Self::Until);
        }
        let expected = "1 to 10,000 seeds, none twice";
        match &raw.seeds {
            None => Ok(Self::Seeds(vec![first])),
            Some(RawSeeds::Number(count)) => {
                let good = (1..=MOST_SEEDS).contains(count);
                place.check(good, "seeds", count, expected)?;
                Ok(Self::from_first(first, *count))
            }
            Some(RawSeeds::List(seeds)) => {
                let new = raw.first.is_none();
                place.check(new, "first", first, "a number of seeds with it, not a list")?;
                let different = seeds.iter().collect::<BTreeSet<_>>().len() == seeds.len();
                let good = different && (1..=MOST_SEEDS as usize).contains(&seeds.len());
                place.check(good, "seeds", format!("a list of {}", seeds.len()), expected)?;
                Ok(Self::Seeds(seeds.clone()))
            }
        }
    }
}

impl StopRule {
    fn read(
        place: &KeyContext<'_>,
        raw: &RawUntil,
        first: u64,
        cases: &[ScenarioCase],
    ) -> Result<Self, FileError> {
        let name = MetricName::read(place, &raw.of, &raw.metric, cases)?;
        let within = raw.within.0.get();
        place.check(within > 0.0, "within", raw.within.0, "above 0")?;
        let confidence = raw.confidence.map_or(0.95, |confidence| confidence.0.get());
        let good = 0.5 < confidence && confidence < 1.0;
        place.check(good, "confidence", confidence, "above 50 % and below 100 %")?;
        let least = raw.least.unwrap_or(10);
        let most = raw.most.unwrap_or(200);
        // A limit that is given alone moves the default of the other one.
        let least = if raw.least.is_none() { least.min(most) } else { least };
        let most = if raw.most.is_none() { most.max(least) } else { most };
        // A single value has no interval.
        place.check((2..=MOST_SEEDS).contains(&least), "least", least, "2 to 10,000")?;
        let good = (least..=MOST_SEEDS).contains(&most);
        place.check(good, "most", most, format!("{least}, as least, to 10,000"))?;
        Ok(Self { name, statistic: raw.statistic, confidence, within, least, most, first })
    }
}
