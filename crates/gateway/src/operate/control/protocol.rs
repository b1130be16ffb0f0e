//! Messages on the control socket.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::status::{AccountStatus, BundleStatus, ConnectionStatus, Status, UsageStatus};

/// Protocol version. Incremented when older programs can no longer understand newer ones.
pub const PROTOCOL: u32 = 1;

/// Maximum length of a request, in bytes.
pub(super) const LONGEST_REQUEST: u64 = 64 << 10;
/// Maximum length of an answer, in bytes: enough for a status with 100,000 connections.
pub(super) const LONGEST_ANSWER: u64 = 128 << 20;

/// One line of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<T> {
    /// The sender's [`PROTOCOL`].
    pub(super) skyhop: u32,
    pub(super) say: T,
}

/// A request to a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Report the gateway's status.
    Status {
        /// Include each live connection.
        connections: bool,
    },
    /// Report live connections.
    Connections {
        /// Those of the sessions with the peer of this name; all if `None`.
        peer: Option<String>,
        /// At most this many: those that have moved the most bytes.
        most: usize,
    },
    /// Set the modem's rate for a limited time.
    Rate {
        /// Rate in bit/s; at 0 only probes are sent.
        bit_s: u64,
        /// Validity, in seconds.
        for_s: f64,
        /// Name of the peer; all peers if `None`.
        peer: Option<String>,
    },
    /// Report the hop's events since the same reader's last request; see `docs/event-log.md`.
    Events {
        /// Any number, constant for one reader. Only one reader at a time is served.
        reader: u64,
        /// Name of the peer; all sessions if `None`.
        peer: Option<String>,
    },
    /// The reader has read all the events that it wants; another can begin at once.
    EventsEnd {
        /// The reader's number.
        reader: u64,
    },
    /// Report what terminals have used of this hub.
    Accounts,
    /// Reload the configuration.
    Reload,
    /// Hand over, list or receive bundles.
    Bundle(BundleRequest),
    /// Start the program anew from its file, in this one's place, which ends after its last connection.
    Upgrade {
        /// Time limit in seconds after which remaining connections are reset.
        within_s: f64,
    },
    /// The new process asks for its predecessor's place.
    HandOver,
    /// The predecessor reports what it uses of the rate, and asks for its portion.
    Portion {
        /// The portion that it may use now, 0 to 1.
        portion: f64,
        /// The portion that it has used lately.
        used: f64,
        /// Number of connections that it carries.
        connections: u64,
    },
    /// The predecessor reports what it has carried, for the accounts.
    Carried(Vec<Carried>),
    /// Take no new connections, and exit after the last one.
    Drain {
        /// Time limit in seconds after which remaining connections are reset; no limit if `None`.
        within_s: Option<f64>,
    },
}

/// What was carried for a terminal in a class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// The terminal's public key.
    pub key: String,
    /// The name of the class.
    pub class: String,
    /// How much.
    pub usage: UsageStatus,
}

/// What a program may ask of the node for bundles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum BundleRequest {
    /// Begin to hand over a bundle.
    Offer(BundleOffer),
    /// More of its payload.
    Data {
        /// The answer to the offer.
        handle: u64,
        /// At most 45,000 bytes.
        base64: String,
    },
    /// All of its payload has come: store it.
    End {
        /// The answer to the offer.
        handle: u64,
    },
    /// The bundles in the store.
    List,
    /// Where a bundle is.
    State {
        /// Its identity, in 32 hexadecimal digits.
        id: String,
    },
    /// The next bundle for a service of this node. It is offered again unless it is taken.
    Next {
        /// A number or a name.
        service: String,
    },
    /// A part of the payload of a bundle that was the answer to [`Self::Next`].
    Read {
        /// Its identity.
        id: String,
        /// From which byte on.
        offset: u64,
    },
    /// A bundle that was the answer to [`Self::Next`] is taken, or not.
    Taken {
        /// Its identity.
        id: String,
        /// If so, the gateway forgets it.
        taken: bool,
    },
}

/// A bundle to hand over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleOffer {
    /// The endpoint that it is for.
    pub destination: String,
    /// How long it is of use, in seconds.
    pub lifetime_s: u64,
    /// The name of the file that it carries.
    pub name: Option<String>,
    /// Bytes of its payload.
    pub length: u64,
    /// Creation time in milliseconds since 1970, and sequence number: of two with the same, one is a
    /// duplicate. The gateway chooses them if `None`.
    pub made: Option<(u64, u64)>,
    /// Whether this node is to hear when the bundle is delivered, or deleted.
    #[serde(default)]
    pub report: bool,
}

