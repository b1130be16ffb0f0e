//! Messages on the control socket.

use serde::{Deserialize, Serialize};

use crate::operate::status::{AccountStatus, ConnectionStatus, Status};

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
    /// Report what terminals have used of this hub.
    Accounts,
    /// Reload the configuration.
    Reload,
    /// Take no new connections, and exit after the last one.
    Drain {
        /// Time limit in seconds after which remaining connections are reset; no limit if `None`.
        within_s: Option<f64>,
    },
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
}

/// Serialises a message to a line.
pub(super) fn write<T: Serialize>(say: T) -> Vec<u8> {
    let line = Line { skyhop: PROTOCOL, say };
    let mut text = serde_json::to_vec(&line).expect("what is said is plain data");
    text.push(b'\n');
    text
}

/// Parses a line written by [`write()`], possibly by another version.
pub(super) fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
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
            Request::Accounts,
            Request::Reload,
            Request::Drain { within_s: None },
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
