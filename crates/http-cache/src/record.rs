//! File format of a stored response's head: two HTTP heads, one with the key and the properties of the
//! body, and that of the response.

use std::net::IpAddr;

use units::UnixTime;

use super::fields::HeaderFields;
use super::head::{ParsedHead, RequestHead, ResponseHead};
use super::policy::{StoredResponse, forbids_storing, sets_cookie};
use super::store::CacheKey;

/// The method of the first head names the format and its version.
const METHOD: &str = "SKYHOP-1";

/// A stored response as it is kept in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRecord {
    /// The key under which it is stored.
    pub key: CacheKey,
    /// The response without its body.
    pub stored: StoredResponse,
    /// The length of the body, in bytes.
    pub length: u64,
    /// Digest of the body, by which a damaged or incomplete body file is recognised.
    pub digest: String,
    /// The client on whose account it is stored.
    pub owner: IpAddr,
}

impl ResponseRecord {
    /// Encodes the file. A head that has become too long cannot be decoded again.
    pub fn encode(&self) -> Vec<u8> {
        let Self { key, stored, length, digest, owner } = self;
        let mut fields = HeaderFields::default();
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

    /// Decodes a file; [`None`] if its format is not this one, or it must not be shared.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let ParsedHead::Head(ours, length) = RequestHead::parse(bytes) else { return None };
        let ParsedHead::Head(head, rest) = ResponseHead::parse(&bytes[length..]) else {
            return None;
        };
        if ours.method != METHOD || length + rest != bytes.len() {
            return None;
        }
        // Earlier versions kept the cookies of a 304, which belong to one client, and what forbade it beside
        // bytes that are no text.
        if sets_cookie(&head) || forbids_storing(&head) {
            return None;
        }
        let text = |name: &str| ours.fields.parsed(name, |text| Some(text.to_owned()));
        let time = |name: &str| {
            ours.fields.parsed(name, |text| Some(UnixTime::from_seconds(text.parse().ok()?)))
        };

        let selecting = decode_selecting(&ours.fields)?;
        let requested = time("Requested")?;
        let received = time("Received")?;
        Some(Self {
            key: CacheKey {
                destination: text("Destination")?,
                host: text("Host")?,
                target: ours.target.clone(),
            },
            stored: StoredResponse { head, selecting, requested, received },
            length: text("Length")?.parse().ok()?,
            digest: text("Digest")?,
            owner: text("Owner")?.parse().ok()?,
        })
    }
}

type SelectingFields = Vec<(String, Option<Vec<u8>>)>;

/// Reads the fields of the first head that tell which requests select the response; [`None`] if one is
/// malformed.
fn decode_selecting(fields: &HeaderFields) -> Option<SelectingFields> {
    let name_of = |name: &[u8]| Some(core::str::from_utf8(name).ok()?.to_owned());
    let mut selecting = Vec::new();
    for (name, value) in fields.all() {
        match name {
            "Selected" => {
                // A field name contains no `=`: `is_storable` refuses other names in `Vary`.
                let end = value.iter().position(|byte| *byte == b'=')?;
                selecting.push((name_of(&value[..end])?, Some(value[end + 1..].to_owned())));
            }
            "Unselected" => selecting.push((name_of(value)?, None)),
            _ => {}
        }
    }
    // The order in which `StoredResponse::new` has them.
    selecting.sort_unstable();
    Some(selecting)
}
