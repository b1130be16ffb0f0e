//! The permits of a hub's terminals: files in a directory, or texts in etcd, each with the keys of
//! a section `[[terminal]]`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use config::FileError;
use config::{ConfigFile, PermittedTerminals};
use config::{HubConfig, PermittedTerminal};
use pep::egress::EgressRules;
use units::UnixTime;

/// The texts of the permits in etcd, by their keys without the prefix.
pub(crate) type PermitTexts = BTreeMap<String, String>;

/// Size limit of a permit's file, in bytes.
const MAX_PERMIT: u64 = 64 << 10;
/// Maximum number of permits in the directory; further ones are ignored.
pub(crate) const MAX_PERMITS: usize = 100_000;
/// File name extension of permits.
const EXTENSION: &str = "toml";

/// Length and modification time of a file, which reveal a change.
type FileMark = (u64, Option<SystemTime>);

/// The terminals of a hub: those in its configuration file, and those with permits.
pub(crate) struct TerminalPermits {
    config: HubConfig,
    /// The files of the permits, as last read.
    files: BTreeMap<PathBuf, (FileMark, String)>,
    /// The permits in etcd, by pseudo-paths.
    remote: BTreeMap<PathBuf, String>,
    /// The last valid text of each permit.
    last_valid: BTreeMap<PathBuf, String>,
    terminals: Vec<PermittedTerminal>,
    /// The permit of each terminal that has one, by name.
    paths: BTreeMap<String, PathBuf>,
}

