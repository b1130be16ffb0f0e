//! Reads the sessions' event logs of a running gateway (`docs/event-log.md`).

use std::collections::BTreeMap;
use std::time::Duration;

use slacp::{LogEntry, SessionId};
use units::Instant;

use crate::hop::Hop;
use crate::hop::peers::Peers;

/// Maximum events that a session records between two reads.
const CAPACITY: usize = 65_536;
/// Maximum events per answer.
const MOST: usize = 20_000;
/// A reader that has not asked for this long is gone.
const READER_TIMEOUT: Duration = Duration::from_secs(5);

/// The reader of a gateway's event logs. Without one, nothing is recorded.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// The reader, and the time of its last request.
    reader: Option<(u64, Instant)>,
    /// Events of each session that were overwritten before they were read.
    overwritten: BTreeMap<SessionId, u64>,
}

impl EventReader {
    /// Events since `reader`'s last request, in the sessions with `peer` or in all; one JSON object
    /// each. The first request starts recording.
    ///
    /// # Errors
    /// If another reader is active, or there is no such peer.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        (hop, peers): (&Hop, &Peers),
        reader: u64,
        peer: Option<&str>,
    ) -> Result<Vec<String>, String> {
        self.expire(now, hop, peers);
        if self.reader.is_some_and(|(other, _)| other != reader) {
            return Err("another reader has the event log".to_owned());
        }
        let wanted: BTreeMap<SessionId, String> = peers
            .sessions()
            .filter_map(|session| Some((session, peers.name(session)?)))
            .filter(|(_, name)| peer.is_none_or(|peer| peer == name))
            .collect();
        if let (Some(peer), true) = (peer, wanted.is_empty()) {
            return Err(format!("no session with {peer}"));
        }
        self.reader = Some((reader, now));
        let mut lines = Vec::new();
        let mut events: Vec<LogEntry> = Vec::new();
        for (session, name) in &wanted {
            events.extend(hop.events(*session, CAPACITY, MOST));
            let overwritten = hop.stats(*session).map_or(0, |stats| stats.log_overwritten);
            let known = self.overwritten.insert(*session, overwritten).unwrap_or(0);
            if let missed @ 1.. = overwritten.saturating_sub(known) {
                let name = quoted(name);
                lines.push(format!(r#"{{"peer":{name},"event":"overwritten","count":{missed}}}"#));
            }
        }
        events.sort_by_key(|entry| entry.time);
        lines.extend(events.iter().map(|entry| line(&wanted[&entry.session], entry)));
        Ok(lines)
    }

    /// Stops recording when the reader has gone.
    pub(crate) fn expire(&mut self, now: Instant, hop: &Hop, peers: &Peers) {
        if self.reader.is_some_and(|(_, asked)| now.saturating_since(asked) > READER_TIMEOUT) {
            *self = Self::default();
            peers.sessions().for_each(|session| _ = hop.events(session, 0, 0));
        }
    }
}

/// The entry as a JSON object that starts with the peer's name.
fn line(peer: &str, entry: &LogEntry) -> String {
    let object = entry.to_string();
    format!(r#"{{"peer":{},{}"#, quoted(peer), object.trim_start_matches('{'))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is plain data")
}
