//! The keys of a terminal's hubs beyond its configuration, in a file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::TerminalConfig;
use serde::{Deserialize, Serialize};
use shaping::TokenBucket;
use slacp::PublicKey;
use thiserror::Error;
use units::Instant;

use crate::config::keys::{format_public_key, parse_public_key};
use crate::config::whole_file::{self, PRIVATE};

/// The file in the directory of the key `state`.
const FILE: &str = "terminal-hub-keys.json";
/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes; a terminal has at most 8 hubs.
const MAX_FILE: u64 = 64 << 10;
/// Maximum entries of hubs that are not in the configuration: those of other terminals, and former ones.
const MAX_OTHERS: usize = 64;
/// Minimum interval between announcements of another key by a hub, beyond the first few, which operators
/// who correct themselves need: each is a write that the disk confirms.
const WRITE_INTERVAL: Duration = Duration::from_secs(600);
const WRITE_BURST: u32 = 4;

/// The keys of a terminal's hubs, by the key in the configuration.
#[derive(Debug)]
pub(crate) struct HubKeys {
    path: Option<PathBuf>,
    keys: BTreeMap<PublicKey, KeySuccessors>,
    /// Contents of the file, as far as the configuration has these hubs.
    saved: BTreeMap<PublicKey, KeySuccessors>,
    /// Limits the announcements of each hub that are written to disk.
    writes: BTreeMap<PublicKey, TokenBucket>,
}

/// Successors of a key in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct KeySuccessors {
    /// Key that has replaced it.
    current: Option<PublicKey>,
    /// Key that will replace that one.
    next: Option<PublicKey>,
}

