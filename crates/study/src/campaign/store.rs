//! A directory that holds the results of cells.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use os::{create_directory, sync_directory};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::cell::hexadecimal;
use super::{CellName, CellRecord, CellResult, CellTiming};

/// A directory with a file for each finished cell.
///
/// | path | what |
/// |---|---|
/// | `cells/NAME.json` | a [`Result`](CellResult): the same bytes wherever the cell ran |
/// | `timings/NAME.json` | its [`CellTiming`] |
/// | `unfinished/` | files that are being written |
///
/// A result is written to `unfinished`, flushed to the disk and renamed, so it is there whole or
/// not at all, whatever ends the process. Several processes may use a store at once: those that run
/// the same cell write the same bytes. A file that is damaged, or is not the result of the cell it
/// is named after, counts as not run.
#[derive(Debug, Clone)]
pub struct ResultStore {
    root: PathBuf,
}

/// The error of a store that cannot be used, or of a file in it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or directory cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A file is not what its name says.
    #[error("{}: not the result of a cell: {why}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// The defect, in one line.
        why: String,
    },
    /// A record that was handed over is not the result of the cell it names.
    #[error("cell {cell}: its name does not follow from its contents")]
    Foreign {
        /// The name that the record claims.
        cell: CellName,
    },
}

/// Maximum size of a result in bytes; longer files are damaged.
const LONGEST: u64 = 16 << 20;
/// Age after which an unfinished file was left by a process that ended: writing takes milliseconds.
const ABANDONED: Duration = Duration::from_secs(3600);

impl ResultStore {
    /// Returns the store at `root`, which is created by the first result.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads the result of a cell; `None` if it was not run.
    ///
    /// # Errors
    /// If there is a file, but it cannot be read or is not this cell's result.
    pub fn get(&self, cell: &CellName) -> Result<Option<CellResult>, StoreError> {
        let path = self.path("cells", cell);
        let Some(result) = read::<CellResult>(&path)? else { return Ok(None) };
        let why = if result.cell != *cell {
            format!("it is that of cell {}", result.cell)
        } else if !result.is_named_right() {
            "its name does not follow from its contents".to_owned()
        } else {
            return Ok(Some(result));
        };
        Err(StoreError::Damaged { path, why })
    }

    /// Stores a result, and the time it took. An earlier result of the same name is replaced.
    ///
    /// # Errors
    /// If the record is not the result of the cell it names, or cannot be written.
    pub fn put(&self, CellRecord { result, timing }: &CellRecord) -> Result<(), StoreError> {
        if !result.is_named_right() {
            return Err(StoreError::Foreign { cell: result.cell.clone() });
        }
        // The result comes last, so that every result has its timing.
        self.write("timings", &result.cell, timing)?;
        self.write("cells", &result.cell, result)
    }

    /// Reads all results, in the order of their names, and returns the errors of damaged files.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn results(&self) -> Result<(Vec<CellResult>, Vec<StoreError>), StoreError> {
        let mut results = Vec::new();
        let mut damaged = Vec::new();
        for name in self.names("cells")? {
            match self.get(&name) {
                Ok(result) => results.extend(result),
                Err(error) => damaged.push(error),
            }
        }
        Ok((results, damaged))
    }

    /// Reads the times that cells took; files that cannot be read are left out.
    pub fn timings(&self) -> Vec<CellTiming> {
        // Timings serve only estimates, so a damaged one is not worth an error.
        let names = self.names("timings").unwrap_or_default();
        let read = |name: &CellName| read(&self.path("timings", name)).ok().flatten();
        names.iter().filter_map(read).collect()
    }

    /// Removes files that processes left unfinished more than an hour ago.
    pub fn tidy(&self) {
        let now = SystemTime::now();
        for entry in fs::read_dir(self.root.join("unfinished")).into_iter().flatten().flatten() {
            let changed = entry.metadata().and_then(|metadata| metadata.modified());
            let age = changed.ok().and_then(|changed| now.duration_since(changed).ok());
            if age.is_some_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Returns the cells that have a file in a directory of the store.
    fn names(&self, kind: &str) -> Result<Vec<CellName>, StoreError> {
        let path = self.root.join(kind);
        let entries = match fs::read_dir(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(at(&path))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(at(&path))?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(".json"));
            // Other names are not the store's, and are ignored.
            names.extend(stem.and_then(|stem| stem.parse::<CellName>().ok()));
        }
        // `read_dir` gives no particular order.
        names.sort();
        Ok(names)
    }

    fn path(&self, kind: &str, cell: &CellName) -> PathBuf {
        self.root.join(kind).join(format!("{cell}.json"))
    }

    fn write(&self, kind: &str, cell: &CellName, value: &impl Serialize) -> Result<(), StoreError> {
        let path = self.path(kind, cell);
        let unfinished = self.root.join("unfinished");
        for directory in [&self.root.join(kind), &unfinished] {
            create_directory(directory, 0o777).map_err(at(directory))?;
        }
        let mut text = serde_json::to_vec_pretty(value).expect("results are plain data");
        text.push(b'\n');
        // Renamed when it is complete, so that a half-written result is never read.
        let temporary = unfinished.join(format!("{cell}.{}", unique().map_err(at(&unfinished))?));
        let write = || {
            // A file that exists would be another process's.
            let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            file.write_all(&text)?;
            // Synced before the rename, or a power cut could leave the name with an empty file.
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            // A rename is durable only once its directory is flushed.
            sync_directory(&path)
        };
        write().map_err(|cause| {
            // If this fails as well, `tidy` removes the file after an hour.
            let _ = fs::remove_file(&temporary);
            StoreError::Io { path, cause }
        })
    }
}

/// Returns a text that no other process uses, on this machine or on others that share the store.
fn unique() -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(hexadecimal(&random))
}

/// Reads the value in a file; `None` if there is no file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    let mut text = Vec::new();
    match File::open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        // One byte more shows a file that is too long.
        file => file.and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text)),
    }
    .map_err(at(path))?;
    let damaged = |why: String| StoreError::Damaged { path: path.to_owned(), why };
    if text.len() as u64 > LONGEST {
        return Err(damaged(format!("it exceeds {} MiB", LONGEST >> 20)));
    }
    serde_json::from_slice(&text).map(Some).map_err(|error| damaged(error.to_string()))
}

fn at(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |cause| StoreError::Io { path: path.to_owned(), cause }
}