impl TerminalPermits {
    /// Reads the permits of a hub with this configuration, if it has a directory of them. Refused
    /// ones are logged.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn read(config: &HubConfig) -> Result<Self, FileError> {
        let mut permits = Self {
            config: config.clone(),
            files: BTreeMap::new(),
            remote: BTreeMap::new(),
            last_valid: BTreeMap::new(),
            terminals: Vec::new(),
            paths: BTreeMap::new(),
        };
        permits.read_directory()?;
        permits.parse_terminals();
        Ok(permits)
    }

    pub(crate) fn config(&self) -> &HubConfig {
        &self.config
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        self.config.permits.as_deref()
    }

    /// Applies another configuration of the hub. If its permits cannot be read, nothing changes.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub(crate) fn configure(&mut self, config: &HubConfig) -> Result<(), FileError> {
        let mut next = Self::read(config)?;
        let same = next.config.permits == self.config.permits;
        if next.config.etcd.is_some() {
            next.remote = std::mem::take(&mut self.remote);
        }
        // Texts that were valid before stay in force if they are from the same place.
        if same || !next.remote.is_empty() {
            next.last_valid = std::mem::take(&mut self.last_valid);
            next.parse_terminals();
        }
        *self = next;
        Ok(())
    }

    /// Reads changed permits. Returns `true` if there were any. If the directory cannot be read,
    /// the permits stay as they are.
    pub(crate) fn refresh(&mut self) -> bool {
        match self.read_directory() {
            Ok(false) => return false,
            Ok(true) => self.parse_terminals(),
            Err(error) => {
                tracing::warn!("{error}: the terminals stay as they are");
                return false;
            }
        }
        true
    }

    /// Applies the permits in etcd, by name. Returns `true` if they have changed.
    pub(crate) fn set_remote(&mut self, texts: &PermitTexts) -> bool {
        let place = |(name, text): (&String, &String)| (remote_path(name), text.clone());
        let remote: BTreeMap<PathBuf, String> = texts.iter().map(place).collect();
        if remote == self.remote {
            return false;
        }
        self.remote = remote;
        self.parse_terminals();
        true
    }

    /// Reads the directory. Returns `true` if it has changed.
    fn read_directory(&mut self) -> Result<bool, FileError> {
        let Some(directory) = self.config.permits.clone() else { return Ok(false) };
        let failed = |cause| FileError::Read { file: directory.display().to_string(), cause };
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // A hidden file may be one that is still being written.
            let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes()[0] == b'.');
            if hidden || path.extension().is_none_or(|ending| ending != EXTENSION) {
                continue;
            }
            // The file was removed after the directory was read.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let mark = (metadata.len(), metadata.modified().ok());
            // Only changed files are read again, of which there may be 100,000.
            let known = self.files.get(&path).filter(|(known, _)| *known == mark);
            let text = match known {
                Some((_, text)) => text.clone(),
                None => read_permit(&path, metadata.len()).unwrap_or_else(|error| {
                    tracing::warn!("cannot read {}: {error}", path.display());
                    String::new()
                }),
            };
            found.insert(path, (mark, text));
            if found.len() == MAX_PERMITS {
                tracing::warn!("{}: only {MAX_PERMITS} permits are read", directory.display());
                break;
            }
        }
        let changed = found != self.files;
        self.files = found;
        Ok(changed)
    }

    /// Parses all permits. For a permit that is invalid, or contradicts an unchanged one, its last
    /// valid text stays in force.
    fn parse_terminals(&mut self) {
        let texts: BTreeMap<PathBuf, String> =
            self.files.iter().map(|(path, (_, text))| (path.clone(), text.clone())).collect();
        let texts: BTreeMap<PathBuf, String> =
            texts.into_iter().chain(self.remote.clone()).collect();
        let mut permitted = self.parse(&texts);
        let mut used = texts;
        if !permitted.refused.is_empty() {
            for (path, error) in &permitted.refused {
                tracing::warn!("permit refused: {error}");
                match self.last_valid.get(path) {
                    Some(good) => used.insert(path.clone(), good.clone()),
                    None => used.remove(path),
                };
            }
            permitted = self.parse(&used);
        }
        for (path, _) in &permitted.refused {
            used.remove(path);
        }
        self.paths = permitted.paths;
        self.terminals = permitted.terminals;
        // Terminals without a path, those of the hub's file, come first.
        self.terminals.sort_by_key(|terminal| self.paths.get(&terminal.name));
        self.last_valid = used;
    }

    /// Parses permits: unchanged ones first, so that of two contradicting permits the changed one
    /// is refused.
    fn parse(&self, texts: &BTreeMap<PathBuf, String>) -> PermittedTerminals {
        let has_changed = |file: &ConfigFile<'_>| {
            self.last_valid.get(file.path).is_none_or(|good| good != file.text)
        };
        let file = |(path, text)| ConfigFile { path, text, regular: true };
        let mut files: Vec<ConfigFile<'_>> =
            texts.iter().map(|(path, text)| file((&**path, &**text))).collect();
        files.sort_by_key(has_changed);
        PermittedTerminals::read(&self.config, &files)
    }

    /// The terminals that are served at this time. Invitations are served without access to
    /// anything.
    pub(crate) fn served(&self, now: UnixTime) -> Vec<PermittedTerminal> {
        let served = |terminal: &&PermittedTerminal| terminal.expires.is_none_or(|end| now < end);
        let served = self.terminals.iter().filter(served).cloned();
        let bounded = served.map(|terminal| match terminal.invited {
            true => PermittedTerminal {
                networks: Vec::new(),
                egress: EgressRules::nowhere(),
                ..terminal
            },
            false => terminal,
        });
        bounded.collect()
    }

    /// The number of terminals that have expired at this time. It changes when a terminal expires,
    /// or when the clock steps across such a moment.
    pub(crate) fn expired(&self, now: UnixTime) -> usize {
        let ends = self.terminals.iter().filter_map(|terminal| terminal.expires);
        ends.filter(|end| *end <= now).count()
    }

    /// All terminals, also expired ones and invitations.
    pub(crate) fn all(&self) -> &[PermittedTerminal] {
        &self.terminals
    }

    /// Names of the terminals with permits, for error messages.
    pub(crate) fn names(&self) -> String {
        self.paths.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    }

    /// The storage place of a terminal's permit.
    pub(crate) fn location_of(&self, name: &str) -> Option<PermitLocation> {
        let path = self.paths.get(name)?;
        let remote = path.strip_prefix(REMOTE).ok().filter(|_| self.remote.contains_key(path));
        Some(match remote {
            // Only the extension was added; other dots are part of the key.
            Some(key) => PermitLocation::Etcd(key.with_extension("").display().to_string()),
            None => PermitLocation::File(path.clone()),
        })
    }
}

/// Storage place of a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermitLocation {
    /// Path of the permit's file.
    File(PathBuf),
    /// Key in etcd without the prefix.
    Etcd(String),
}

/// First component of pseudo-paths in messages.
const REMOTE: &str = "etcd:";

/// The pseudo-path of a permit in etcd.
pub(crate) fn remote_path(name: &str) -> PathBuf {
    Path::new(REMOTE).join(format!("{name}.{EXTENSION}"))
}

fn read_permit(path: &Path, length: u64) -> io::Result<String> {
    if length > MAX_PERMIT {
        return Err(io::Error::other(format!("it is longer than {MAX_PERMIT} bytes")));
    }
    fs::read_to_string(path)
}

