//! Messages on the control socket: lines of JSON. A connection carries any number of requests, each followed by its
//! answer.

use std::collections::BTreeMap;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use serde::{Deserialize, Serialize};

use crate::status::{AccountStatus, BundleStatus, ConnectionStatus, GatewayStatus, UsageStatus};

/// Protocol version. Incremented when older programs can no longer understand newer ones.
pub const PROTOCOL: u32 = 1;

/// Maximum length of a request, in bytes.
pub const MAX_REQUEST: u64 = 64 << 10;
/// Maximum length of an answer, in bytes: enough for a status with 100,000 connections.
pub const MAX_ANSWER: u64 = 128 << 20;

/// One line of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolLine<T> {
    /// Protocol version of the sender ([`PROTOCOL`]).
    skyhop: u32,
    say: T,
}

/// A request to a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Report the gateway's status at this moment.
    Status {
        /// Include each live connection in the status.
        connections: bool,
    },
    /// Report live connections, those with the most bytes first.
    Connections {
        /// The peer by name; all peers if `None`.
        peer: Option<String>,
        /// Maximum number of connections in the answer.
        most: usize,
    },
    /// Set the modem's rate for a limited time.
    Rate {
        /// Rate in bit/s; at 0 only probes are sent.
        bit_s: u64,
        /// Validity in seconds, from now on.
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
    /// End this reader's use of the event log; another can begin at once.
    EventsEnd {
        /// Number that the reader gave in [`ControlRequest::Events`].
        reader: u64,
    },
    /// Report the traffic of the terminals.
    Accounts,
    /// Reload the configuration from its file.
    Reload,
    /// Send, list or receive bundles.
    Bundle(BundleRequest),
    /// Start the program again from its file, to replace this process, which ends after its last
    /// connection.
    Upgrade {
        /// Time limit in seconds after which remaining connections are reset.
        within_s: f64,
    },
    /// Sent by a new process: ask for the state of its predecessor.
    HandOver,
    /// Sent by the predecessor: report the used portion of the rate, and ask for a new one.
    Portion {
        /// Portion of the rate that it may use now, 0 to 1.
        portion: f64,
        /// Portion of the rate that it has used lately, 0 to 1.
        used: f64,
        /// Number of connections that it carries.
        connections: u64,
    },
    /// Sent by the predecessor: traffic to add to the accounts.
    Carried(Vec<CarriedUsage>),
    /// Take no new connections, and exit after the last one.
    Drain {
        /// Time limit in seconds after which remaining connections are reset; no limit if `None`.
        within_s: Option<f64>,
    },
}

/// Traffic of a terminal in a class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarriedUsage {
    /// Public key of the terminal.
    pub key: String,
    /// Name of the class in the configuration.
    pub class: String,
    /// Bytes, packets and connections since the last report.
    pub usage: UsageStatus,
}

/// A program's request to the bundle node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum BundleRequest {
    /// Begin to send a bundle.
    Offer(BundleOffer),
    /// A piece of its payload.
    Data {
        /// The handle in the answer to the offer.
        handle: u64,
        /// At most 45,000 bytes, in base64.
        base64: String,
    },
    /// The payload is complete: store the bundle.
    End {
        /// The handle in the answer to the offer.
        handle: u64,
    },
    /// List the bundles in the store.
    List,
    /// Report the state of a bundle.
    State {
        /// Identity of the bundle, in 32 hexadecimal digits.
        id: String,
    },
    /// Receive the next bundle for a service of this node. It is offered again until it is taken.
    Next {
        /// The service, a number or a name.
        service: String,
    },
    /// Read a part of the payload of a bundle from [`Self::Next`].
    Read {
        /// Identity of the bundle, in 32 hexadecimal digits.
        id: String,
        /// Offset of the first byte.
        offset: u64,
    },
    /// End the receiving of a bundle from [`Self::Next`].
    Taken {
        /// Identity of the bundle, in 32 hexadecimal digits.
        id: String,
        /// Set if the program has it: then the gateway forgets it.
        taken: bool,
    },
}

/// A bundle that a program wants to send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleOffer {
    /// Endpoint that the bundle is for.
    pub destination: String,
    /// Lifetime in seconds from its creation.
    pub lifetime_s: u64,
    /// Name of the file that is the payload.
    pub name: Option<String>,
    /// Length of the payload in bytes.
    pub length: u64,
    /// Creation time in milliseconds since 1970, and sequence number: bundles with equal ones are
    /// duplicates. The gateway chooses them if `None`.
    pub made: Option<(u64, u64)>,
    /// Ask the nodes on the way for a status report when the bundle is delivered or deleted.
    #[serde(default)]
    pub report: bool,
}

