//! The last contact of a hub with each of its terminals, and the reason for its end: for the status
//! of absent terminals. Kept in a file across restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use config::PermittedTerminal;
use control::status::AbsentStatus;
use pep::timing::Periodic;
use serde::{Deserialize, Serialize};
use slacp::{DownReason, Event, PublicKey};
use units::Instant;

use crate::config::keys::{format_public_key, parse_public_key};
use crate::config::whole_file::{self, PRIVATE};

/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes: more than 100,000 terminals.
const MAX_FILE: u64 = 32 << 20;
/// Interval for saving: a crash loses at most this much.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// The last sign of life of a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastContact {
    /// Time of the last contact, in Unix seconds.
    heard_unix_s: u64,
    /// Reason for which it is no longer connected.
    why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastContactFile {
    skyhop_last_contacts: u32,
    terminals: BTreeMap<String, LastContact>,
}

/// The last contacts of a hub's permitted terminals.
pub(crate) struct LastContacts {
    /// `None` keeps them in memory only.
    file: Option<PathBuf>,
    names: BTreeMap<PublicKey, String>,
    contacts: BTreeMap<PublicKey, LastContact>,
    save: Periodic,
    /// Writes the file: the disk may take longer than a hub may pause.
    writer: Option<JoinHandle<()>>,
}

impl LastContacts {
    /// Continues the record in the directory `state`. A damaged file is logged and ignored.
    pub(crate) fn open(now: Instant, state: Option<&Path>) -> Self {
        let file = state.map(|directory| directory.join("hub-last-contacts.json"));
        let contacts = file.as_deref().map(load).unwrap_or_default();
        Self {
            file,
            names: BTreeMap::new(),
            contacts,
            save: Periodic::new(SAVE_INTERVAL, now + SAVE_INTERVAL),
            writer: None,
        }
    }

    /// Applies the permitted terminals; others are forgotten. Invitations do not count as absent
    /// terminals.
    pub(crate) fn configure(&mut self, terminals: &[PermittedTerminal]) {
        let expected = terminals.iter().filter(|terminal| !terminal.invited);
        self.names = expected.map(|terminal| (terminal.key, terminal.name.clone())).collect();
        let names = &self.names;
        self.contacts.retain(|key, _| names.contains_key(key));
    }

    /// Handles an event of a session with the terminal of this key.
    pub(crate) fn handle_event(&mut self, unix_s: u64, key: PublicKey, event: &Event) {
        let known = self.contacts.get(&key);
        let (heard_unix_s, why) = match event {
            Event::Up { .. } | Event::Reachable => (unix_s, CONNECTED.to_owned()),
            Event::Unreachable => (unix_s, "it stopped answering".to_owned()),
            // It was last heard before it became unreachable.
            Event::Down(DownReason::GivenUp) => {
                (known.map_or(unix_s, |known| known.heard_unix_s), DownReason::GivenUp.to_string())
            }
            Event::Down(why) => (unix_s, why.to_string()),
            _ => return,
        };
        if self.names.contains_key(&key) {
            self.contacts.insert(key, LastContact { heard_unix_s, why });
        }
    }

    /// The terminals without a session, by name.
    pub(crate) fn absent(&self, unix_s: u64, connected: &BTreeSet<PublicKey>) -> Vec<AbsentStatus> {
        let absent = self.names.iter().filter(|(key, _)| !connected.contains(key));
        let row = |(key, name): (&PublicKey, &String)| {
            let contact = self.contacts.get(key);
            let heard = contact.map(|contact| contact.heard_unix_s);
            AbsentStatus {
                peer: name.clone(),
                key: format_public_key(key),
                last_heard_unix_s: heard,
                silent_s: heard.map(|heard| unix_s.saturating_sub(heard) as f64),
                why: contact.map(|contact| contact.why.clone()),
            }
        };
        let mut rows: Vec<AbsentStatus> = absent.map(row).collect();
        rows.sort_by(|one, other| one.peer.cmp(&other.peer));
        rows
    }

    /// Begins to save, if it is time. The terminals in `reachable` are in contact now.
    pub(crate) fn save_if_due(
        &mut self,
        now: Instant,
        unix_s: u64,
        reachable: &BTreeSet<PublicKey>,
    ) {
        let is_free = self.writer.as_ref().is_none_or(JoinHandle::is_finished);
        if is_free && self.save.is_due(now) {
            self.begin_saving(unix_s, reachable);
        }
    }

    /// Saves, and waits for the disk.
    pub(crate) fn save(&mut self, unix_s: u64, reachable: &BTreeSet<PublicKey>) {
        // An older text must not be written after this one.
        self.wait();
        self.begin_saving(unix_s, reachable);
        self.wait();
    }

