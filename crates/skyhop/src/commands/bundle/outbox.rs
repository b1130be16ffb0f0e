//! `skyhop outbox`: sends each file of a directory once.
//!
//! The identity of a bundle is recorded in `DIR/.skyhop/NAME` before the bundle is handed over. After a
//! crash, the file is therefore handed over again with the same identity, and the gateway recognises the
//! duplicate.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use control::protocol::BundleOffer;
use os::{create_directory, sync_directory};
use serde::{Deserialize, Serialize};

use super::client::BundleClient;
use super::{connect, duration};
use crate::commands::which::GatewaySelection;
use crate::print;

/// Interval between scans of the directory.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a file must not have been modified before it is sent.
const QUIET_TIME: Duration = Duration::from_secs(2);
/// Subdirectory of the notes.
const NOTES: &str = ".skyhop";

/// The arguments of `skyhop outbox`.
#[derive(clap::Args)]
pub(crate) struct OutboxArgs {
    /// The directory; files in directories below are left alone, and so are hidden ones and links
    directory: PathBuf,
    /// The endpoint that they are for, such as ipn:1.1000 or dtn://hub/files
    #[arg(long, value_name = "ENDPOINT")]
    to: String,
    /// Lifetime of each bundle; after it, the file is sent again
    #[arg(long, value_name = "TIME", default_value = "168h", value_parser = duration)]
    lifetime: Duration,
    /// Delete what the other side has stored, instead of moving it to `sent` in the directory
    #[arg(long)]
    delete: bool,
    /// End when all files that are there have been sent
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    which: GatewaySelection,
}

/// The recorded state of a file and its bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OutboxNote {
    inode: u64,
    bytes: u64,
    modified_ns: i128,
    /// Creation time (milliseconds since 1970) and sequence number of its bundle.
    made: (u64, u64),
    /// Identity of the bundle, once the gateway has stored it.
    id: Option<String>,
}

impl OutboxNote {
    fn is_of(&self, file: &Metadata) -> bool {
        let inode = file.ino();
        let bytes = file.len();
        (self.inode, self.bytes, self.modified_ns) == (inode, bytes, modified(file))
    }
}

fn modified(file: &Metadata) -> i128 {
    i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec())
}

/// Sends files until interrupted or, with `--once`, until all have been sent.
pub(crate) fn run(args: &OutboxArgs) -> anyhow::Result<ExitCode> {
    for directory in [args.directory.join(NOTES), args.directory.join("sent")] {
        let created = create_directory(&directory, 0o700);
        created.with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut said = String::new();
    loop {
        let left = match scan(args) {
            Ok(left) => left,
            // The gateway may be down for a while, or its store full; the same error is reported once.
            Err(error) if !args.once => {
                let now = format!("{error:#}");
                if now != said {
                    crate::print_to_stderr(&now);
                    said = now;
                }
                1
            }
            Err(error) => return Err(error),
        };
        if args.once && left == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(SCAN_INTERVAL);
    }
}

/// Scans the directory once and takes the next step for each file. Returns the number of files that are
/// left to be sent.
fn scan(args: &OutboxArgs) -> anyhow::Result<usize> {
    let files = files(&args.directory)?;
    remove_stale_notes(args, &files)?;
    let mut left = 0;
    let mut failed = None;
    // Without files no gateway is needed.
    if files.is_empty() {
        return Ok(0);
    }
    let mut client = connect(&args.which)?;
    for (name, metadata) in files {
        left += 1;
        match advance(args, &mut client, &name, &metadata) {
            Ok(sent) => left -= usize::from(sent),
            // An error of one file does not keep the others from being sent.
            Err(error) => failed = Some(error.context(name)),
        }
    }
    failed.map_or(Ok(left), Err)
}

/// Lists the files to send, the oldest first.
fn files(directory: &Path) -> anyhow::Result<Vec<(String, Metadata)>> {
    let problem = || format!("cannot read {}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(problem)? {
        let entry = entry.with_context(problem)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Not `metadata`: symbolic links are not followed and not sent.
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
        if metadata.is_file() && !name.starts_with('.') {
            files.push((name, metadata));
        }
    }
    files.sort_by_key(|(name, metadata)| (modified(metadata), name.clone()));
    Ok(files)
}

/// Removes the notes of files that no longer exist.
fn remove_stale_notes(args: &OutboxArgs, files: &[(String, Metadata)]) -> anyhow::Result<()> {
    for entry in fs::read_dir(args.directory.join(NOTES))? {
        let entry = entry?;
        if !files.iter().any(|(name, _)| **name == *entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Takes the next step for a file. Returns true once it has been sent.
fn advance(
    args: &OutboxArgs,
    client: &mut BundleClient,
    name: &str,
    metadata: &Metadata,
) -> anyhow::Result<bool> {
    let path = args.directory.join(name);
    let noted = args.directory.join(NOTES).join(name);
    let note =
        fs::read(&noted).ok().and_then(|text| serde_json::from_slice::<OutboxNote>(&text).ok());
    let note = match note.filter(|note| note.is_of(metadata)) {
        Some(note) => note,
        // It may still be being written.
        None if !is_quiet(metadata) => return Ok(false),
        None => new_note(&noted, metadata)?,
    };
    let state = match &note.id {
        Some(id) => client.state(id)?,
        None => None,
    };
    match state.as_deref() {
        Some("forwarded" | "delivered") => {
            finish(args, name, &path, &note)?;
            // Last: without its note, a file that is still there would be sent again.
            fs::remove_file(noted)?;
            Ok(true)
        }
        Some("expired") => {
            crate::print_to_stderr(format_args!(
                "{name}: the bundle has expired, the file is sent again"
            ));
            fs::remove_file(noted)?;
            Ok(false)
        }
        Some(_) => Ok(false),
        None => {
            let id = hand_over(args, client, name, &path, &note)?;
            write_note(&noted, &OutboxNote { id: Some(id), ..note })?;
            Ok(false)
        }
    }
}

fn is_quiet(metadata: &Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
    // `None` is a time in the future: the clock was set back, so the file may be old.
    age.is_none_or(|age| age >= QUIET_TIME)
}

fn new_note(path: &Path, metadata: &Metadata) -> anyhow::Result<OutboxNote> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The inode distinguishes files that are noted in the same millisecond.
    let made = (now.as_millis() as u64, metadata.ino());
    let note = OutboxNote {
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified_ns: modified(metadata),
        made,
        id: None,
    };
    write_note(path, &note)?;
    Ok(note)
}

/// Writes a note atomically and syncs it to disk.
fn write_note(path: &Path, note: &OutboxNote) -> io::Result<()> {
    // Hidden files are not sent, so this name is free.
    let temporary = path.with_file_name(".new");
    let _ = fs::remove_file(&temporary);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(note)?)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory(path)
}

/// Opens the file of a note; fails if the file has changed since.
fn open(path: &Path, note: &OutboxNote) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| "cannot read the file")?;
    if !note.is_of(&file.metadata()?) {
        bail!("the file has just changed");
    }
    Ok(file)
}

