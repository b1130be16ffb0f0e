//! Stores the addresses at which a hub last heard its terminals, so that the process after a crash can
//! call them (`docs/slacp.md`, Lost sessions).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt;
use pep::timing::Periodic;
use serde::{Deserialize, Serialize};
use slacp::TerminalContact;
use tokio::task::{JoinHandle, spawn_blocking};
use units::Instant;

use super::Hop;
use crate::config::whole_file::{self, PRIVATE};

/// The file in the directory of the key `state`.
const FILE: &str = "hub-contacts.json";
/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes: enough for 100,000 terminals.
const LONGEST: u64 = 8 << 20;
/// Interval between two comparisons with the current sessions. A terminal that is newer than the file
/// notices a crash by its keepalives.
const EVERY: Duration = Duration::from_secs(2);
/// Time after the start in which the file is not rewritten, so that it keeps the terminals that were called
/// until they have come back.
const AT_FIRST: Duration = Duration::from_secs(30);

/// The file with the contacts of a hub.
pub(crate) struct ContactStore {
    path: PathBuf,
    look: Periodic,
    /// Address and index of each session in the file; `None` if it could not be written.
    written: Option<BTreeSet<(SocketAddr, u32)>>,
    /// The write in progress, on a thread of its own.
    writing: Option<JoinHandle<io::Result<()>>>,
    /// The last write has failed, and was logged.
    has_failed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContactFile {
    skyhop_contacts: u32,
    /// Address, session index and last packet number of each terminal.
    contacts: Vec<(SocketAddr, u32, u64)>,
}

impl ContactStore {
    /// Creates the store of this directory, without reading it.
    pub(crate) fn new(now: Instant, directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            look: Periodic::new(EVERY, now + AT_FIRST),
            written: Some(BTreeSet::new()),
            writing: None,
            has_failed: false,
        }
    }

    /// Reads the file. A missing file counts as empty; a damaged one is logged and ignored.
    pub(crate) fn load(&self) -> Vec<TerminalContact> {
        let read = whole_file::read(&self.path, LONGEST).and_then(|text| parse(&text));
        read.unwrap_or_else(|error| {
            tracing::warn!("{} is ignored: {error}", self.path.display());
            Vec::new()
        })
    }

    /// Rewrites the file, on a thread of its own, if sessions have begun, ended or changed address.
    pub(crate) fn housekeep(&mut self, now: Instant, hop: &Hop) {
        let is_writing = self.writing.as_ref().is_some_and(|writing| !writing.is_finished());
        if !self.look.is_due(now) || is_writing {
            return;
        }
        self.follow_write();
        let contacts = hop.contacts();
        let sessions =
            Some(contacts.iter().map(|contact| (contact.address, contact.index)).collect());
        // Packet numbers alone are no reason to write: each packet changes them.
        if sessions == self.written {
            return;
        }
        self.written = sessions;
        let path = self.path.clone();
        self.writing =
            Some(spawn_blocking(move || whole_file::replace(&path, &format(&contacts), PRIVATE)));
    }

    /// Checks the result of the last write. After a failure, the next housekeeping tries again.
    fn follow_write(&mut self) {
        let ended = self.writing.take().and_then(FutureExt::now_or_never);
        let Some(Ok(Err(error))) = ended else {
            self.has_failed &= ended.is_none();
            return;
        };
        self.written = None;
        if !self.has_failed {
            tracing::warn!("cannot save {}, trying again: {error}", self.path.display());
        }
        self.has_failed = true;
    }

    /// Removes the file: the terminals have been told that the hub stops.
    pub(crate) async fn remove(self) {
        if let Some(writing) = self.writing {
            // Wait for it, or it could create the file again.
            let _ = writing.await;
        }
        // The file may not exist.
        let _ = fs::remove_file(&self.path);
    }
}

fn format(contacts: &[TerminalContact]) -> Vec<u8> {
    let row = |contact: &TerminalContact| (contact.address, contact.index, contact.number);
    let contacts = contacts.iter().map(row).collect();
    let contents = ContactFile { skyhop_contacts: FORMAT, contacts };
    serde_json::to_vec(&contents).expect("contacts are plain data")
}

fn parse(text: &[u8]) -> io::Result<Vec<TerminalContact>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let contents: ContactFile = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    if contents.skyhop_contacts != FORMAT {
        return Err(wrong(format!("its format is {}, not {FORMAT}", contents.skyhop_contacts)));
    }
    let contact = |(address, index, number)| TerminalContact { address, index, number };
    Ok(contents.contacts.into_iter().map(contact).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Hops;

    #[tokio::test]
    async fn contacts_are_written_after_a_while_and_removed_at_the_end() {
        let (directory, hops) = (tempfile::tempdir().unwrap(), Hops::new());
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut store = ContactStore::new(at(0), directory.path());
        assert_eq!(store.load(), []);
        store.housekeep(at(29), &hops.hops[0]);
        assert!(store.writing.is_none(), "those of before may still be needed");
        store.housekeep(at(30), &hops.hops[0]);
        store.writing.take().unwrap().await.unwrap().unwrap();
        assert_eq!(store.load(), hops.hops[0].contacts());
        assert_eq!(store.load().len(), 1);
        store.housekeep(at(40), &hops.hops[0]);
        assert!(store.writing.is_none(), "nothing has changed");
        store.remove().await;
        assert!(fs::read_dir(directory.path()).unwrap().next().is_none());
    }

    /// Of a disk that was full for a while, the file is written when there is room again.
    #[tokio::test]
    async fn a_write_that_failed_is_tried_again() {
        let (directory, hops) = (tempfile::tempdir().unwrap(), Hops::new());
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut store = ContactStore::new(at(0), &directory.path().join("later"));
        store.housekeep(at(30), &hops.hops[0]);
        while store.writing.as_ref().is_some_and(|it| !it.is_finished()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.load(), []);
        fs::create_dir(directory.path().join("later")).unwrap();
        store.housekeep(at(40), &hops.hops[0]);
        assert!(store.has_failed);
        store.writing.take().unwrap().await.unwrap().unwrap();
        assert_eq!(store.load().len(), 1);
    }

    #[test]
    fn a_damaged_file_calls_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let store = ContactStore::new(Instant::ZERO, directory.path());
        for damaged in ["{", "{\"skyhop_contacts\":2,\"contacts\":[]}", "[]"] {
            fs::write(directory.path().join(FILE), damaged).unwrap();
            assert_eq!(store.load(), [], "{damaged}");
        }
    }
}
