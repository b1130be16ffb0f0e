//! Parses etcd's answers (JSON, version 3 of its API). A member may be faulty: what is kept of its
//! answers is bounded.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pep::work::cost;
use pep::work::inbox::Inbox;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::api::EtcdError;
use crate::config::permits::MAX_PERMITS;

/// Size limit in bytes of an answer, and of one line of a watch.
pub(super) const MAX_ANSWER: usize = 64 << 20;
/// Size limit of a permit, in bytes.
const MAX_PERMIT: usize = 64 << 10;
/// Bytes of an invalid answer that an error quotes.
const MAX_QUOTED: usize = 200;

/// A permit as stored in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredPermit {
    pub(crate) text: String,
    /// Revision of its last change.
    pub(super) revision: i64,
}

#[derive(Deserialize)]
struct AnswerHeader {
    #[serde(default)]
    revision: String,
}

/// A key and its value, in base64.
#[derive(Deserialize)]
pub(super) struct KeyValue {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: String,
}

/// All keys of a request, at one revision.
#[derive(Deserialize)]
pub(super) struct RangeAnswer {
    header: AnswerHeader,
    #[serde(default, deserialize_with = "bounded")]
    kvs: Vec<KeyValue>,
}

/// One line of a watch.
#[derive(Deserialize)]
struct WatchLine {
    result: Option<WatchResult>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct WatchResult {
    header: Option<AnswerHeader>,
    #[serde(default)]
    canceled: bool,
    #[serde(default, deserialize_with = "bounded")]
    events: Vec<WatchEvent>,
}

#[derive(Deserialize)]
struct WatchEvent {
    #[serde(default, rename = "type")]
    kind: WatchEventKind,
    kv: KeyValue,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
enum WatchEventKind {
    #[default]
    Put,
    Delete,
}

/// Changes reported by one line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PermitChanges {
    /// Permits by name; [`None`] for those removed.
    pub(super) permits: Vec<(String, Option<String>)>,
    /// The store's revision after these changes, if the line has it.
    pub(super) revision: Option<i64>,
}

impl KeyValue {
    /// Returns the permit's name in the key; [`None`] if the key is no permit's.
    fn name(&self, prefix: &str) -> Result<Option<String>, EtcdError> {
        let key = String::from_utf8(decode(&self.key)?).unwrap_or_default();
        let name = key.strip_prefix(prefix).filter(|name| !name.is_empty());
        Ok(name.map(str::to_owned))
    }

    /// Returns the permit with its name; [`None`] if it cannot be one.
    fn permit(&self, prefix: &str) -> Result<Option<(String, StoredPermit)>, EtcdError> {
        let Some(name) = self.name(prefix)? else { return Ok(None) };
        let text = String::from_utf8(decode(&self.value)?).unwrap_or_default();
        if text.len() > MAX_PERMIT {
            tracing::warn!("ignored the permit {prefix}{name}: longer than {MAX_PERMIT} bytes");
            return Ok(None);
        }
        Ok(Some((name, StoredPermit { text, revision: number(&self.mod_revision)? })))
    }
}

impl RangeAnswer {
    /// Revision of the whole store.
    pub(super) fn revision(&self) -> Result<i64, EtcdError> {
        number(&self.header.revision)
    }

    pub(super) fn permits<C>(&self, prefix: &str) -> Result<C, EtcdError>
    where
        C: FromIterator<(String, StoredPermit)>,
    {
        self.kvs.iter().filter_map(|entry| entry.permit(prefix).transpose()).collect()
    }
}

impl PermitChanges {
    /// Parses a line. Changes up to the revision `since` are left out.
    ///
    /// # Errors
    /// The line does not follow the API, or ends the watch.
    pub(super) fn read(line: &[u8], prefix: &str, since: i64) -> Result<Self, EtcdError> {
        let WatchLine { result, error } = parse(line)?;
        let Some(result) = result.filter(|_| error.is_none()) else {
            let shown = String::from_utf8_lossy(&line[..line.len().min(MAX_QUOTED)]);
            return Err(EtcdError::Malformed(shown.into_owned()));
        };
        if result.canceled {
            // The start revision has been compacted away.
            return Err(EtcdError::Malformed("the watch was cancelled".to_owned()));
        }
        let mut permits = Vec::new();
        for WatchEvent { kind, kv } in &result.events {
            // A complete read has covered it.
            if number(&kv.mod_revision)? <= since {
                continue;
            }
            permits.extend(match kind {
                WatchEventKind::Put => {
                    kv.permit(prefix)?.map(|(name, kept)| (name, Some(kept.text)))
                }
                WatchEventKind::Delete => kv.name(prefix)?.map(|name| (name, None)),
            });
        }
        let revision = result.header.map(|header| number(&header.revision)).transpose()?;
        Ok(Self { permits, revision })
    }
}

/// Splits the body of a watch into lines.
#[derive(Default)]
pub(super) struct LineSplitter {
    rest: Inbox,
    /// Bytes of `rest` that are known to have no line end.
    searched: usize,
}

impl LineSplitter {
    /// Appends received bytes.
    ///
    /// # Errors
    /// The line is too long.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), EtcdError> {
        self.rest.push(bytes);
        if self.rest.len() > MAX_ANSWER {
            return Err(EtcdError::Malformed("a line is too long".to_owned()));
        }
        Ok(())
    }