/// The answer to a [`BundleRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum BundleAsked {
    /// To an offer and to data: more may come.
    Handle(u64),
    /// The bundle of this identity is on the disk, or was taken.
    Stored(String),
    /// The bundles in the store.
    List(Vec<BundleStatus>),
    /// `waiting`, `arrived`, `forwarded`, `delivered` or `expired`; `None` if it is not known.
    State(Option<String>),
    /// The next bundle, the name of its file, and the bytes of its payload; `None` if there is none.
    Next(Option<(BundleStatus, Option<String>, u64)>),
    /// A part of a payload, in base64.
    Data(String),
}

/// The text of `base64` and `data` for these bytes.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of what [`to_base64`] has made.
///
/// # Errors
/// If it is something else.
pub fn from_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    STANDARD.decode(text)
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Answer {
    /// The request failed.
    Error(String),
    /// The request succeeded; lines of text for the user.
    Done(Vec<String>),
    /// The gateway's status.
    Status(Box<Status>),
    /// Live connections.
    Connections {
        /// As many as were asked for, those that have moved the most bytes first.
        most_moved: Vec<ConnectionStatus>,
        /// Number of all that match.
        total: u64,
    },
    /// What terminals have used.
    Accounts(Vec<AccountStatus>),
    /// The events, one JSON object each.
    Events(Vec<String>),
    /// About bundles.
    Bundle(Box<BundleAsked>),
    /// What the new process needs to know.
    HandOver(HandOver),
    /// The portion of the rate that the predecessor may use, 0 to 1.
    Portion(f64),
}

/// Serialises a message to a line.
pub(crate) fn write<T: Serialize>(say: T) -> Vec<u8> {
    let line = Line { skyhop: PROTOCOL, say };
    let mut text = serde_json::to_vec(&line).expect("what is said is plain data");
    text.push(b'\n');
    text
}

/// Parses a line written by [`write()`], possibly by another version.
pub(crate) fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        skyhop: u32,
    }
    let spoken = serde_json::from_slice(line).map(|version: Version| version.skyhop);
    match spoken {
        Ok(PROTOCOL) => {}
        Ok(other) => {
            return Err(format!("it uses protocol version {other}, not {PROTOCOL}"));
        }
        Err(error) => return Err(format!("cannot parse it: {error}")),
    }
    match serde_json::from_slice::<Line<T>>(line) {
        Ok(line) => Ok(line.say),
        Err(error) => Err(format!("cannot parse it: {error}")),
    }
}

/// State that a new hub process takes over from the running one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// The process.
    pub pid: u32,
    /// Number of its UDP sockets.
    pub sockets: u8,
    /// Whether its indices are the second half of the hub's.
    pub second_half: bool,
    /// The name of the tunnel's device, which the process that it starts has as its standard input.
    #[serde(default)]
    pub tunnel: Option<String>,
    /// The names of its sessions.
    pub sessions: Vec<u64>,
    /// The succession tokens of its sessions, by the terminals' keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, u64>,
    /// What its modem has reported for terminals, in bit/s, by their keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_messages_are_read_back() {
        let requests = [
            Request::Status { connections: true },
            Request::Connections { peer: Some("ship-1".into()), most: 50 },
            Request::Rate { bit_s: 20_000_000, for_s: 30.0, peer: Some("ship-1".into()) },
            Request::Events { reader: u64::MAX, peer: None },
            Request::EventsEnd { reader: 7 },
            Request::Accounts,
            Request::Reload,
            Request::Drain { within_s: None },
            Request::Upgrade { within_s: 1.5 },
            Request::HandOver,
            Request::Portion { portion: 0.5, used: 0.25, connections: 3 },
            Request::Bundle(BundleRequest::List),
            Request::Bundle(BundleRequest::Next { service: "7".into() }),
        ];
        for request in requests {
            let line = write(&request);
            assert!(line.ends_with(b"\n") && !line[..line.len() - 1].contains(&b'\n'));
            assert_eq!(read::<Request>(&line), Ok(request));
        }
        let answer = Answer::Status(Box::default());
        assert_eq!(read::<Answer>(&write(&answer)), Ok(answer));
    }

    #[test]
    fn nonsense_and_other_versions_are_errors() {
        for (text, told) in [
            ("", "cannot parse"),
            ("{}", "skyhop"),
            ("\"status\"", "cannot parse"),
            ("{\"skyhop\":2,\"say\":\"reload\"}", "version 2"),
            ("{\"skyhop\":1,\"say\":\"dance\"}", "dance"),
            ("{\"skyhop\":1,\"say\":{\"status\":{\"connections\":1}}}", "cannot parse"),
            ("{\"skyhop\":1,\"say\":\"reload\",\"more\":1}", "more"),
        ] {
            let error = read::<Request>(text.as_bytes()).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
