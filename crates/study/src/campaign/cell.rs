//! A cell and its name.

use core::fmt::{self, Write};
use core::str::FromStr;

use ring::digest::{Context, SHA256};
use scenario::ScenarioCase;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{BackEndName, ProgramId};

/// One run: a case of a scenario, with a seed, on a back end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Name of the scenario.
    pub scenario: String,
    /// The case's name; empty if the scenario has a single case without one.
    pub case: String,
    /// Seed of the simulation, or of the lab's links.
    pub seed: u64,
    /// The back end that it runs on.
    pub on: BackEndName,
}

/// A SHA-256 hash as hexadecimal digits, or its beginning.
type Hex = String;

/// Length of a name: 96 bits, so that a million cells share one with a probability below 1e-16.
const NAME_LENGTH: usize = 24;

/// A hash of a case's effective content: all values after factors and cases are applied, defaults
/// included, with the contents of the presets and traces that it names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CaseHash(Hex);

impl CaseHash {
    /// Hashes the case as parsed. Layout, comments, the order of keys, and how a value is written
    /// do not matter.
    pub fn of(case: &ScenarioCase) -> Self {
        // The `Debug` text of a case holds every value, also where it is written by hand (the tests
        // change each value of the shipped scenarios).
        let mut hash = HashWriter::new();
        write!(hash, "{case:?}").expect("hashing does not fail");
        Self(hash.finish())
    }
}

/// The name of a cell: 24 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellName(Hex);

/// The error for a text that is not the name of a cell.
#[derive(Debug, Error)]
#[error("{0:?} is not a cell: expected {NAME_LENGTH} digits 0-9, a-f")]
pub struct ParseNameError(String);

impl Cell {
    /// Computes the name: a hash of the cell, its case's content and the program that computes it.
    pub fn name(&self, content: &CaseHash, binary: &ProgramId) -> CellName {
        let Self { scenario, case, seed, on } = self;
        let mut hash = HashWriter::new();
        // Quoted texts cannot run into each other.
        write!(hash, "skyhop cell 1 {scenario:?} {case:?} {seed} {on} {} {binary}", content.0)
            .expect("hashing does not fail");
        let mut name = hash.finish();
        name.truncate(NAME_LENGTH);
        CellName(name)
    }
}

impl CellName {
    /// Returns the 24 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for CellName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for CellName {
    type Error = ParseNameError;

    fn try_from(text: String) -> Result<Self, ParseNameError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let good = text.len() == NAME_LENGTH && text.bytes().all(is_digit);
        if good { Ok(Self(text)) } else { Err(ParseNameError(text)) }
    }
}

impl From<CellName> for String {
    fn from(name: CellName) -> Self {
        name.0
    }
}

/// Hashes what is written to it, with SHA-256.
struct HashWriter(Context);

impl HashWriter {
    fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    fn finish(self) -> Hex {
        hexadecimal(self.0.finish().as_ref())
    }
}

impl Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// Encodes bytes as two hexadecimal digits each.
pub(super) fn hexadecimal(bytes: &[u8]) -> Hex {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