fn hand_over(
    args: &OutboxArgs,
    client: &mut BundleClient,
    name: &str,
    path: &Path,
    note: &OutboxNote,
) -> anyhow::Result<String> {
    // The note's creation time gives a repeated bundle the same identity.
    let offer = BundleOffer {
        destination: args.to.clone(),
        lifetime_s: args.lifetime.as_secs(),
        name: Some(name.to_owned()),
        length: note.bytes,
        made: Some(note.made),
        report: false,
    };
    client.send(offer, &mut open(path, note)?)
}

/// Moves or deletes a file that the other side has stored.
fn finish(args: &OutboxArgs, name: &str, path: &Path, note: &OutboxNote) -> anyhow::Result<()> {
    // A new version under the same name stays, and is sent in its turn.
    if !fs::symlink_metadata(path).is_ok_and(|now| note.is_of(&now)) {
        return Ok(());
    }
    if args.delete {
        fs::remove_file(path)?;
    } else {
        let sent = args.directory.join("sent");
        let free = (1..).map(|number| sent.join(numbered(name, number)));
        let to = free.into_iter().find(|path| fs::symlink_metadata(path).is_err());
        let to = to.context("no name is free in `sent`")?;
        fs::rename(path, &to)?;
        sync_directory(&to)?;
    }
    // The note is removed after this. If only that survived a power cut, the file would be sent again.
    sync_directory(path)?;
    // The file has been sent even if its name cannot be printed.
    let _ = print(&format!("{name}\n"));
    Ok(())
}

fn numbered(name: &str, number: u32) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}.{number}") }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use os::testkit::durable_steps;

    use super::*;

    #[derive(Parser)]
    struct Outbox {
        #[command(flatten)]
        args: OutboxArgs,
    }

    /// A directory whose file `report` has a note.
    fn noted(options: &[&str]) -> (tempfile::TempDir, OutboxArgs, OutboxNote) {
        let directory = tempfile::tempdir().unwrap();
        for made in [NOTES, "sent"] {
            fs::create_dir(directory.path().join(made)).unwrap();
        }
        let path = directory.path().join("report");
        fs::write(&path, "it").unwrap();
        let of = directory.path().to_str().unwrap();
        let outbox = Outbox::parse_from([&["outbox", of, "--to", "ipn:1.1000"], options].concat());
        let note =
            new_note(&directory.path().join(NOTES).join("report"), &path.metadata().unwrap());
        (directory, outbox.args, note.unwrap())
    }

    #[test]
    fn the_identity_of_a_bundle_is_on_the_disk_before_it_is_handed_over() {
        let (directory, _, note) = noted(&[]);
        let write = || write_note(&directory.path().join(NOTES).join("report"), &note).unwrap();
        let Some(steps) = durable_steps(directory.path(), write) else { return };
        assert_eq!(steps, ["sync .skyhop/.new", "rename", "sync .skyhop"]);
    }

    #[test]
    fn a_file_that_was_sent_is_gone_on_the_disk_before_its_note_is() {
        for (options, expected) in
            [(&[][..], &["rename", "sync sent", "sync ."][..]), (&["--delete"], &["sync ."])]
        {
            let (directory, args, note) = noted(options);
            let path = directory.path().join("report");
            let finish = || finish(&args, "report", &path, &note).unwrap();
            let Some(steps) = durable_steps(directory.path(), finish) else { return };
            assert_eq!(steps, expected);
            assert!(!path.exists());
        }
    }
}