/// The answer to a [`BundleRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum BundleAnswer {
    /// Answer to an offer and to data: the handle for the next piece.
    Handle(u64),
    /// Identity of a bundle that is on the disk, or was taken.
    Stored(String),
    /// The bundles in the store.
    List(Vec<BundleStatus>),
    /// `waiting`, `arrived`, `forwarded`, `delivered` or `expired`; `None` if the bundle is not
    /// known.
    State(Option<String>),
    /// The next bundle, its file name, and the length of its payload in bytes; `None` if there is
    /// none.
    Next(Option<(BundleStatus, Option<String>, u64)>),
    /// A part of a payload, in base64.
    Data(String),
}

/// Encodes bytes for the fields `base64` and `Data`.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes the text of [`to_base64`].
///
/// # Errors
/// The text is not base64.
pub fn from_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    STANDARD.decode(text)
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlAnswer {
    /// The request failed, for this reason.
    Error(String),
    /// The request succeeded; lines of text for the user.
    Done(Vec<String>),
    /// The gateway's status at this moment.
    Status(Box<GatewayStatus>),
    /// Live connections with one peer or all.
    Connections {
        /// As many as requested, those with the most bytes first.
        most_moved: Vec<ConnectionStatus>,
        /// Number of all matching connections.
        total: u64,
    },
    /// The traffic of the terminals.
    Accounts(Vec<AccountStatus>),
    /// The events, one JSON object each.
    Events(Vec<String>),
    /// Answer to a request about bundles.
    Bundle(Box<BundleAnswer>),
    /// State for the new process.
    HandOver(HandOverState),
    /// The portion of the rate that the predecessor may use, 0 to 1.
    Portion(f64),
}

/// Serialises a message to a line.
pub fn write<T: Serialize>(say: T) -> Vec<u8> {
    let line = ProtocolLine { skyhop: PROTOCOL, say };
    let mut text = serde_json::to_vec(&line).expect("what is said is plain data");
    text.push(b'\n');
    text
}

/// Parses a line written by [`write()`], possibly by another version.
///
/// # Errors
/// In words: another version, or not a message of this type.
pub fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        skyhop: u32,
    }
    // The version comes first: a message of another version may have fields that are refused here.
    let spoken = serde_json::from_slice(line).map(|version: Version| version.skyhop);
    match spoken {
        Ok(PROTOCOL) => {}
        Ok(other) => {
            return Err(format!("it uses protocol version {other}, not {PROTOCOL}"));
        }
        Err(error) => return Err(format!("cannot parse it: {error}")),
    }
    match serde_json::from_slice::<ProtocolLine<T>>(line) {
        Ok(line) => Ok(line.say),
        Err(error) => Err(format!("cannot parse it: {error}")),
    }
}

/// State that a new hub process takes over from the running one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOverState {
    /// Process ID of the predecessor.
    pub pid: u32,
    /// Number of its UDP sockets.
    pub sockets: u8,
    /// Set if its session indices are the second half of the hub's.
    pub second_half: bool,
    /// Name of the tunnel's device, which the process that it starts has as standard input.
    #[serde(default)]
    pub tunnel: Option<String>,
    /// The names of its sessions.
    pub sessions: Vec<u64>,
    /// The succession tokens of its sessions, by the terminals' keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, u64>,
    /// Rates in bit/s that its modem has reported, by the terminals' keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_messages_are_read_back() {
        let requests = [
            ControlRequest::Status { connections: true },
            ControlRequest::Connections { peer: Some("ship-1".into()), most: 50 },
            ControlRequest::Rate { bit_s: 20_000_000, for_s: 30.0, peer: Some("ship-1".into()) },
            ControlRequest::Events { reader: u64::MAX, peer: None },
            ControlRequest::EventsEnd { reader: 7 },
            ControlRequest::Accounts,
            ControlRequest::Reload,
            ControlRequest::Drain { within_s: None },
            ControlRequest::Upgrade { within_s: 1.5 },
            ControlRequest::HandOver,
            ControlRequest::Portion { portion: 0.5, used: 0.25, connections: 3 },
            ControlRequest::Bundle(BundleRequest::List),
            ControlRequest::Bundle(BundleRequest::Next { service: "7".into() }),
        ];
        for request in requests {
            let line = write(&request);
            assert!(line.ends_with(b"\n") && !line[..line.len() - 1].contains(&b'\n'));
            assert_eq!(read::<ControlRequest>(&line), Ok(request));
        }
        let answer = ControlAnswer::Status(Box::default());
        assert_eq!(read::<ControlAnswer>(&write(&answer)), Ok(answer));
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
            let error = read::<ControlRequest>(text.as_bytes()).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