    /// Returns the next complete line.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let unsearched = &self.rest.unused()[self.searched..];
        let found = unsearched.iter().position(|byte| *byte == b'\n');
        // For the test that small pieces cost no more per byte.
        cost::count(found.unwrap_or(unsearched.len()));
        let Some(at) = found else {
            self.searched = self.rest.len();
            return None;
        };
        let end = std::mem::take(&mut self.searched) + at;
        let line = self.rest.unused()[..end].to_vec();
        self.rest.consume(end + 1);
        Some(line)
    }
}

pub(super) fn parse<'d, T: Deserialize<'d>>(text: &'d [u8]) -> Result<T, EtcdError> {
    serde_json::from_slice(text).map_err(|error| EtcdError::Malformed(error.to_string()))
}

/// Parses a number: etcd's JSON has numbers as strings, and leaves out 0.
fn number(text: &str) -> Result<i64, EtcdError> {
    if text.is_empty() {
        return Ok(0);
    }
    let shown = || text.chars().take(MAX_QUOTED).collect::<String>();
    text.parse().map_err(|_| EtcdError::Malformed(format!("{:?} is no number", shown())))
}

fn decode(text: &str) -> Result<Vec<u8>, EtcdError> {
    STANDARD.decode(text).map_err(|error| EtcdError::Malformed(error.to_string()))
}

/// Parses a list of no more elements than there may be permits: an empty element takes three bytes
/// of JSON, and thirty times that in memory.
fn bounded<'d, D: Deserializer<'d>, T: Deserialize<'d>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(BoundedList(PhantomData))
}

struct BoundedList<T>(PhantomData<T>);

impl<'d, T: Deserialize<'d>> Visitor<'d> for BoundedList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX_PERMITS} elements")
    }

    fn visit_seq<A: SeqAccess<'d>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            if elements.len() == MAX_PERMITS {
                return Err(serde::de::Error::invalid_length(MAX_PERMITS + 1, &self));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

/// Fuzzing: an answer to a question for all permits, and to a watch in pieces of this size.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_whole_and_watched(said: &[u8], piece: usize) {
    const PREFIX: &str = "/ships/";
    if let Ok(range) = parse::<RangeAnswer>(said) {
        let permits = range.permits::<Vec<_>>(PREFIX).unwrap_or_default();
        assert!(
            permits.iter().all(|(name, kept)| !name.is_empty() && kept.text.len() <= MAX_PERMIT)
        );
        let _ = range.revision();
    }
    let watched = |piece: usize| {
        let mut lines = LineSplitter::default();
        let mut found = Vec::new();
        for piece in said.chunks(piece.max(1)) {
            lines.push(piece).expect("the input is short");
            found.extend(std::iter::from_fn(|| lines.next()));
        }
        found
    };
    let lines = watched(piece);
    assert_eq!(lines, watched(said.len()), "pieces make no difference");
    for line in lines {
        let _ = PermitChanges::read(&line, PREFIX, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_no_more_keys_than_there_may_be_permits() {
        let answer = |count: usize| {
            let kvs = vec!["{}"; count].join(",");
            parse::<RangeAnswer>(format!("{{\"header\":{{}},\"kvs\":[{kvs}]}}").as_bytes())
        };
        assert_eq!(answer(MAX_PERMITS).unwrap().kvs.len(), MAX_PERMITS);
        let refused = answer(MAX_PERMITS + 1).err().unwrap().to_string();
        assert!(refused.contains("a list of at most 100000 elements"), "{refused}");
    }

    #[test]
    fn a_line_in_small_pieces_costs_no_more_per_byte() {
        let line = [&[b' '; 10_000][..], b"\n"].concat();
        let (found, cost) = cost::of(|| {
            let mut lines = LineSplitter::default();
            line.iter()
                .filter_map(|byte| {
                    lines.push(&[*byte]).unwrap();
                    lines.next()
                })
                .count()
        });
        assert_eq!(found, 1);
        assert!(cost <= 3 * line.len() as u64, "{cost}");
    }

    #[test]
    fn a_failure_is_told_by_its_beginning() {
        let line = format!("{{\"error\":{}1{}}}", "[".repeat(100), "]".repeat(100));
        let told = PermitChanges::read(line.as_bytes(), "/", 0).unwrap_err().to_string();
        assert!(told.contains("\"error\"") && told.len() < MAX_QUOTED + 100, "{told}");
    }
}
