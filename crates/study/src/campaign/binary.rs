//! The identity of the program that computes a cell.

use core::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::cell::hexadecimal;

/// The identity of a program. Two different programs have different ones.
///
/// It is the build ID that linkers write into executables, a hash of their content. Reading it
/// takes microseconds; a hash of the file, tens of milliseconds, serves where there is none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProgramId(String);

/// Part of a file, in bytes, that is searched for notes; linkers put them into the first page.
const HEAD: usize = 64 << 10;
/// Maximum length of a build ID, in bytes.
const LONGEST_ID: usize = 64;

impl ProgramId {
    /// Returns the identity of this process's program.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn this() -> io::Result<Self> {
        // The link leads to the running program even if its file was replaced.
        Self::of(Path::new("/proc/self/exe"))
    }

    /// Returns the identity of the program in the file at `path`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut head = Vec::with_capacity(HEAD);
        file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        if let Some(id) = build_id(&head) {
            // The prefixes keep build IDs and hashes of files apart.
            return Ok(Self(format!("build-{}", hexadecimal(id))));
        }
        file.seek(SeekFrom::Start(0))?;
        hash(file).map(|hash| Self(format!("sha256-{hash}")))
    }
}

impl fmt::Display for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn hash(mut file: File) -> io::Result<String> {
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; HEAD];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(context.finish().as_ref())),
            length => context.update(&buffer[..length]),
        }
    }
}

/// Finds the build ID in the beginning of a 64-bit ELF file of this machine's byte order: the first
/// note of type `NT_GNU_BUILD_ID` (3) by `GNU` in a segment `PT_NOTE` (4); elf(5).
fn build_id(head: &[u8]) -> Option<&[u8]> {
    const CLASS_64: u8 = 2;
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    head.starts_with(&[0x7f, b'E', b'L', b'F', CLASS_64, order]).then_some(())?;
    // `e_phoff`, `e_phentsize` and `e_phnum` of the ELF header.
    let table = long(head, 32)?;
    let size = short(head, 54)?;
    let count = short(head, 56)?;
    (0..usize::from(count)).find_map(|number| {
        // The file may hold anything, so sums are checked.
        let entry = head.get(table.checked_add(number * usize::from(size))?..)?;
        let is_note = word(entry, 0)? == 4;
        // `p_offset` and `p_filesz` of the segment.
        let start = long(entry, 8)?;
        let length = long(entry, 32)?;
        // A segment beyond the part that was read is skipped: another one may hold the note.
        let notes = is_note.then(|| head.get(start..start.checked_add(length)?))??;
        build_id_in(notes)
    })
}

/// Finds the build ID among notes. Each has the lengths of its name and of its content, a type, and
/// both, padded to 4 bytes.
fn build_id_in(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let name = word(notes, 0)?;
        let length = word(notes, 4)?;
        let kind = word(notes, 8)?;
        let start = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = start.checked_add(length)?;
        let content = notes.get(start..end)?;
        if kind == 3 && notes.get(12..16)? == b"GNU\0" && (1..=LONGEST_ID).contains(&length) {
            return Some(content);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn short(from: &[u8], at: usize) -> Option<u16> {
    bytes(from, at).map(u16::from_ne_bytes)
}

fn word(from: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(bytes(from, at)?)).ok()
}

fn long(from: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_ne_bytes(bytes(from, at)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_itself_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let of = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            ProgramId::of(&path).unwrap()
        };
        assert_eq!(ProgramId::this().unwrap(), ProgramId::this().unwrap());
        let script = of(b"#!/bin/sh\n");
        assert!(script.to_string().starts_with("sha256-"), "{script}");
        assert_eq!(script, of(b"#!/bin/sh\n"));
        assert_ne!(script, of(b"#!/bin/sh\n\n"));
        assert!(ProgramId::of(&folder.path().join("none")).is_err());
    }

    /// An ELF file with a segment of notes.
    fn elf(notes: &[u8]) -> Vec<u8> {
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, order];
        file.resize(64 + 56, 0);
        file[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        file[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        file[56..58].copy_from_slice(&1_u16.to_ne_bytes());
        file[64..68].copy_from_slice(&4_u32.to_ne_bytes());
        file[72..80].copy_from_slice(&120_u64.to_ne_bytes());
        file[96..104].copy_from_slice(&(notes.len() as u64).to_ne_bytes());
        [file, notes.to_vec()].concat()
    }

    fn note(kind: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            note.extend(number.to_ne_bytes());
        }
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let notes = [note(1, b"GNU\0", b"abi"), note(3, b"GNU\0", b"12345")].concat();
        assert_eq!(build_id(&elf(&notes)), Some(&b"12345"[..]));
        assert_eq!(build_id(&elf(&note(3, b"Go\0\0", b"12345"))), None);
        assert_eq!(build_id(b"#!/bin/sh"), None);
    }

    /// Cut off or with lengths beyond the end: no panic, no ID.
    #[test]
    fn a_broken_file_has_none() {
        let whole = elf(&note(3, b"GNU\0", b"12345"));
        for length in 0..whole.len() - 3 {
            let _ = build_id(&whole[..length]);
        }
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] = 0xff;
            let _ = build_id(&broken);
        }
        assert_eq!(build_id(&elf(&[0xff; 40])), None);
    }
}
