//! Reads the sessions' event logs of a running gateway (`docs/event-log.md`).

use std::collections::BTreeMap;
use std::time::Duration;

use slacp::{LogEntry, SessionId};
use units::Instant;

use crate::hop::Hop;
use crate::hop::peers::PeerTable;

/// Maximum events that a session records between two reads.
const LOG_CAPACITY: usize = 65_536;
/// Maximum events of each session in an answer.
const MAX_EVENTS: usize = 20_000;
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
    /// Another reader is active, or the peer has no session.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        hop: &Hop,
        peers: &PeerTable,
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
            events.extend(hop.events(*session, LOG_CAPACITY, MAX_EVENTS));
            let overwritten = hop.stats(*session).map_or(0, |stats| stats.log_overwritten);
            let known = self.overwritten.insert(*session, overwritten).unwrap_or(0);
            // The session counts from its beginning: only the growth is reported.
            if let missed @ 1.. = overwritten.saturating_sub(known) {
                let name = quoted(name);
                lines.push(format!(r#"{{"peer":{name},"event":"overwritten","count":{missed}}}"#));
            }
        }
        // Each session has a log of its own; a reader gets one, in the order of time.
        events.sort_by_key(|entry| entry.time);
        lines.extend(events.iter().map(|entry| line(&wanted[&entry.session], entry)));
        Ok(lines)
    }

    /// Stops recording when the reader has gone.
    pub(crate) fn expire(&mut self, now: Instant, hop: &Hop, peers: &PeerTable) {
        if self.reader.is_some_and(|(_, asked)| now.saturating_since(asked) > READER_TIMEOUT) {
            self.stop(hop, peers);
        }
    }

    /// Stops recording if this is the active reader.
    pub(crate) fn end(&mut self, hop: &Hop, peers: &PeerTable, reader: u64) {
        if self.reader.is_some_and(|(active, _)| active == reader) {
            self.stop(hop, peers);
        }
    }

    fn stop(&mut self, hop: &Hop, peers: &PeerTable) {
        *self = Self::default();
        // A capacity of 0 ends the recording.
        peers.sessions().for_each(|session| _ = hop.events(session, 0, 0));
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

#[cfg(test)]
mod tests {
    use units::BitRate;

    use super::*;
    use crate::testkit::Hops;

    /// The hub's view of a terminal whose name has to be quoted.
    fn ship() -> (Hops, PeerTable) {
        let hops = Hops::new();
        let names = BTreeMap::from([(Hops::key(1), NAME.to_owned())]);
        let rate = slacp::Rate::Fixed(BitRate::from_mbit(1));
        let mut peers = PeerTable::new(&rate, None, names, false);
        peers.handle_event(hops.now, &hops.hops[0], hops.sessions[0], &hops.ups[0]);
        (hops, peers)
    }

    const NAME: &str = "the \"ship\"";

    /// Traffic in both directions.
    fn talk(hops: &mut Hops) {
        let [near, far] = hops.open();
        drop((near, far));
        hops.pass(Duration::from_millis(10));
    }

    #[test]
    fn recording_begins_with_the_first_request_and_each_event_is_read_once() {
        let (mut hops, peers) = ship();
        let (hub, mut reader) = (hops.hops[0].clone(), EventReader::default());
        talk(&mut hops);
        let first = reader.read(hops.now, &hub, &peers, 1, None).unwrap();
        assert_eq!(first, Vec::<String>::new());
        talk(&mut hops);
        let lines = reader.read(hops.now, &hub, &peers, 1, Some(NAME)).unwrap();
        assert!(!lines.is_empty());
        let times = lines.iter().map(|line| {
            let object: serde_json::Value = serde_json::from_str(line).expect(line);
            assert_eq!(object["peer"], NAME);
            object["time"].as_f64().expect(line)
        });
        assert!(times.collect::<Vec<_>>().is_sorted());
        assert_eq!(reader.read(hops.now, &hub, &peers, 1, None), Ok(vec![]));
    }

    #[test]
    fn another_reader_waits_until_the_first_has_gone() {
        let (mut hops, peers) = ship();
        let (hub, mut reader) = (hops.hops[0].clone(), EventReader::default());
        reader.read(hops.now, &hub, &peers, 1, None).unwrap();
        let last = hops.now + READER_TIMEOUT;
        assert!(reader.read(last, &hub, &peers, 2, None).unwrap_err().contains("another"));
        talk(&mut hops);
        let gone = last + Duration::from_nanos(1);
        // What was recorded for the first is not of interest to the second.
        assert_eq!(reader.read(gone, &hub, &peers, 2, None), Ok(vec![]));
        assert!(reader.read(gone, &hub, &peers, 1, None).is_err());
    }

    #[test]
    fn another_reader_begins_at_once_if_the_first_says_that_it_ends() {
        let (mut hops, peers) = ship();
        let (hub, mut reader) = (hops.hops[0].clone(), EventReader::default());
        reader.read(hops.now, &hub, &peers, 1, None).unwrap();
        reader.end(&hub, &peers, 2);
        assert!(reader.read(hops.now, &hub, &peers, 2, None).is_err());
        reader.end(&hub, &peers, 1);
        talk(&mut hops);
        assert_eq!(hub.events(hops.sessions[0], LOG_CAPACITY, MAX_EVENTS), vec![]);
        assert!(reader.read(hops.now, &hub, &peers, 2, None).is_ok());
    }

    #[test]
    fn nothing_is_recorded_once_the_reader_has_gone() {
        let (mut hops, peers) = ship();
        let (hub, mut reader) = (hops.hops[0].clone(), EventReader::default());
        let [session, _] = hops.sessions;
        reader.read(hops.now, &hub, &peers, 1, None).unwrap();
        reader.expire(hops.now + READER_TIMEOUT, &hub, &peers);
        talk(&mut hops);
        assert!(
            !hub.events(session, LOG_CAPACITY, MAX_EVENTS).is_empty(),
            "it may still come back"
        );
        reader.expire(hops.now + READER_TIMEOUT + Duration::from_secs(1), &hub, &peers);
        talk(&mut hops);
        assert_eq!(hub.events(session, LOG_CAPACITY, MAX_EVENTS), vec![]);
    }

    #[test]
    fn a_peer_without_a_session_is_an_error_and_takes_the_log_from_nobody() {
        let (hops, peers) = ship();
        let (hub, mut reader) = (hops.hops[0].clone(), EventReader::default());
        let unknown = reader.read(hops.now, &hub, &peers, 1, Some("other"));
        assert_eq!(unknown.unwrap_err(), "no session with other");
        assert!(reader.read(hops.now, &hub, &peers, 2, None).is_ok());
    }

    #[test]
    fn events_that_were_overwritten_are_counted_once() {
        let (mut hops, peers) = ship();
        let (hub, mut reader) = (hops.hops[0].clone(), EventReader::default());
        let [session, _] = hops.sessions;
        reader.read(hops.now, &hub, &peers, 1, None).unwrap();
        // Room for one event until the next request.
        assert_eq!(hub.events(session, 1, 0), vec![]);
        talk(&mut hops);
        let missed = hub.stats(session).unwrap().log_overwritten;
        assert!(missed > 0);
        let lines = reader.read(hops.now, &hub, &peers, 1, None).unwrap();
        let told: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((&told["event"], &told["count"]), (&"overwritten".into(), &missed.into()));
        let again = reader.read(hops.now, &hub, &peers, 1, None).unwrap();
        assert!(!again.iter().any(|line| line.contains("overwritten")), "{again:?}");
    }
}
