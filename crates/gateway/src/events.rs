//! Following the sessions' event logs while a gateway runs
//! (`docs/event-log.md`).

use std::collections::BTreeMap;
use std::time::Duration;

use slacp::{LogEntry, SessionId};
use units::Instant;

use crate::hop::Hop;
use crate::peers::Peers;

/// So many events a session notes for the reader.
const CAPACITY: usize = 65_536;
/// So many of them are told of at a time.
const MOST: usize = 20_000;
/// A reader that has not asked for this long has gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who reads the event logs of a gateway, if anybody does: while nobody does,
/// nothing is noted.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Whom, and when it asked last.
    reader: Option<(u64, Instant)>,
    /// How many events of each session gave way before they were read.
    overwritten: BTreeMap<SessionId, u64>,
}

impl Following {
    /// What has happened since `reader` asked last, in the sessions with `peer`, or in
    /// all; a JSON object for each event. The first time, from now on.
    ///
    /// # Errors
    /// When somebody else reads, or there is no such peer.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        (hop, peers): (&Hop, &Peers),
        reader: u64,
        peer: Option<&str>,
    ) -> Result<Vec<String>, String> {
        self.look(now, hop, peers);
        if self.reader.is_some_and(|(other, _)| other != reader) {
            return Err("somebody else is reading the event log".to_owned());
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

    /// Stops noting what nobody reads any more.
    pub(crate) fn look(&mut self, now: Instant, hop: &Hop, peers: &Peers) {
        if self.reader.is_some_and(|(_, asked)| now.saturating_since(asked) > PATIENCE) {
            *self = Self::default();
            peers.sessions().for_each(|session| _ = hop.events(session, 0, 0));
        }
    }
}

/// The entry as a JSON object that begins with the peer's name.
fn line(peer: &str, entry: &LogEntry) -> String {
    let object = entry.to_string();
    format!(r#"{{"peer":{},{}"#, quoted(peer), object.trim_start_matches('{'))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is plain data")
}
