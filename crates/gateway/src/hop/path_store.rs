//! Stores measurements of paths on disk, so that a restarted gateway resumes from them (`docs/slacp.md`,
//! Rate).

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slacp::{PathKey, PathMemory};
use units::BitRate;

use crate::config::keys::{format_public_key, parse_public_key};
use crate::config::whole_file::{self, PRIVATE};
use crate::process::clock;

/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes: enough for 4,096 paths.
const LONGEST: u64 = 4 << 20;

/// The file with the remembered paths.
#[derive(Debug)]
pub(crate) struct PathStore {
    path: PathBuf,
    /// Current contents of the file, to skip writes that change nothing.
    written: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathFile {
    skyhop_paths: u32,
    paths: Vec<PathRecord>,
}

/// A path with the wall-clock time of its measurement, since it also ages while no gateway runs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathRecord {
    peer: String,
    network: IpAddr,
    capacity_bit_s: u64,
    min_rtt_us: u64,
    measured_unix_s: u64,
}

impl PathStore {
    /// Creates the store of this file, without reading it.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, written: Vec::new() }
    }

    /// Reads the file. A missing file counts as empty; a damaged one is logged and ignored.
    pub(crate) fn load(&mut self) -> Vec<(PathKey, PathMemory)> {
        match whole_file::read(&self.path, LONGEST)
            .and_then(|text| parse(&text, clock::unix_seconds()))
        {
            Ok(memories) => memories,
            Err(error) => {
                tracing::warn!("{} is ignored: {error}", self.path.display());
                Vec::new()
            }
        }
    }

    /// Replaces the file atomically if the paths have changed. Without any path, the file stays.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn save(&mut self, memories: &[(PathKey, PathMemory)]) -> io::Result<()> {
        let text = format(memories, clock::unix_seconds());
        if memories.is_empty() || text == self.written {
            return Ok(());
        }
        whole_file::replace(&self.path, &text, PRIVATE)?;
        self.written = text;
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn format(memories: &[(PathKey, PathMemory)], now: u64) -> Vec<u8> {
    let remembered = |(key, memory): &(PathKey, PathMemory)| PathRecord {
        peer: format_public_key(&key.peer()),
        network: key.network(),
        capacity_bit_s: memory.capacity.bits_per_second(),
        min_rtt_us: u64::try_from(memory.min_rtt.as_micros()).unwrap_or(u64::MAX),
        measured_unix_s: now.saturating_sub(memory.age.as_secs()),
    };
    let paths = memories.iter().map(remembered).collect();
    let contents = PathFile { skyhop_paths: FORMAT, paths };
    serde_json::to_vec_pretty(&contents).expect("memories are plain data")
}

fn parse(text: &[u8], now: u64) -> io::Result<Vec<(PathKey, PathMemory)>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let contents: PathFile = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    if contents.skyhop_paths != FORMAT {
        return Err(wrong(format!("its format is {}, not {FORMAT}", contents.skyhop_paths)));
    }
    let known = |path: PathRecord| {
        let peer = parse_public_key(&path.peer).map_err(|e| wrong(e.to_string()))?;
        // A measurement from the future, after the clock was set back, is too old to be used.
        let age = now.checked_sub(path.measured_unix_s).map_or(Duration::MAX, Duration::from_secs);
        let memory = PathMemory {
            capacity: BitRate::from_bits_per_second(path.capacity_bit_s),
            min_rtt: Duration::from_micros(path.min_rtt_us),
            age,
        };
        Ok((PathKey::new(peer, path.network), memory))
    };
    contents.paths.into_iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::keys::PrivateKey;

    fn memory(seconds: u64) -> (PathKey, PathMemory) {
        let peer = PrivateKey::generate().unwrap().public();
        let memory = PathMemory {
            capacity: BitRate::from_mbit(47),
            min_rtt: Duration::from_micros(601_234),
            age: Duration::from_secs(seconds),
        };
        (PathKey::new(peer, "2001:db8:1:2::3".parse().unwrap()), memory)
    }

    #[test]
    fn entries_age_while_they_are_stored() {
        let kept = [memory(10), memory(100)];
        let text = format(&kept, 1_000_000);
        let read = parse(&text, 1_000_050).unwrap();
        let ages: Vec<u64> = read.iter().map(|(_, memory)| memory.age.as_secs()).collect();
        assert_eq!(ages, [60, 150]);
        assert_eq!(read[0].0, kept[0].0);
        assert_eq!(read[0].1.capacity, kept[0].1.capacity);
        assert_eq!(read[0].1.min_rtt, kept[0].1.min_rtt);
        assert_eq!(parse(&text, 5).unwrap()[0].1.age, Duration::MAX);
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_bad_one_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("paths.json");
        let mut store = PathStore::new(path.clone());
        assert!(store.load().is_empty());
        store.save(&[memory(1)]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(PathStore::new(path.clone()).load().len(), 1);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let whole = fs::read(&path).unwrap();
        for length in 1..whole.len() {
            assert!(parse(&whole[..length], 0).is_err(), "{length}");
        }
        for bad in ["nonsense", "{\"skyhop_paths\":2,\"paths\":[]}", "[]", "\0"] {
            fs::write(&path, bad).unwrap();
            assert!(store.load().is_empty(), "{bad}");
        }
        let missing = PathStore::new(directory.path().join("no/such/file")).save(&[memory(1)]);
        assert!(missing.is_err());
    }
}
