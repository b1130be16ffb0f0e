use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bundles::{BundleFate, BundleId, BundleRecord, FileName};
use os::testkit::durable_steps;

use super::*;

/// A moment, in milliseconds since 1970.
const NOW: u64 = 1_795_600_000_000;
const PARTIAL: u64 = 10_000;

fn record(number: u8, length: usize) -> BundleRecord {
    BundleRecord {
        id: BundleId([number; 16]),
        source: "ipn:2.7".parse().unwrap(),
        destination: "ipn:1.7".parse().unwrap(),
        arrived: NOW,
        expires: NOW + 60_000,
        length: length as u64,
        part: None,
    }
}

fn open(directory: &Path) -> (BundleStore, Vec<BundleRecord>, Vec<(BundleId, BundleFate, u64)>) {
    BundleStore::open(directory, NOW, PARTIAL).unwrap()
}

fn keep(store: &mut BundleStore, number: u8, bytes: &[u8]) -> BundleRecord {
    let (spool, record) = (PartialId::New(number.into()), record(number, bytes.len()));
    assert_eq!(store.begin(spool, false).unwrap(), 0);
    bytes.chunks(3).for_each(|piece| store.append(spool, piece).unwrap());
    assert_eq!(store.whole(spool).unwrap(), bytes);
    store.keep(spool, &record, None).unwrap();
    record
}

#[test]
fn what_is_kept_is_there_after_a_restart_and_what_is_removed_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let (mut store, records, known) = open(&path);
    assert!(records.is_empty() && known.is_empty());
    let (first, second) = (keep(&mut store, 1, b"first one"), keep(&mut store, 2, b"second"));
    let error = BundleStore::open(&path, NOW, PARTIAL).unwrap_err().to_string();
    assert!(error.contains("another gateway uses"), "{error}");
    drop(store);

    let (mut store, mut records, _) = open(&path);
    records.sort_by_key(|record| record.id);
    assert_eq!(records, [first.clone(), second.clone()]);
    assert_eq!(store.read(&first.id).unwrap(), b"first one");
    store.remove(&first, BundleFate::Forwarded).unwrap();
    assert!(store.read(&first.id).is_err());
    drop(store);

    let (_, records, known) = open(&path);
    assert_eq!(records, [second]);
    assert_eq!(known, [(first.id, BundleFate::Forwarded, first.expires)]);
    let (_, _, known) = BundleStore::open(&directory.path().join("a/c"), NOW, PARTIAL).unwrap();
    assert!(known.is_empty());
}

#[test]
fn what_has_expired_is_forgotten_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    let gone = keep(&mut store, 1, b"gone");
    store.remove(&gone, BundleFate::Expired).unwrap();
    drop(store);
    let (_, _, known) = BundleStore::open(directory.path(), gone.expires, PARTIAL).unwrap();
    assert!(known.is_empty());
}

#[test]
fn a_line_that_a_power_cut_has_left_in_part_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    for number in 1..4 {
        let it = keep(&mut store, number, b"it");
        store.remove(&it, BundleFate::Delivered).unwrap();
    }
    drop(store);
    let file = directory.path().join("known");
    let whole = fs::read(&file).unwrap();
    for length in 0..=whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let (_, _, known) = open(directory.path());
        let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(known.len(), lines, "{length} bytes");
        assert!(known.iter().all(|(_, fate, _)| *fate == BundleFate::Delivered));
    }
}

