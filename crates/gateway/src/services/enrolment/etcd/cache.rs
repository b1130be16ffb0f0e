//! A copy of the permits on disk, for a start while etcd is unreachable.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::PermitTexts;
use crate::config::whole_file::{self, PRIVATE};

/// The file in the directory of the key `state`.
const FILE: &str = "hub-permits.json";
/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes.
const MAX_FILE: u64 = 64 << 20;

/// The file with the copy.
#[derive(Debug, Clone)]
pub(crate) struct PermitCache(PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PermitFile {
    skyhop_permits: u32,
    permits: PermitTexts,
}

impl PermitCache {
    /// The file in this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.join(FILE))
    }

    /// Loads the permits saved last; [`None`] if there is no file, or it is damaged.
    pub(crate) fn load(&self) -> Option<PermitTexts> {
        match whole_file::read(&self.0, MAX_FILE).and_then(|text| parse(&text)) {
            Ok(permits) => permits,
            Err(error) => {
                tracing::warn!("{} is ignored: {error}", self.0.display());
                None
            }
        }
    }

    /// Saves the permits. A failure is only logged.
    pub(crate) fn save(&self, permits: &PermitTexts) {
        let contents = PermitFile { skyhop_permits: FORMAT, permits: permits.clone() };
        let text = serde_json::to_vec_pretty(&contents).expect("permits are plain data");
        if let Err(error) = whole_file::replace(&self.0, &text, PRIVATE) {
            tracing::warn!("cannot save {}: {error}", self.0.display());
        }
    }
}

fn parse(text: &[u8]) -> io::Result<Option<PermitTexts>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    // There is no file yet.
    if text.is_empty() {
        return Ok(None);
    }
    let contents: PermitFile = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    match contents.skyhop_permits {
        FORMAT => Ok(Some(contents.permits)),
        other => Err(wrong(format!("its format is {other}, not {FORMAT}"))),
    }
}
