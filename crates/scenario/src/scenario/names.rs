//! The section `[names]` of a scenario: name resolution.

use schemars::JsonSchema;
use serde::Deserialize;
use units::Probability;

use super::raw::RawNames;
use config::FileError;
use config::file::place::KeyContext;

/// The resolver at each terminal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NamesSpec {
    /// Answer to names that are not in its cache.
    pub answer: NameAnswer,
    /// Probability that a name is in its cache.
    pub hit_ratio: Probability,
}

/// Answer of a terminal's resolver to names that are not in its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum NameAnswer {
    /// It asks across the hop.
    #[default]
    Real,
    /// It answers at once with an address of its own; the name crosses with the connection.
    Instant,
}

impl NamesSpec {
    pub(super) fn read(raw: &RawNames) -> Self {
        let hit_ratio = raw.hit_ratio.map_or(Probability::ZERO, |text| text.0);
        Self { answer: raw.answer.unwrap_or_default(), hit_ratio }
    }

    /// Checks that there is a hub to ask and, for instant answers, that connections are split.
    pub(super) fn check(
        self,
        place: &KeyContext<'_>,
        mesh: bool,
        splits: bool,
    ) -> Result<(), FileError> {
        let expected = "no [names]: hubs resolve them";
        place.check(!mesh, "answer", "in a mesh", expected)?;
        let good = splits || self.answer == NameAnswer::Real;
        let expected =
            "\"real\" unless a gateway at the terminal splits connections: split = \"three\"";
        place.check(good, "answer", "\"instant\"", expected)
    }
}