#[test]
fn a_disk_that_is_full_at_the_start_forgets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    let [first, second] = [1, 2].map(|number| keep(&mut store, number, b"it"));
    store.remove(&first, BundleFate::Delivered).unwrap();
    drop(store);
    let file = directory.path().join("known");
    let torn = [&fs::read(&file).unwrap()[..], b"0101"].concat();
    fs::write(&file, torn).unwrap();
    // The new file cannot be written: a directory that is not empty has its name.
    fs::create_dir_all(directory.path().join("known.new/full")).unwrap();
    let (mut store, _, known) = open(directory.path());
    assert_eq!(known.len(), 1);
    store.remove(&second, BundleFate::Forwarded).unwrap();
    drop(store);
    fs::remove_dir_all(directory.path().join("known.new")).unwrap();
    let (_, _, known) = open(directory.path());
    assert_eq!(known.iter().map(|(id, ..)| id.0[0]).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_memory_of_what_is_gone_is_written_anew_when_it_has_grown() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    let it = record(1, 0);
    (0..1001).for_each(|_| store.remove(&it, BundleFate::Delivered).unwrap());
    assert!(store.is_long(0) && !store.is_long(1));
    store.remember(&[(it.id, BundleFate::Delivered, it.expires)]).unwrap();
    assert!(!store.is_long(0));
    store.remove(&record(2, 0), BundleFate::Expired).unwrap();
    drop(store);
    let (_, _, known) = open(directory.path());
    assert_eq!(known.iter().map(|(id, ..)| id.0[0]).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn what_has_come_of_a_bundle_is_there_after_a_restart_within_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    let (digest, any) = (PartialId::Digest([7; 32]), PartialId::New(1));
    for spool in [digest, any] {
        store.begin(spool, true).unwrap();
        store.append(spool, b"half of").unwrap();
    }
    drop(store);
    let (mut store, ..) = open(directory.path());
    assert_eq!(store.begin(digest, true).unwrap(), 7);
    assert_eq!(store.begin(any, true).unwrap(), 0, "nobody comes back for it");
    store.append(digest, b" it").unwrap();
    assert_eq!(store.whole(digest).unwrap(), b"half of it");
    store.abandon(digest, true).unwrap();
    assert_eq!(store.begin(digest, false).unwrap(), 0, "from the start");
    store.abandon(digest, false).unwrap();
    store.abandon(any, true).unwrap();
    assert_eq!(fs::read_dir(directory.path().join("partial")).unwrap().count(), 0);
    // Each has a header of 4 kB, too.
    for number in 0..5 {
        store.begin(PartialId::Digest([number; 32]), true).unwrap();
        store.abandon(PartialId::Digest([number; 32]), true).unwrap();
    }
    assert_eq!(fs::read_dir(directory.path().join("partial")).unwrap().count(), 2);
}

#[test]
fn a_damaged_file_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    let it = keep(&mut store, 1, b"contents");
    drop(store);
    let held = directory.path().join("held");
    let path = held.join(it.id.to_string());
    let whole = fs::read(&path).unwrap();
    for damaged in [&whole[..100], &whole[..whole.len() - 1], &[0; 5000]] {
        fs::write(&path, damaged).unwrap();
        assert!(open(directory.path()).1.is_empty());
        assert!(path.exists());
    }
    fs::write(&path, &whole).unwrap();
    fs::rename(&path, held.join("other")).unwrap();
    assert!(open(directory.path()).1.is_empty(), "not under its name");
}

#[test]
fn a_disk_that_fails_keeps_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    let it = keep(&mut store, 1, b"contents");
    // A directory in place of each file that is to be written.
    fs::rename(directory.path().join("held"), directory.path().join("away")).unwrap();
    let spool = PartialId::New(2);
    store.begin(spool, false).unwrap();
    store.append(spool, b"more").unwrap();
    assert!(store.keep(spool, &record(2, 4), None).is_err());
    store.abandon(spool, true).unwrap();
    assert!(store.read(&it.id).is_err());
    fs::rename(directory.path().join("away"), directory.path().join("held")).unwrap();
    drop(store);
    let (store, records, _) = open(directory.path());
    assert_eq!((records.len(), store.read(&it.id).unwrap()), (1, b"contents".to_vec()));
}

