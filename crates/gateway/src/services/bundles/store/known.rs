//! The list of bundles that are gone: a file that gets a line for each.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bundles::{BundleFate, BundleId};

use crate::config::whole_file::{self, PRIVATE};

/// Size limit of the file, in bytes: about fifty million lines.
const MAX_FILE: u64 = 4 << 30;
/// Obsolete lines tolerated before the file is rewritten.
const MAX_OBSOLETE: usize = 1000;

/// A bundle that is gone, its fate, and the end of its lifetime in milliseconds since 1970.
pub(super) type GoneBundle = (BundleId, BundleFate, u64);

/// The file, open for appending.
#[derive(Debug)]
pub(super) struct GoneList {
    path: PathBuf,
    file: File,
    /// Length up to the last complete line, in bytes.
    length: u64,
    lines: usize,
    /// Set while `file` may be one that was replaced by another.
    replaced: bool,
}

const FATES: [(BundleFate, &str); 3] = [
    (BundleFate::Forwarded, "forwarded"),
    (BundleFate::Delivered, "delivered"),
    (BundleFate::Expired, "expired"),
];

fn line(entry: &GoneBundle) -> String {
    let (id, fate, until) = entry;
    let fate = FATES.iter().find(|(known, _)| known == fate).map_or("expired", |(_, name)| name);
    format!("{id} {until} {fate}\n")
}

fn entry(line: &str) -> Option<GoneBundle> {
    let mut words = line.split(' ');
    let id = words.next()?;
    let until = words.next()?;
    let fate = words.next()?;
    let (fate, _) = FATES.iter().find(|(_, name)| *name == fate)?;
    Some((BundleId::from_hex(id)?, *fate, until.parse().ok()?))
}

impl GoneList {
    /// Opens the file at `path`. Returns its entries of lifetimes beyond `now`. An incomplete last
    /// line is ignored: after a power cut its bundle has not been removed.
    pub(super) fn open(path: &Path, now: u64) -> io::Result<(Self, Vec<GoneBundle>)> {
        let text = whole_file::read(path, MAX_FILE)?;
        let text = String::from_utf8_lossy(&text);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let entries = whole.lines().filter_map(entry).filter(|(_, _, until)| *until > now);
        let entries: Vec<GoneBundle> = entries.collect();
        // Rewritten at each start, so that it does not keep what is obsolete.
        let known = Self::write(path, entries.iter().copied()).or_else(|error| {
            tracing::warn!("cannot rewrite {}: {error}", path.display());
            Self::keep(path)
        });
        Ok((known?, entries))
    }

    /// Continues with the file as it is, without an incomplete last line: a disk that is full now
    /// may have room later.
    fn keep(path: &Path) -> io::Result<Self> {
        let contents = std::fs::read(path)?;
        let length = contents.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.set_len(length as u64)?;
        file.seek(SeekFrom::End(0))?;
        let lines = contents.iter().filter(|byte| **byte == b'\n').count();
        Ok(Self { path: path.to_owned(), file, length: length as u64, lines, replaced: false })
    }

    fn write(path: &Path, entries: impl Iterator<Item = GoneBundle>) -> io::Result<Self> {
        let mut lines = 0;
        let text: String = entries.inspect(|_| lines += 1).map(|entry| line(&entry)).collect();
        whole_file::replace(path, text.as_bytes(), PRIVATE)?;
        let mut file = OpenOptions::new().write(true).mode(PRIVATE).open(path)?;
        file.seek(SeekFrom::End(0))?;
        let length = text.len() as u64;
        Ok(Self { path: path.to_owned(), file, length, lines, replaced: false })
    }

    /// Appends an entry, which is on the disk when this returns.
    pub(super) fn add(&mut self, entry: &GoneBundle) -> io::Result<()> {
        if self.replaced {
            *self = Self::keep(&self.path)?;
        }
        let text = line(entry);
        let added = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        match added {
            Ok(()) => {
                self.length += text.len() as u64;
                self.lines += 1;
            }
            Err(_) => {
                // Cut off the incomplete line, so that the next one does not continue it.
                self.file.set_len(self.length)?;
                self.file.seek(SeekFrom::Start(self.length))?;
            }
        }
        added
    }

    /// Returns `true` if most of the lines are obsolete, `needed` being the others.
    pub(super) fn is_long(&self, needed: usize) -> bool {
        self.lines > 2 * needed + MAX_OBSOLETE
    }

    /// Rewrites the file. After an error either the old or the new one may be there.
    pub(super) fn replace(&mut self, entries: impl Iterator<Item = GoneBundle>) -> io::Result<()> {
        self.replaced = true;
        *self = Self::write(&self.path, entries)?;
        Ok(())
    }
}