/// Checks the permits of a hub as `skyhop check` does; the first refusal is the error.
pub(super) fn check(config: &HubConfig) -> Result<(), FileError> {
    let permits = TerminalPermits::read(config)?;
    let texts = permits.files.iter().map(|(path, (_, text))| (path.clone(), text.clone()));
    let refused = permits.parse(&texts.collect()).refused;
    refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

pub(super) fn check_permit(file: &ConfigFile<'_>) -> Result<(), FileError> {
    PermittedTerminals::check(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::{PrivateKey, format_public_key};
    use crate::config::read_hub;

    struct Site(tempfile::TempDir);

    impl Site {
        /// A hub with one terminal in its file, and this line.
        fn new(line: &str) -> Self {
            let site = Self(tempfile::tempdir().unwrap());
            fs::create_dir(site.0.path().join("permits")).unwrap();
            PrivateKey::generate().unwrap().write_file(&site.0.path().join("hub.key")).unwrap();
            let text = format!(
                "private_key_file = \"hub.key\"\nrate = \"10 Mbit/s\"\npermits = \"permits\"\n{line}\n\
                 [[terminal]]\nname = \"base\"\nkey = \"{}\"\nnetworks = [\"10.0.0.0/16\"]\n",
                key(1)
            );
            fs::write(site.0.path().join("hub.toml"), text).unwrap();
            site
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join("permits").join(name), text).unwrap();
        }

        fn permits(&self) -> TerminalPermits {
            TerminalPermits::read(&read_hub(&self.0.path().join("hub.toml")).unwrap()).unwrap()
        }
    }

    fn key(seed: u8) -> String {
        format_public_key(&slacp::KeyPair::from_private([seed; 32]).public())
    }

    fn names(permits: &TerminalPermits) -> Vec<String> {
        let terminals = permits.served(UnixTime::from_seconds(1_000_000_000));
        terminals.into_iter().map(|terminal| terminal.name).collect()
    }

    #[test]
    fn permits_come_and_go_with_their_files() {
        let site = Site::new("");
        let mut permits = site.permits();
        assert_eq!(names(&permits), ["base"]);
        assert!(!permits.refresh());
        site.write("ship.toml", &format!("key = \"{}\"\nnetworks = [\"10.1.0.0/16\"]\n", key(2)));
        site.write("rig.toml", &format!("name = \"rig-7\"\nkey = \"{}\"\n", key(3)));
        site.write("notes.txt", "not a permit");
        site.write(".ship.toml.new", "half a permit");
        assert!(permits.refresh() && !permits.refresh());
        assert_eq!(names(&permits), ["base", "rig-7", "ship"]);
        let file = |name: &str| match permits.location_of(name) {
            Some(PermitLocation::File(path)) => path,
            other => panic!("{other:?}"),
        };
        assert!(file("rig-7").ends_with("rig.toml"));
        fs::remove_file(file("ship")).unwrap();
        assert!(permits.refresh());
        assert_eq!(names(&permits), ["base", "rig-7"]);
    }

    #[test]
    fn permits_in_etcd_are_beside_those_in_files() {
        let site = Site::new("");
        let mut permits = site.permits();
        site.write("ship.toml", &format!("key = \"{}\"\n", key(2)));
        let text = |seed| format!("key = \"{}\"\n", key(seed));
        let mut texts =
            PermitTexts::from([("rig.7".to_owned(), text(3)), ("buoy".to_owned(), text(4))]);
        assert!(permits.set_remote(&texts) && !permits.set_remote(&texts));
        assert!(permits.refresh());
        assert_eq!(names(&permits), ["base", "ship", "buoy", "rig.7"]);
        assert_eq!(permits.location_of("rig.7"), Some(PermitLocation::Etcd("rig.7".to_owned())));
        assert!(matches!(permits.location_of("ship"), Some(PermitLocation::File(_))));
        // One that is no longer valid counts as it was; one that is gone is gone.
        texts.insert("buoy".to_owned(), "kye".to_owned());
        texts.remove("rig.7");
        assert!(permits.set_remote(&texts));
        assert_eq!(names(&permits), ["base", "ship", "buoy"]);
    }

    #[test]
    fn a_bad_permit_leaves_the_others_and_its_last_good_state() {
        let site = Site::new("");
        let ship = |network: &str| format!("key = \"{}\"\nnetworks = [\"{network}\"]\n", key(2));
        site.write("ship.toml", &ship("10.1.0.0/16"));
        let mut permits = site.permits();
        for bad in ["key = 7", "kye = \"x\"", "", &ship("10.0.1.0/24"), &ship("10.1.0.0/99")] {
            site.write("ship.toml", bad);
            assert!(permits.refresh(), "{bad}");
            assert_eq!(names(&permits), ["base", "ship"], "{bad}");
            let terminals = permits.served(UnixTime::from_seconds(0));
            assert_eq!(terminals[1].networks[0].to_string(), "10.1.0.0/16");
        }
        // One that never was good is left out, and `skyhop check` names it.
        site.write("rig.toml", &format!("key = \"{}\"\n", key(1)));
        assert!(permits.refresh());
        assert_eq!(names(&permits), ["base", "ship"]);
        site.write("ship.toml", &ship("10.1.0.0/16"));
        let config = read_hub(&site.0.path().join("hub.toml")).unwrap();
        let error = check(&config).unwrap_err().to_string();
        assert!(error.contains("rig.toml:1: key") && error.contains("base"), "{error}");
    }

    #[test]
    fn a_new_permit_displaces_none() {
        let site = Site::new("");
        let permit =
            |seed, network: &str| format!("key = \"{}\"\nnetworks = [\"{network}\"]\n", key(seed));
        site.write("b.toml", &permit(2, "10.1.0.0/16"));
        site.write("c.toml", &permit(3, "10.2.0.0/16"));
        let mut permits = site.permits();
        // In the order of names these come first.
        for bad in [permit(4, "10.2.1.0/24"), permit(3, "10.3.0.0/16")] {
            site.write("a.toml", &bad);
            site.write("b.toml", &bad);
            assert!(permits.refresh());
            assert_eq!(names(&permits), ["base", "b", "c"], "{bad}");
            assert_eq!(permits.all()[1].networks[0].to_string(), "10.1.0.0/16");
        }
        // What changes together may trade places.
        site.write("b.toml", &permit(2, "10.2.0.0/16"));
        site.write("c.toml", &permit(3, "10.1.0.0/16"));
        fs::remove_file(site.0.path().join("permits/a.toml")).unwrap();
        assert!(permits.refresh());
        assert_eq!(permits.all()[1].networks[0].to_string(), "10.2.0.0/16");
    }

    #[test]
    fn a_directory_that_cannot_be_read_changes_nothing() {
        let site = Site::new("");
        site.write("ship.toml", &format!("key = \"{}\"\n", key(2)));
        let mut permits = site.permits();
        let directory = site.0.path().join("permits");
        fs::rename(&directory, site.0.path().join("away")).unwrap();
        assert!(!permits.refresh());
        assert_eq!(names(&permits), ["base", "ship"]);
        let config = read_hub(&site.0.path().join("hub.toml")).unwrap();
        let told = TerminalPermits::read(&config).err().unwrap().to_string();
        assert!(told.contains("permits"), "{told}");
    }

    #[test]
    fn terminals_expire_and_a_clock_that_steps_back_brings_them_back() {
        let site = Site::new("");
        let text = format!("invite = \"{}\"\nexpires = \"2026-11-25T12:00:00Z\"\n", key(2));
        site.write("ship.toml", &(text + "networks = [\"10.1.0.0/16\"]\n"));
        let permits = site.permits();
        let at = |text: &str| text.parse::<UnixTime>().unwrap();
        let (before, after) = (at("2026-11-25T11:59:59Z"), at("2026-11-25T12:00:00Z"));
        assert_eq!([before, after].map(|now| permits.expired(now)), [0, 1]);
        assert_eq!([before, after].map(|now| permits.served(now).len()), [2, 1]);
        // Until then an invitation lets nothing through.
        let invited = &permits.served(before)[1];
        assert!(invited.invited && invited.networks.is_empty());
        assert_eq!(invited.egress, EgressRules::nowhere());
    }

    #[test]
    fn what_the_hub_needs_of_its_terminals_it_needs_of_permits() {
        let site = Site::new("");
        let guaranteed =
            |rate: &str, seed| format!("key = \"{}\"\nguaranteed = \"{rate}\"\n", key(seed));
        site.write("a.toml", &guaranteed("6 Mbit/s", 2));
        site.write("b.toml", &guaranteed("5 Mbit/s", 3));
        assert_eq!(names(&site.permits()), ["base", "a"]);
        let error = check(&site.permits().config).unwrap_err().to_string();
        assert!(
            error.contains("b.toml:2: guaranteed") && error.contains("at most 4 Mbit/s"),
            "{error}"
        );
    }
}