#[test]
fn a_file_appears_in_the_inbox_once_wherever_it_stops() {
    let (directory, inbox) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inbox = inbox.path();
    let (mut store, ..) = open(directory.path());
    let name = FileName::new("report.txt").unwrap();
    let deliver = |store: &BundleStore, it: &BundleRecord, contents: &[u8]| {
        store.deliver(inbox, &it.id, &name, contents).unwrap();
    };
    let [first, second] = [1, 2].map(|number| keep(&mut store, number, b"it"));
    deliver(&store, &first, b"one");
    // Somebody takes it; then the gateway, which was killed before it noted the delivery, tries again.
    assert_eq!(fs::read(inbox.join("report.txt")).unwrap(), b"one");
    fs::remove_file(inbox.join("report.txt")).unwrap();
    drop(store);
    let (mut store, ..) = open(directory.path());
    deliver(&store, &first, b"one");
    assert_eq!(fs::read_dir(inbox).unwrap().count(), 0);
    store.remove(&first, BundleFate::Delivered).unwrap();

    // Killed before the mark, with half of a file written; a link of somebody else's is in the way.
    symlink("/etc/passwd", inbox.join(format!(".skyhop-{}", second.id))).unwrap();
    symlink("/nowhere", inbox.join("report.txt")).unwrap();
    deliver(&store, &second, b"two");
    assert_eq!(fs::read(inbox.join("report-2.txt")).unwrap(), b"two");
    // Killed between the mark and the rename.
    fs::rename(inbox.join("report-2.txt"), inbox.join(format!(".skyhop-{}", second.id))).unwrap();
    deliver(&store, &second, b"not written again");
    assert_eq!(fs::read(inbox.join("report-2.txt")).unwrap(), b"two");
    store.remove(&second, BundleFate::Delivered).unwrap();
    assert_eq!(fs::read_dir(directory.path().join("named")).unwrap().count(), 0);
}

#[test]
fn a_bundle_is_on_the_disk_with_its_name_when_it_is_kept_and_its_fate_when_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, ..) = open(directory.path());
    let (spool, record) = (PartialId::New(1), record(1, 2));
    store.begin(spool, false).unwrap();
    store.append(spool, b"it").unwrap();
    let keep = || store.keep(spool, &record, None).unwrap();
    let Some(steps) = durable_steps(directory.path(), keep) else { return };
    assert_eq!(steps, ["sync partial/new-1", "rename", "sync held"]);
    let remove = || store.remove(&record, BundleFate::Forwarded).unwrap();
    assert_eq!(durable_steps(directory.path(), remove).unwrap(), ["sync known"]);
}

#[test]
fn a_new_store_and_its_directories_are_on_the_disk_before_it_keeps_a_bundle() {
    let directory = tempfile::tempdir().unwrap();
    let create = || drop(open(&directory.path().join("store")));
    let Some(steps) = durable_steps(directory.path(), create) else { return };
    let parts = ["sync store"; 3];
    let known = ["sync store/known.new", "rename", "sync store"];
    assert_eq!(steps, [&["sync ."], &parts[..], &known].concat());
}

#[test]
fn a_file_is_on_the_disk_in_the_inbox_when_it_is_delivered() {
    let (directory, inbox) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut store, ..) = open(directory.path());
    let (it, name) = (keep(&mut store, 1, b"it"), FileName::new("report.txt").unwrap());
    let deliver = || store.deliver(inbox.path(), &it.id, &name, b"it").unwrap();
    let Some(steps) = durable_steps(inbox.path(), deliver) else { return };
    let named = directory.path().canonicalize().unwrap().join("named");
    let hidden = format!("sync .skyhop-{}", it.id);
    // The mark in the store, between them, says that the file is about to get its name.
    let mark =
        [named.join(it.id.to_string()), named].map(|path| format!("sync {}", path.display()));
    assert_eq!(steps, [&*hidden, "sync .", &*mark[0], &*mark[1], "rename", "sync ."]);
}
