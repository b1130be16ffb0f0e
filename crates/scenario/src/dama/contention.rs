//! The `[dama.requests]` and `[dama.random-access]` tables.

use link::dama::random_access::{AccessLimits, AccessScheme, BackoffLimits, BlockError};
use link::dama::{
    ContentionChannel, ContentionError, RandomAccess, RequestPlace, RequestSlots, RequestTransport,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use config::FileError;
use config::file::place::{KeyContext, quoted};
use config::file::text::{Text, Words};

/// Transport of capacity requests to the network control centre. All keys but `transport` are for
/// contention.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "DamaRequests")]
pub(super) struct RawRequests {
    /// assigned: in slots of each terminal's own, outside those that are granted. piggyback: in the
    /// headers of cells in granted slots, or by contention without such a slot. contention: always
    /// by contention.
    transport: RawTransport,
    /// Contention slots in each frame, at its end, on the last carrier that carries grants. They
    /// cannot be granted.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u16>,
    /// Instead of slots: whole carriers for requests, the last ones before those for packets. A
    /// terminal draws one at random for each attempt. Nothing is granted on them.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    carriers: Option<u32>,
    /// Access scheme of these slots: slotted-aloha, dsa REPLICAS, crdsa REPLICAS \[iterations=16\].
    #[schemars(extend("default" = "slotted-aloha", "examples" = ["slotted-aloha", "crdsa 3"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    scheme: Option<Text<AccessScheme>>,
    /// Pauses after a collision, uniform in a window that doubles; and attempts.
    #[schemars(extend("default" = "first=2 greatest=64 attempts=10"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Words<BackoffLimits>>,
    /// The hub announces the probability with which terminals may send.
    #[schemars(extend("default" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    load_control: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum RawTransport {
    Assigned,
    Piggyback,
    Contention,
}

/// Random access for packets: the head of a traffic burst is sent without a request, in slots that
/// all terminals share.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "DamaRandomAccess")]
pub(super) struct RawRandomAccess {
    /// Number of carriers for random access, the last ones. Nothing is granted on them.
    #[schemars(range(min = 1))]
    carriers: u32,
    /// Access scheme in a frame of a carrier: slotted-aloha, dsa REPLICAS, crdsa REPLICAS
    /// \[iterations=16\].
    #[schemars(extend("default" = "slotted-aloha", "examples" = ["slotted-aloha", "crdsa 3"]))]
    scheme: Option<Text<AccessScheme>>,
    /// Pauses after a collision, uniform in a window that doubles; and attempts.
    #[schemars(extend("default" = "first=2 greatest=64 attempts=10"))]
    backoff: Option<Words<BackoffLimits>>,
    /// The hub announces the probability with which terminals may send.
    #[schemars(extend("default" = true))]
    load_control: Option<bool>,
    /// Limits of random access: the first `head` bytes of a burst, while at most `backlog` bytes wait and
    /// the load, in bursts per slot, is below `load`.
    #[schemars(extend("default" = "head=15kB backlog=15kB load=0.5"))]
    limits: Option<Words<AccessLimits>>,
}

/// Builds the settings of a channel from the given ones and defaults.
fn channel(
    scheme: Option<Text<AccessScheme>>,
    backoff: Option<Words<BackoffLimits>>,
    load_control: Option<bool>,
) -> ContentionChannel {
    let usual = ContentionChannel::default();
    ContentionChannel {
        scheme: scheme.map_or(usual.scheme, |text| text.0),
        backoff: backoff.map_or(usual.backoff, |words| words.0),
        load_control: load_control.unwrap_or(usual.load_control),
    }
}

/// Reads the `[dama.requests]` table.
pub(super) fn transport(
    place: &KeyContext<'_>,
    raw: Option<&RawRequests>,
) -> Result<RequestTransport, FileError> {
    let Some(raw) = raw else { return Ok(RequestTransport::Assigned) };
    let contended = || {
        let missing = "1 or more in each frame, or carriers = 1 or more";
        let place = match (raw.slots, raw.carriers) {
            (Some(slots), None) => RequestPlace::Slots(slots),
            (None, Some(carriers)) => RequestPlace::Carriers(carriers),
            (None, None) => return Err(place.missing_key("slots", missing)),
            (Some(_), Some(carriers)) => {
                let expected = "either slots, or carriers whose slots are all for requests";
                return Err(place.wrong_value("carriers", carriers, expected));
            }
        };
        let channel = channel(raw.scheme, raw.backoff, raw.load_control);
        Ok(RequestSlots { place, channel })
    };
    match raw.transport {
        RawTransport::Piggyback => contended().map(RequestTransport::Piggyback),
        RawTransport::Contention => contended().map(RequestTransport::Contention),
        RawTransport::Assigned => {
            // A key without effect was most likely meant for another transport.
            let useless = [
                ("slots", raw.slots.map(|slots| slots.to_string())),
                ("carriers", raw.carriers.map(|carriers| carriers.to_string())),
                ("scheme", raw.scheme.map(|text| quoted(text.0))),
                ("backoff", raw.backoff.map(|words| quoted(words.0))),
                ("load-control", raw.load_control.map(|on| on.to_string())),
            ];
            match useless.into_iter().find_map(|(key, value)| Some((key, value?))) {
                None => Ok(RequestTransport::Assigned),
                Some((key, value)) => {
                    let expected = "transport = \"piggyback\" or \"contention\" with it";
                    Err(place.wrong_value(key, value, expected))
                }
            }
        }
    }
}

/// Turns an error of the request slots into one that names the key.
pub(super) fn wrong_slots(
    place: &KeyContext<'_>,
    transport: &RequestTransport,
    error: ContentionError,
) -> FileError {
    let slots = match transport.slots().map(|request| request.place) {
        Some(RequestPlace::Slots(slots)) => slots,
        _ => 0,
    };
    match error {
        ContentionError::Carriers { carriers, all } => {
            place.wrong_value("carriers", carriers, grants_remain(all))
        }
        ContentionError::Slots { most, .. } => {
            place.wrong_value("slots", slots, format!("1 to a carrier's {most}"))
        }
        ContentionError::NothingLeft { .. } => {
            place.wrong_value("slots", slots, "fewer, so that some can be granted")
        }
        ContentionError::Block(BlockError::Slots { scheme, .. }) => {
            let expected = format!("at least {} for {}", scheme.replicas(), quoted(scheme));
            place.wrong_value("slots", slots, expected)
        }
        other => place.unreadable("scheme", other),
    }
}

/// Describes how many of `all` carriers contention may use.
fn grants_remain(all: u32) -> String {
    match all {
        // No number fits, and "1 to 0" would not say why.
        0 | 1 => "more than 1 carrier in all: one must remain for grants".to_owned(),
        all => format!("1 to {} of the {all} carriers", all - 1),
    }
}

/// Turns an error of the carriers for random access into one that names the key.
pub(super) fn wrong_access(
    place: &KeyContext<'_>,
    access: Option<&RandomAccess>,
    error: ContentionError,
) -> FileError {
    match (error, access) {
        (ContentionError::Carriers { carriers, all }, _) => {
            place.wrong_value("carriers", carriers, grants_remain(all))
        }
        (ContentionError::Block(BlockError::Slots { slots, .. }), Some(access)) => {
            let expected = format!("at most as many replicas as a frame has slots, {slots}");
            place.wrong_value("scheme", quoted(access.channel.scheme), expected)
        }
        (other, _) => place.unreadable("scheme", other),
    }
}

impl RawRequests {
    /// Returns the table for a transport; `None` for the default.
    pub(super) fn of(transport: &RequestTransport) -> Option<Self> {
        let (transport, request) = match transport {
            RequestTransport::Assigned => return None,
            RequestTransport::Piggyback(slots) => (RawTransport::Piggyback, slots),
            RequestTransport::Contention(slots) => (RawTransport::Contention, slots),
        };
        let ContentionChannel { scheme, backoff, load_control } = request.channel;
        let (slots, carriers) = match request.place {
            RequestPlace::Slots(slots) => (Some(slots), None),
            RequestPlace::Carriers(carriers) => (None, Some(carriers)),
        };
        Some(Self {
            transport,
            slots,
            carriers,
            scheme: Some(Text(scheme)),
            backoff: Some(Words(backoff)),
            load_control: Some(load_control),
        })
    }
}

impl From<&RawRandomAccess> for RandomAccess {
    fn from(raw: &RawRandomAccess) -> Self {
        Self {
            carriers: raw.carriers,
            channel: channel(raw.scheme, raw.backoff, raw.load_control),
            limits: raw.limits.map_or_else(AccessLimits::default, |words| words.0),
        }
    }
}

impl From<&RandomAccess> for RawRandomAccess {
    fn from(access: &RandomAccess) -> Self {
        let ContentionChannel { scheme, backoff, load_control } = access.channel;
        Self {
            carriers: access.carriers,
            scheme: Some(Text(scheme)),
            backoff: Some(Words(backoff)),
            load_control: Some(load_control),
            limits: Some(Words(access.limits)),
        }
    }
}
