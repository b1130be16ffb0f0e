//! Published values, from `published.toml`.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    /// Mean windows.
    pub(crate) response: Vec<Response>,
    /// Goodputs over GEO in another simulator.
    pub(crate) band: Vec<Band>,
}

/// A mean window from a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Response {
    pub(crate) controller: String,
    /// Seconds.
    pub(crate) rtt: f64,
    pub(crate) p: f64,
    /// Segments.
    pub(crate) window: f64,
    #[serde(rename = "where")]
    pub(crate) place: String,
}

/// A goodput and its spread over seeds, in Mbit/s.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Band {
    pub(crate) controller: String,
    pub(crate) per: f64,
    pub(crate) mean: f64,
    /// Standard deviation; absent for a single run.
    #[serde(default)]
    pub(crate) sd: f64,
    /// How ours differs, if it does.
    #[serde(default)]
    pub(crate) differs: Option<Difference>,
}

/// A difference that is known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    /// Ours, as a multiple of the published value.
    pub(crate) ratio: f64,
    pub(crate) why: String,
}

pub(crate) fn read() -> Published {
    toml::from_str(include_str!("../published.toml")).expect("published.toml")
}
