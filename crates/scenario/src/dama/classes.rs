//! `[dama.terminal.classes]`: the kind of capacity that each class of traffic uses.

use link::TrafficClass;
use link::dama::{CapacityKind, ClassCapacities};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::raw::RawDamaTerminal;
use config::FileError;
use config::file::place::{KeyContext, quoted};

/// Kind of capacity that each class of traffic uses. A terminal that can request only rates, or only
/// volumes, uses them for both by default.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DamaClasses")]
pub(super) struct RawClasses {
    /// Network control (CS6, CS7), and SLACP's control packets.
    #[schemars(extend("default" = "rbdc"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<RawCategory>,
    /// Voice (EF, VA, CS5).
    #[schemars(extend("default" = "rbdc"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    voice: Option<RawCategory>,
    /// Streams (CS3, CS4, AF3x, AF4x).
    #[schemars(extend("default" = "rbdc"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<RawCategory>,
    /// Everything else.
    #[schemars(extend("default" = "vbdc"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    bulk: Option<RawCategory>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum RawCategory {
    Cra,
    Rbdc,
    Vbdc,
}

impl From<RawCategory> for CapacityKind {
    fn from(raw: RawCategory) -> Self {
        match raw {
            RawCategory::Cra => Self::Cra,
            RawCategory::Rbdc => Self::Rbdc,
            RawCategory::Vbdc => Self::Vbdc,
        }
    }
}

impl From<CapacityKind> for RawCategory {
    fn from(category: CapacityKind) -> Self {
        match category {
            CapacityKind::Cra => Self::Cra,
            CapacityKind::Rbdc => Self::Rbdc,
            CapacityKind::Vbdc => Self::Vbdc,
        }
    }
}

impl RawClasses {
    /// Returns the categories that differ from the defaults; `None` if all are defaults.
    pub(super) fn of(categories: ClassCapacities) -> Option<Self> {
        let other = |class| {
            let category = categories.of(class);
            // A default that is written would be checked, and may be a kind that the terminal lacks.
            (category != ClassCapacities::default().of(class)).then_some(category.into())
        };
        (categories != ClassCapacities::default()).then(|| Self {
            control: other(TrafficClass::Control),
            voice: other(TrafficClass::Voice),
            streams: other(TrafficClass::Stream),
            bulk: other(TrafficClass::Bulk),
        })
    }

    fn all(self) -> [(&'static str, TrafficClass, Option<RawCategory>); TrafficClass::COUNT] {
        [
            ("control", TrafficClass::Control, self.control),
            ("voice", TrafficClass::Voice, self.voice),
            ("streams", TrafficClass::Stream, self.streams),
            ("bulk", TrafficClass::Bulk, self.bulk),
        ]
    }
}

/// Reads the table.
///
/// # Errors
/// If a class uses a kind of capacity that the terminal does not have.
pub(super) fn read(
    place: &KeyContext<'_>,
    terminal: &RawDamaTerminal,
) -> Result<ClassCapacities, FileError> {
    let mut categories = ClassCapacities::default();
    for (key, class, category) in terminal.classes.unwrap_or_default().all() {
        // Defaults are not checked: a terminal with only rates, or only volumes, uses them for all.
        let Some(category) = category.map(CapacityKind::from) else { continue };
        let (name, has_any) = match category {
            CapacityKind::Cra => {
                ("cra", terminal.cra.is_some_and(|rate| rate.0.bits_per_second() > 0))
            }
            CapacityKind::Rbdc => {
                ("rbdc", terminal.rbdc.is_some_and(|rate| rate.0.bits_per_second() > 0))
            }
            CapacityKind::Vbdc => ("vbdc", terminal.vbdc.is_some_and(|cells| cells > 0)),
        };
        let expected = format!("a kind of capacity that the terminal has: {name} is 0");
        place.check(has_any, key, quoted(name), expected)?;
        categories = categories.with(class, category);
    }
    Ok(categories)
}