/// Reason for which a key is not stored.
#[derive(Debug, Error)]
pub(crate) enum LearnError {
    /// The terminal has no directory for it.
    #[error("there is no `state` directory to store it in")]
    NoState,
    /// It is the key of another hub.
    #[error("it is the key of another hub")]
    OtherHubs,
    /// The hub announces new keys too often.
    #[error("the hub announces new keys too often")]
    TooOften,
    /// The file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write { path: PathBuf, cause: io::Error },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HubKeyFile {
    skyhop_hub_keys: u32,
    hubs: Vec<HubKeyEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HubKeyEntry {
    configured: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl HubKeys {
    /// Loads the keys of a terminal with this configuration. An unreadable file is logged and
    /// ignored; entries for keys that are no longer configured are dropped.
    pub(crate) fn load(config: &TerminalConfig) -> Self {
        let path = config.operation.state.as_deref().map(|directory| directory.join(FILE));
        let kept = path.as_deref().map(read).unwrap_or_default();
        let known =
            |hub: &config::KnownHub| (hub.key, kept.get(&hub.key).copied().unwrap_or_default());
        let keys: BTreeMap<_, _> = config.hubs.iter().map(known).collect();
        Self { path, saved: keys.clone(), keys, writes: BTreeMap::new() }
    }

    /// The present key of the hub with this configured key.
    pub(crate) fn current(&self, configured: &PublicKey) -> PublicKey {
        self.keys.get(configured).and_then(|known| known.current).unwrap_or(*configured)
    }

    /// The key that will replace the present one, if known.
    pub(crate) fn next(&self, configured: &PublicKey) -> Option<PublicKey> {
        self.keys.get(configured)?.next
    }

    /// All keys that a hub has or will have.
    pub(crate) fn all(&self, configured: &PublicKey) -> impl Iterator<Item = PublicKey> + use<> {
        [Some(*configured), Some(self.current(configured)), self.next(configured)]
            .into_iter()
            .flatten()
    }

    /// Stores a key that a hub announces as its next one. If it is the present key, the hub keeps
    /// that one after all. Only keys that the file does not have are written, and only so often.
    ///
    /// # Errors
    /// The key is not stored; nothing has changed.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        configured: &PublicKey,
        key: PublicKey,
    ) -> Result<(), LearnError> {
        // A hub must not claim the key of another.
        let mut others = self.keys.keys().filter(|other| *other != configured);
        if others.any(|other| self.all(other).any(|its| its == key)) {
            return Err(LearnError::OtherHubs);
        }
        let next = Some(key).filter(|key| *key != self.current(configured));
        if self.path.is_none() {
            return Err(LearnError::NoState);
        }
        let mut keys = self.keys.clone();
        keys.entry(*configured).or_default().next = next;
        // A hub repeats its announcement to whoever may not have stored it.
        if keys != self.saved {
            let full = || TokenBucket::every(WRITE_INTERVAL, WRITE_BURST);
            if !self.writes.entry(*configured).or_insert_with(full).take(now) {
                return Err(LearnError::TooOften);
            }
            self.save(&keys)?;
        }
        self.keys = keys;
        Ok(())
    }

    /// Handles a session set up with this key of a hub. If it is the next key, it replaces the
    /// present one. Returns `true` in this case.
    ///
    /// # Errors
    /// The file cannot be written; the key is replaced until the process ends.
    pub(crate) fn handle_session_key(
        &mut self,
        configured: &PublicKey,
        key: &PublicKey,
    ) -> Result<bool, LearnError> {
        if self.next(configured) != Some(*key) {
            return Ok(false);
        }
        let known = KeySuccessors { current: Some(*key), next: None };
        self.keys.insert(*configured, known);
        let keys = self.keys.clone();
        self.save(&keys).map(|()| true)
    }

    fn save(&mut self, keys: &BTreeMap<PublicKey, KeySuccessors>) -> Result<(), LearnError> {
        let path = self.path.as_deref().ok_or(LearnError::NoState)?;
        let failed = |cause| LearnError::Write { path: path.to_owned(), cause };
        // Another terminal of this machine may have its hubs' keys in the same file.
        let mut all = read(path);
        all.retain(|configured, _| !keys.contains_key(configured));
        while all.len() > MAX_OTHERS {
            all.pop_first();
        }
        all.extend(keys);
        whole_file::replace(path, &format(&all), PRIVATE).map_err(failed)?;
        self.saved.clone_from(keys);
        Ok(())
    }
}

fn format(keys: &BTreeMap<PublicKey, KeySuccessors>) -> Vec<u8> {
    let written = |(configured, known): (&PublicKey, &KeySuccessors)| HubKeyEntry {
        configured: format_public_key(configured),
        current: known.current.as_ref().map(format_public_key),
        next: known.next.as_ref().map(format_public_key),
    };
    let changed = keys.iter().filter(|(_, known)| **known != KeySuccessors::default());
    let contents = HubKeyFile { skyhop_hub_keys: FORMAT, hubs: changed.map(written).collect() };
    serde_json::to_vec_pretty(&contents).expect("keys are plain data")
}

fn read(path: &Path) -> BTreeMap<PublicKey, KeySuccessors> {
    let keys = whole_file::read(path, MAX_FILE).and_then(|text| parse(&text));
    keys.unwrap_or_else(|error| {
        tracing::warn!("{} is ignored: {error}", path.display());
        BTreeMap::new()
    })
}

fn parse(text: &[u8]) -> io::Result<BTreeMap<PublicKey, KeySuccessors>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    // There is no file yet.
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    let contents: HubKeyFile = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    if contents.skyhop_hub_keys != FORMAT {
        return Err(wrong(format!("its format is {}, not {FORMAT}", contents.skyhop_hub_keys)));
    }
    let key = |text: &String| parse_public_key(text).map_err(|e| wrong(e.to_string()));
    let known = |hub: HubKeyEntry| {
        let known = KeySuccessors {
            current: hub.current.as_ref().map(key).transpose()?,
            next: hub.next.as_ref().map(key).transpose()?,
        };
        Ok((key(&hub.configured)?, known))
    };
    contents.hubs.into_iter().map(known).collect()
}

