//! Factors and cases as written in a scenario file.

use core::fmt;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::IgnoredAny;

use config::file::tcp_options::OptionValue;

/// A factor of an experiment: either `levels`, or `values` or a `range` of one key or several.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Factor")]
pub(in crate::scenario) struct RawFactor {
    /// Its name.
    pub(in crate::scenario) name: String,
    /// Its levels, each with keys of its own.
    #[schemars(length(min = 1))]
    pub(in crate::scenario) levels: Option<Vec<RawLevel>>,
    /// The key that `values` or `range` are for.
    #[schemars(extend("examples" = ["hop.forward.rate", "flow.0.bytes"]))]
    pub(in crate::scenario) key: Option<String>,
    /// Several keys that get the same value, instead of `key`.
    #[schemars(extend("examples" = [["hop.forward.burst", "hop.return.burst"]]))]
    pub(in crate::scenario) keys: Option<Vec<String>>,
    /// The values, one for each level.
    #[schemars(length(min = 1), extend("examples" = [["1 Mbit/s", "10 Mbit/s"], [1, 2, 4]]))]
    pub(in crate::scenario) values: Option<Vec<OptionValue>>,
    /// Values at regular distances, instead of `values`.
    pub(in crate::scenario) range: Option<RawRange>,
    /// The name of a level with a value, `{}`. By default a text is the name, and of other values
    /// the factor's name with the value.
    #[schemars(extend("examples" = ["buffer {}"]))]
    pub(in crate::scenario) label: Option<String>,
    /// An earlier factor that this one varies with: level by level, instead of all combinations.
    pub(in crate::scenario) with: Option<String>,
}

/// Values at regular distances. `from`, `to` and `step` have the same unit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Range")]
pub(in crate::scenario) struct RawRange {
    /// The first value.
    #[schemars(extend("examples" = [1, "1 Mbit/s"]))]
    pub(in crate::scenario) from: RawNumber,
    /// The greatest value; with `step`, possibly between the last two.
    #[schemars(extend("examples" = [10, "100 Mbit/s"]))]
    pub(in crate::scenario) to: RawNumber,
    /// Difference between values. Either this or `count`.
    #[schemars(extend("examples" = [1, "5 Mbit/s"]))]
    pub(in crate::scenario) step: Option<RawNumber>,
    /// Number of values, 2 or more.
    #[schemars(range(min = 2))]
    pub(in crate::scenario) count: Option<u32>,
    /// With `count`: `linear` for equal differences between values, `log` for equal ratios. Values of a
    /// log scale are rounded to four digits.
    #[serde(default)]
    pub(in crate::scenario) scale: Scale,
}

/// Spacing of values: equal differences or equal ratios.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(in crate::scenario) enum Scale {
    #[default]
    Linear,
    Log,
}

/// A number, or a text of a number and its unit.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a text of a number and a unit")]
#[schemars(inline)]
pub(in crate::scenario) enum RawNumber {
    Whole(i64),
    Number(f64),
    Text(String),
}

/// Writes the number as in the file.
impl fmt::Display for RawNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// One level or several.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected the name of a level, or a list of names")]
#[schemars(inline)]
pub(in crate::scenario) enum RawLevels {
    One(String),
    Several(Vec<String>),
}

/// A level of a factor.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Level")]
pub(in crate::scenario) struct RawLevel {
    /// Its part of the names of cases; one level of a factor may have none.
    #[serde(default)]
    pub(in crate::scenario) name: String,
    /// New values by key, such as `"flow.0.bytes"`.
    #[serde(default)]
    #[schemars(schema_with = "any_table", default)]
    #[expect(dead_code, reason = "the values are taken from the document, with their lines")]
    pub(in crate::scenario) set: BTreeMap<String, IgnoredAny>,
}

/// A scenario that differs from the file in some keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Case")]
pub(in crate::scenario) struct RawCase {
    /// Its name.
    pub(in crate::scenario) name: String,
    /// New values by key, such as `"flow.0.bytes"`.
    #[serde(default)]
    #[schemars(schema_with = "any_table", default)]
    #[expect(dead_code, reason = "the values are taken from the document, with their lines")]
    pub(in crate::scenario) set: BTreeMap<String, IgnoredAny>,
}

fn any_table(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}