    fn begin_saving(&mut self, unix_s: u64, reachable: &BTreeSet<PublicKey>) {
        // If the hub crashes, this is the last that is known of them.
        for key in reachable {
            if let Some(contact) = self.contacts.get_mut(key) {
                *contact = LastContact { heard_unix_s: unix_s, why: CONNECTED.to_owned() };
            }
        }
        let Some(path) = self.file.clone() else { return };
        let contacts = self.contacts.clone();
        self.writer = Some(thread::spawn(move || {
            if let Err(error) = whole_file::replace(&path, &format(contacts), PRIVATE) {
                tracing::warn!("cannot save {}: {error}", path.display());
            }
        }));
    }

    fn wait(&mut self) {
        // Fails only if the writer has panicked.
        self.writer.take().map(JoinHandle::join);
    }
}

/// Reason shown for a terminal that was connected when the hub itself ended.
const CONNECTED: &str = "it was connected until the hub stopped";

fn format(contacts: BTreeMap<PublicKey, LastContact>) -> Vec<u8> {
    let row = |(key, contact)| (format_public_key(&key), contact);
    let terminals = contacts.into_iter().map(row).collect();
    let contents = LastContactFile { skyhop_last_contacts: FORMAT, terminals };
    serde_json::to_vec(&contents).expect("contacts are plain data")
}

fn load(path: &Path) -> BTreeMap<PublicKey, LastContact> {
    let read = whole_file::read(path, MAX_FILE).and_then(|text| parse(&text));
    read.unwrap_or_else(|error| {
        tracing::warn!("{} is ignored: {error}", path.display());
        BTreeMap::new()
    })
}

fn parse(text: &[u8]) -> io::Result<BTreeMap<PublicKey, LastContact>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    // There is no file yet.
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    let contents: LastContactFile =
        serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
    if contents.skyhop_last_contacts != FORMAT {
        return Err(wrong(format!(
            "its format is {}, not {FORMAT}",
            contents.skyhop_last_contacts
        )));
    }
    let entry = |(key, contact): (String, LastContact)| {
        Ok((parse_public_key(&key).map_err(|error| wrong(error.to_string()))?, contact))
    };
    contents.terminals.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use slacp::CloseReason;

    use super::*;
    use crate::testkit::{Hops, permitted};

    fn absent(contacts: &LastContacts) -> Vec<(Option<u64>, Option<&'static str>)> {
        let rows = contacts.absent(5_000, &BTreeSet::new()).into_iter();
        rows.map(|row| (row.last_heard_unix_s, row.why.map(|why| &*why.leak()))).collect()
    }

    #[test]
    fn a_terminal_is_absent_since_it_was_last_heard_for_the_reason_that_ended_its_session() {
        let ship = Hops::key(1);
        let mut contacts = LastContacts::open(Instant::ZERO, None);
        contacts.configure(&[permitted("ship", ship)]);
        assert_eq!(absent(&contacts), [(None, None)]);
        assert_eq!(contacts.absent(5_000, &BTreeSet::from([ship])), []);

        let address = crate::testkit::address(1);
        contacts.handle_event(100, ship, &Event::Up { peer: ship, address });
        contacts.handle_event(200, ship, &Event::Unreachable);
        contacts.handle_event(1_100, ship, &Event::Down(DownReason::GivenUp));
        assert_eq!(
            absent(&contacts),
            [(Some(200), Some("the other side has been silent for too long"))]
        );
        contacts.handle_event(2_000, ship, &Event::Up { peer: ship, address });
        let stopped = DownReason::ClosedByPeer(CloseReason::Shutdown);
        contacts.handle_event(2_100, ship, &Event::Down(stopped));
        assert_eq!(absent(&contacts), [(Some(2_100), Some("the other side is stopping"))]);

        // One that is served no more is not missed.
        contacts.configure(&[]);
        assert_eq!(absent(&contacts), []);
    }

    #[test]
    fn last_contacts_survive_a_restart_and_a_crash() {
        let directory = tempfile::tempdir().unwrap();
        let ship = Hops::key(1);
        let open = || {
            let mut contacts = LastContacts::open(Instant::ZERO, Some(directory.path()));
            contacts.configure(&[permitted("ship", ship)]);
            contacts
        };
        let mut contacts = open();
        let address = crate::testkit::address(1);
        contacts.handle_event(100, ship, &Event::Up { peer: ship, address });
        let connected = BTreeSet::from([ship]);
        contacts.save_if_due(Instant::ZERO + SAVE_INTERVAL / 2, 130, &connected);
        assert!(contacts.writer.is_none(), "not yet");
        contacts.save_if_due(Instant::ZERO + SAVE_INTERVAL, 160, &connected);
        contacts.wait();
        assert_eq!(absent(&open()), [(Some(160), Some(CONNECTED))]);

        let path = directory.path().join("hub-last-contacts.json");
        let whole = fs::read_to_string(&path).unwrap();
        for damaged in [&whole[1..], "[]", &whole.replace(":1,", ":2,")] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(absent(&open()), [(None, None)], "{damaged}");
        }
    }
}