/// Fuzzing: parses a file, and compares it with what would be written in its place.
///
/// # Panics
/// If they differ.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_file(text: &[u8]) {
    let Ok(mut keys) = parse(text) else { return };
    keys.retain(|_, known| *known != KeySuccessors::default());
    assert_eq!(parse(&format(&keys)).ok(), Some(keys));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use os::testkit::durable_steps;

    use super::*;
    use crate::config::keys::PrivateKey;
    use crate::config::read_terminal;

    const NOW: Instant = Instant::from_nanos(1);

    fn key(seed: u8) -> PublicKey {
        slacp::KeyPair::from_private([seed; 32]).public()
    }

    /// A terminal with the hubs 1 and 2, in a directory of its own.
    fn terminal(state: bool) -> (tempfile::TempDir, TerminalConfig) {
        let directory = tempfile::tempdir().unwrap();
        PrivateKey::generate().unwrap().write_file(&directory.path().join("key")).unwrap();
        let mut text = format!(
            "private_key_file = \"key\"\nhub = \"192.0.2.1:1\"\nhub_key = \"{}\"\nrate = \"auto\"\n",
            format_public_key(&key(1))
        );
        if state {
            text += &format!("state = {:?}\n", directory.path());
        }
        text += &format!(
            "[[other_hub]]\naddress = \"192.0.2.2:1\"\nkey = \"{}\"\n[intercept]\ninterfaces = [\"x\"]\n",
            format_public_key(&key(2))
        );
        let path = directory.path().join("terminal.toml");
        fs::write(&path, text).unwrap();
        let config = read_terminal(&path).unwrap();
        (directory, config)
    }

    #[test]
    fn keys_are_followed_across_restarts() {
        let (directory, config) = terminal(true);
        let mut keys = HubKeys::load(&config);
        assert_eq!((keys.current(&key(1)), keys.next(&key(1))), (key(1), None));
        assert!(!keys.handle_session_key(&key(1), &key(3)).unwrap(), "nothing was said of it");
        keys.learn(NOW, &key(1), key(3)).unwrap();
        let mut keys = HubKeys::load(&config);
        assert_eq!((keys.current(&key(1)), keys.next(&key(1))), (key(1), Some(key(3))));
        assert!(!keys.handle_session_key(&key(1), &key(1)).unwrap());
        assert!(keys.handle_session_key(&key(1), &key(3)).unwrap());
        // The one after that, and the other hub's.
        keys.learn(NOW, &key(1), key(4)).unwrap();
        keys.learn(NOW, &key(2), key(5)).unwrap();
        let keys = HubKeys::load(&config);
        assert_eq!((keys.current(&key(1)), keys.next(&key(1))), (key(3), Some(key(4))));
        assert_eq!((keys.current(&key(2)), keys.next(&key(2))), (key(2), Some(key(5))));
        let file = directory.path().join(FILE);
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        // Once the configuration has the new key, the old one is forgotten.
        let mut renewed = config;
        renewed.hubs[0].key = key(3);
        let keys = HubKeys::load(&renewed);
        assert_eq!((keys.current(&key(3)), keys.next(&key(3))), (key(3), None));
    }

    #[test]
    fn terminals_with_one_state_directory_keep_each_other_s_keys() {
        let (_directory, config) = terminal(true);
        let mut other = terminal(true).1;
        other.operation.state.clone_from(&config.operation.state);
        let hub = config::KnownHub { key: key(11), ..other.hubs[0].clone() };
        other.hubs = vec![hub];
        // The second terminal has started before the first one learns anything.
        let [mut first, mut second] = [HubKeys::load(&config), HubKeys::load(&other)];
        first.learn(NOW, &key(1), key(3)).unwrap();
        second.learn(NOW, &key(11), key(13)).unwrap();
        assert_eq!(HubKeys::load(&config).next(&key(1)), Some(key(3)));
        assert_eq!(HubKeys::load(&other).next(&key(11)), Some(key(13)));
        // Hubs that nobody has any more do not fill the file.
        for former in 20..100 {
            let mut terminal = HubKeys { keys: BTreeMap::new(), ..HubKeys::load(&config) };
            terminal.learn(NOW, &key(former), key(0)).unwrap();
        }
        assert_eq!(read(&first.path.unwrap()).len(), MAX_OTHERS + 1);
    }

    #[test]
    fn a_hub_s_next_key_is_on_the_disk_when_the_terminal_confirms_it() {
        let (directory, config) = terminal(true);
        let mut keys = HubKeys::load(&config);
        let learn = || keys.learn(NOW, &key(1), key(3)).unwrap();
        let Some(steps) = durable_steps(directory.path(), learn) else { return };
        assert_eq!(steps, ["sync terminal-hub-keys.new", "rename", "sync ."]);
    }

    #[test]
    fn a_hub_that_keeps_its_key_after_all_says_it_again() {
        let (_directory, config) = terminal(true);
        let mut keys = HubKeys::load(&config);
        keys.learn(NOW, &key(1), key(3)).unwrap();
        keys.learn(NOW, &key(1), key(1)).unwrap();
        assert_eq!(HubKeys::load(&config).next(&key(1)), None);
    }

    /// A replaced file has another inode.
    #[test]
    fn a_hub_makes_its_terminal_write_rarely_however_often_it_announces_keys() {
        let (directory, config) = terminal(true);
        let mut keys = HubKeys::load(&config);
        let inode = || fs::metadata(directory.path().join(FILE)).map_or(0, |file| file.ino());
        let mut announce = |now: Instant, hub: u8, next: u8| {
            let before = inode();
            let learnt = keys.learn(now, &key(hub), key(next));
            assert!(matches!(learnt, Ok(()) | Err(LearnError::TooOften)), "{learnt:?}");
            (learnt.is_ok(), inode() != before)
        };
        assert_eq!(announce(NOW, 1, 3), (true, true));
        for _ in 0..100 {
            assert_eq!(announce(NOW, 1, 3), (true, false), "the file has it");
        }
        let written = (0..100).filter(|i| announce(NOW, 1, 4 + i % 2).1).count();
        assert_eq!(written, WRITE_BURST as usize - 1);
        assert_eq!(announce(NOW, 2, 6), (true, true), "the other hub is not limited by that");
        let [soon, later] = [WRITE_INTERVAL / 2, WRITE_INTERVAL].map(|after| NOW + after);
        assert_eq!(announce(soon, 1, 7), (false, false));
        assert_eq!(announce(later, 1, 7), (true, true));
    }

    #[test]
    fn a_hub_cannot_take_another_s_key() {
        let (_directory, config) = terminal(true);
        let mut keys = HubKeys::load(&config);
        keys.learn(NOW, &key(2), key(5)).unwrap();
        for taken in [key(2), key(5)] {
            assert!(matches!(keys.learn(NOW, &key(1), taken), Err(LearnError::OtherHubs)));
        }
        assert_eq!(keys.next(&key(1)), None);
    }

    #[test]
    fn without_a_place_to_keep_it_a_key_is_not_learnt() {
        let (_directory, config) = terminal(false);
        let mut keys = HubKeys::load(&config);
        assert!(matches!(keys.learn(NOW, &key(1), key(3)), Err(LearnError::NoState)));
        assert_eq!(keys.next(&key(1)), None);
        let (directory, config) = terminal(true);
        let mut keys = HubKeys::load(&config);
        drop(directory);
        assert!(matches!(keys.learn(NOW, &key(1), key(3)), Err(LearnError::Write { .. })));
        assert_eq!(keys.next(&key(1)), None);
    }

    #[test]
    fn a_damaged_file_leaves_the_keys_of_the_configuration() {
        let (directory, config) = terminal(true);
        let foreign = "{\"skyhop_hub_keys\":1,\"hubs\":[{\"configured\":\"x\"}]}";
        for damaged in ["{", "{\"skyhop_hub_keys\":2,\"hubs\":[]}", foreign] {
            fs::write(directory.path().join(FILE), damaged).unwrap();
            assert_eq!(HubKeys::load(&config).current(&key(1)), key(1), "{damaged}");
        }
    }
}
