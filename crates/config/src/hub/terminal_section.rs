//! Section `[[terminal]]` of a hub, and the file of a permit.

use std::collections::BTreeMap;

use pep::accounting::{ExhaustedAction, RenewalPeriod};
use pep::egress::EgressTarget;
use pep::traffic::Prefix;
use schemars::JsonSchema;
use serde::Deserialize;
use units::{BitRate, ByteCount, UnixTime};

use crate::file::text::Text;
use crate::values::bounded::{Memory, Number};
use crate::values::{PublicKeyText, RateChoice};

/// A terminal that may connect.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "PermittedTerminal",
    title = "A terminal of a skyhop hub",
    extend("oneOf" = [{ "required": ["key"] }, { "required": ["invite"] }])
)]
pub(crate) struct PermittedTerminalSection {
    /// A unique name for logs and status. In a permit, by default that of its file or etcd key.
    pub(crate) name: Option<String>,
    /// The terminal's public key, which no other terminal has. Give either this or `invite`.
    pub(crate) key: Option<Text<PublicKeyText>>,
    /// The public key of an invitation, in place of a `key` that the terminal is yet to send with `skyhop enrol
    /// join`; see [Let terminals join a hub](enrol.md).
    pub(crate) invite: Option<Text<PublicKeyText>>,
    /// A date, or a date and time in UTC such as `"2027-01-31T12:00:00Z"`, from which the terminal or its
    /// invitation is no longer served. Default: never.
    #[schemars(extend("examples" = ["2027-01-31", "2027-01-31T12:00:00Z"]))]
    pub(crate) expires: Option<Text<UnixTime>>,
    /// Addresses of the terminal's clients (prefixes), which must not overlap with another terminal's. With
    /// `[intercept]` or `transparent` at least one terminal needs some; with `transparent` and `[tunnel]`, every one.
    #[serde(default)]
    #[schemars(extend("examples" = [["10.1.0.0/16", "fd00:1::/64"]]))]
    pub(crate) networks: Vec<Text<Prefix>>,
    /// Destinations that this terminal may reach, instead of those of `[egress]`.
    pub(crate) reach: Option<Vec<Text<EgressTarget>>>,
    /// Destinations that this terminal may not reach, in addition to those of `[egress]`.
    #[serde(default)]
    pub(crate) deny: Vec<Text<EgressTarget>>,
    /// As `carrier` of the hub, for one terminal, on a hub with several carriers or beams. With a name that no
    /// other terminal has, it shares with no other. Default: `carrier` of the hub.
    #[schemars(length(min = 1))]
    pub(crate) carrier: Option<String>,
    /// With `[http] cache`: terminals with the same name share what is stored, and can find out by response times
    /// what the others have asked for. Without a name, a terminal shares with no other. See [A cache at the
    /// hub](http.md#a-cache-at-the-hub).
    #[schemars(length(min = 1))]
    pub(crate) cache: Option<String>,
    /// The terminal's share of the hub's rate, relative to other terminals while they want more than there is.
    /// Others use what it leaves. With `rate = "auto"` it applies among terminals with the same `carrier`;
    /// without one, each terminal measures its own rate.
    #[serde(default)]
    pub(crate) weight: Number<1, 1000, 1>,
    /// A rate towards the terminal that the hub serves before others share by weight; others use what it leaves.
    /// At most `maximum`. With `rate = "auto"` it needs a `carrier`. A fixed `rate` must carry all guarantees
    /// together; beyond a reported or measured one they are scaled.
    #[schemars(extend("examples" = ["1 Mbit/s"]))]
    pub(crate) guaranteed: Option<Text<BitRate>>,
    /// A rate towards the terminal that the hub does not exceed, even if the rest is unused; bursts of 4 ms. All
    /// packets of the session count, with their headers.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(crate) maximum: Option<Text<BitRate>>,
    /// Rates of classes towards the terminal, such as `classes.voice = { guaranteed = "64 kbit/s" }`. What is
    /// missing is as in `[[class]]`.
    #[serde(default)]
    pub(crate) classes: BTreeMap<String, OwnRatesSection>,
    /// The hub's rates towards the terminal on [links](links.md#rates), such as `links = { leo = "5 Mbit/s" }`: a
    /// rate or `"auto"`, from its next session on. What is missing is as in `[[link]]`.
    #[serde(default)]
    pub(crate) links: BTreeMap<String, Text<RateChoice>>,
    /// As `memory` of the hub, for one terminal, from its next session on; its `stream_window` is no larger.
    /// Default: `memory` of the hub.
    pub(crate) memory: Option<Memory>,
    /// `max_connections` of `[limits]` for one terminal. Default: as there.
    pub(crate) max_connections: Option<Number<1, 65_536>>,
    /// `connections_per_second` of `[limits]` for one terminal. Default: as there.
    pub(crate) connections_per_second: Option<Number<1, 1_000_000>>,
    /// `lookups` of `[limits]` for one terminal. Default: as there.
    pub(crate) lookups: Option<Number<1, 128>>,
    /// `quota` of `[limits]` for one terminal. Default: as there.
    #[schemars(extend("examples" = ["50 GB"]))]
    pub(crate) quota: Option<Text<ByteCount>>,
    /// `quota_period` of `[limits]` for one terminal. Default: as there.
    #[schemars(extend("examples" = ["month", "day", "168 h"]))]
    pub(crate) quota_period: Option<Text<RenewalPeriod>>,
    /// `quota_then` of `[limits]` for one terminal. Default: as there.
    #[schemars(extend("examples" = ["block", "256 kbit/s", "bulk"]))]
    pub(crate) quota_then: Option<Text<ExhaustedAction>>,
}

/// Rates of a class towards one terminal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OwnRates")]
pub(crate) struct OwnRatesSection {
    /// As `guaranteed` of the `[[class]]`, towards this terminal. Default: as there.
    #[schemars(extend("examples" = ["64 kbit/s"]))]
    pub(crate) guaranteed: Option<Text<BitRate>>,
    /// As `maximum` of the `[[class]]`, towards this terminal. Default: as there.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(crate) maximum: Option<Text<BitRate>>,
}
