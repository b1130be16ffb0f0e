//! What is said on the control socket.

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// The version of the protocol. It changes when an older program could not
/// understand a newer one.
pub const PROTOCOL: u32 = 1;

/// Longer lines are nobody's.
pub(super) const LONGEST_REQUEST: u64 = 64 << 10;
/// A status with 100,000 connections stays below this.
pub(super) const LONGEST_ANSWER: u64 = 128 << 20;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<T> {
    /// [`PROTOCOL`].
    pub(super) skyhop: u32,
    pub(super) say: T,
}

/// What is wanted of a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// How it is.
    Status {
        /// With each connection alive.
        connections: bool,
    },
    /// What the modem's rate is, for a time.
    Rate {
        /// At 0 nothing is sent but probes.
        bit_s: u64,
        /// How long it holds.
        for_s: f64,
        /// To which peer, by its name; to all, if none is given.
        peer: Option<String>,
    },
    /// What has happened on the hop since the same reader asked last; see
    /// `docs/event-log.md`.
    Events {
        /// Any number, the same every time. There is one reader at a time.
        reader: u64,
        /// In the session with this peer, by its name; in all, if none is given.
        peer: Option<String>,
    },
    /// That it reads its configuration again.
    Reload,
    /// That it takes no new connections over, and ends when the last one has.
    Drain {
        /// Or after this time; never because of the time, if none is given.
        within_s: Option<f64>,
    },
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Answer {
    /// It cannot be done.
    Error(String),
    /// It has been done; what there is to say about it, in lines.
    Done(Vec<String>),
    /// How the gateway is.
    Status(Box<Status>),
    /// What has happened, a JSON object for each event.
    Events(Vec<String>),
}

/// Writes a line.
pub(super) fn write<T: Serialize>(say: T) -> Vec<u8> {
    let line = Line { skyhop: PROTOCOL, say };
    let mut text = serde_json::to_vec(&line).expect("what is said is plain data");
    text.push(b'\n');
    text
}

/// Reads a line that [`write`] has written, perhaps another version of it.
pub(super) fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        skyhop: u32,
    }
    let spoken = serde_json::from_slice(line).map(|version: Version| version.skyhop);
    match spoken {
        Ok(PROTOCOL) => {}
        Ok(other) => {
            return Err(format!("it speaks version {other} of the protocol, not {PROTOCOL}"));
        }
        Err(error) => return Err(format!("not understood: {error}")),
    }
    match serde_json::from_slice::<Line<T>>(line) {
        Ok(line) => Ok(line.say),
        Err(error) => Err(format!("not understood: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let requests = [
            Request::Status { connections: true },
            Request::Rate { bit_s: 20_000_000, for_s: 30.0, peer: Some("ship-1".into()) },
            Request::Events { reader: u64::MAX, peer: None },
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
    fn nonsense_and_other_versions_are_told() {
        for (text, told) in [
            ("", "not understood"),
            ("{}", "skyhop"),
            ("\"status\"", "not understood"),
            ("{\"skyhop\":2,\"say\":\"reload\"}", "version 2"),
            ("{\"skyhop\":1,\"say\":\"dance\"}", "dance"),
            ("{\"skyhop\":1,\"say\":{\"status\":{\"connections\":1}}}", "not understood"),
            ("{\"skyhop\":1,\"say\":\"reload\",\"more\":1}", "more"),
        ] {
            let error = read::<Request>(text.as_bytes()).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
