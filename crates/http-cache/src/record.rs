//! The head of a stored response as a file: two heads as HTTP has them, ours with the key and what a
//! body must be, and the response's.

use std::net::IpAddr;

use units::UnixTime;

use super::fields::Fields;
use super::head::{Parsed, RequestHead, ResponseHead};
use super::policy::{Stored, sets_cookie};
use super::store::Key;

/// Names the format, with its version.
const METHOD: &str = "SKYHOP-1";

/// A response in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is stored for.
    pub key: Key,
    /// The response without its body.
    pub stored: Stored,
    /// The length of the body, in bytes.
    pub length: u64,
    /// A digest of the body, which says whether its file is whole.
    pub digest: String,
    /// The client that asked.
    pub owner: IpAddr,
}

impl Record {
    /// As a file. Not everything can be read again: a head may have become too long.
    pub fn encode(&self) -> Vec<u8> {
        let Self { key, stored, length, digest, owner } = self;
        let mut fields = Fields::default();
        fields.push("Destination", &key.destination);
        fields.push("Host", &key.host);
        fields.push("Owner", owner.to_string());
        fields.push("Requested", stored.requested.seconds().to_string());
        fields.push("Received", stored.received.seconds().to_string());
        fields.push("Length", length.to_string());
        fields.push("Digest", digest);
        for (name, value) in &stored.selecting {
            match value {
                Some(value) => fields.push("Selected", [name.as_bytes(), b"=", value].concat()),
                None => fields.push("Unselected", name),
            }
        }
        let target = key.target.clone();
        let mut out = Vec::new();
        RequestHead { method: METHOD.to_owned(), target, minor: 1, fields }.write(&mut out);
        stored.head.write(&mut out);
        out
    }

    /// Reads a file; [`None`] if it is not one of ours.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let Parsed::Head(ours, length) = RequestHead::parse(bytes) else { return None };
        let Parsed::Head(head, rest) = ResponseHead::parse(&bytes[length..]) else { return None };
        if ours.method != METHOD || length + rest != bytes.len() {
            return None;
        }
        // Earlier versions kept the cookies of a 304, which are one client's.
        if sets_cookie(&head) {
            return None;
        }
        let text = |name: &str| ours.fields.parsed(name, |text| Some(text.to_owned()));
        let time = |name: &str| {
            ours.fields.parsed(name, |text| Some(UnixTime::from_seconds(text.parse().ok()?)))
        };
        let name_of = |name: &[u8]| Some(core::str::from_utf8(name).ok()?.to_owned());
        let mut selecting = Vec::new();
        for (name, value) in ours.fields.all() {
            match name {
                "Selected" => {
                    // A name has no `=`: others are not stored.
                    let end = value.iter().position(|byte| *byte == b'=')?;
                    let (name, value) = (&value[..end], &value[end + 1..]);
                    selecting.push((name_of(name)?, Some(value.to_owned())));
                }
                "Unselected" => selecting.push((name_of(value)?, None)),
                _ => {}
            }
        }
        selecting.sort_unstable();
        let (requested, received) = (time("Requested")?, time("Received")?);
        Some(Self {
            key: Key {
                destination: text("Destination")?,
                host: text("Host")?,
                target: ours.target.clone(),
            },
            stored: Stored { head, selecting, requested, received },
            length: text("Length")?.parse().ok()?,
            digest: text("Digest")?,
            owner: text("Owner")?.parse().ok()?,
        })
    }
}
